"""The guide to a launch walks through the code: its table names what is there, and leaves no call out."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

import pytest

from lint.sources import ROOT
from nodectl import launch
from nodectl.model.launch_order import HOOKS, ROWS, Hook

pytestmark = pytest.mark.lint

GUIDE = "docs/guides/read-a-launch.md"
HOP = re.compile(r"^\| ([\w ]+) \| `([\w./]+)` \(`([\w.]+)`\) \| [^|]+ \| ([^|]*)\|$", re.MULTILINE)


@dataclass(frozen=True)
class Hop:
    """A line of the walk: a part of a launch, in one process."""

    process: str
    file: str
    function: str
    first: str  # the first and the last call in the trace, "" without any
    last: str

    @property
    def rows(self) -> list[Hook]:
        """The rows of the process from the first call to the last."""
        if not self.first:
            return []
        first, last = (HOOKS.index(ROWS[call]) for call in (self.first, self.last))
        return [row for row in HOOKS[first : last + 1] if row.process == self.process]


def hops() -> list[Hop]:
    text = (ROOT / GUIDE).read_text(encoding="utf-8")
    found = []
    for process, file, function, calls in HOP.findall(text):
        first, *more = re.findall(r"`(\w+)`", calls) or [""]
        found.append(Hop(process, file, function, first, *(more or [first])))
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(found) == len(lines) - 1, "a line of the table that is no hop"
    return found


def defined(file: str) -> set[str]:
    """The functions of a file, methods with their class, and its constants."""
    text = (ROOT / file).read_text(encoding="utf-8")
    if file.endswith(".c"):
        return set(re.findall(r"^\w[\w *]*?(\w+)\(.*\)$", text, re.MULTILINE))
    names = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
            names |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.AsyncFunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize("hop", hops(), ids=lambda hop: f"{hop.process}: {hop.function}")
def test_function_of_a_hop_is_in_its_file(hop: Hop) -> None:
    assert hop.function in defined(hop.file)


def test_walk_passes_each_call_of_a_launch_once_and_in_the_order_of_each_process() -> None:
    walked = [row for hop in hops() for row in hop.rows]
    assert len(walked) == len(HOOKS)
    for process in {row.process for row in HOOKS}:
        passed = [row.call for row in walked if row.process == process]
        assert passed == [row.call for row in HOOKS if row.process == process]


def test_theory_of_operation_names_every_process_of_a_launch() -> None:
    told = launch.__doc__ or ""
    assert "Theory of operation" in told
    assert len(told.splitlines()) <= 45
    missing = [process for process in {row.process for row in HOOKS} if not re.search(rf"^.*\b{process}\b", told, re.M)]
    assert not missing
