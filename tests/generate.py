"""Writes the files that are made from tables of nodectl: `.venv/bin/python3 tests/generate.py`, after a change of one.

Each part that is made stands in a file with other text, which stays. `tests/unit/test_generated.py` fails if a part is
not what the tables give.
"""

# ruff: noqa: E402  # the path first, then what is found there
from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # the tables as they stand in the tree, not as they were installed

from nodectl.client.job_parser import JobParser
from nodectl.client.run_options import NO_ARGUMENT, OPTIONS, layout_options, waiting_options
from nodectl.client.srun.options import FURTHER
from nodectl.model import fields, request_fields
from nodectl.model.fields import names
from nodectl.model.states import STATES
from nodectl.placement.binding.options import COUNT, FLAG, ROWS
from nodectl.service.config_file.all_keys import KEYS

INTERFACE = "nodectl/model/wire/org.nodectl.varlink"
_OF_THE_INTERFACE = {
    "Request": request_fields.LaunchRequest, "Part": request_fields.PartOfStep, "JobOptions": request_fields.JobOptions,
}  # fmt: skip
_PLAIN = {bool: "bool", int: "int", float: "float", str: "string", object: "object"}
COMMANDS = "docs/commands.md"
CONFIG = "nodectl/model/config/__init__.py"
_OF_CONFIG = 'in the order of `config_file/all_keys.py`.\n    """\n\n'
_COLUMNS = 140
# Options that belong to a terminal or to the command, or that the Python API has as arguments.
_OF_RUN = {"error", "export", "help", "input", "output", "pty", "trace", "verbose"}
_OF_SUBMIT = {"export", "get-user-env", "help", "parsable", "quiet", "test-only", "verbose", "wait", "wrap"}
# The type of a keyword: by the function that reads the option, by that function's result, by the option's argument in
# the help. Otherwise it is a text.
_OF_READERS = {
    **dict.fromkeys(("count", "one_job", "positive"), "int"),
    "_exclusive": "bool",
    "immediate": "bool | int",
    "mebibytes": "Amount",
    "seconds": "Duration",
    **dict.fromkeys(("moment", "yes_or_no"), "str"),
}
_OF_RESULTS: dict[Any, str] = {bool: "bool", int: "Text", list[str]: "Listed"}
_OF_ARGUMENTS = {
    **dict.fromkeys(("DIR", "FILE"), "str | os.PathLike[str]"),
    **dict.fromkeys(("LIMITS", "NODES", "gpu[:TYPE][:N]"), "Listed"),
    **dict.fromkeys(("GROUP", "MIN[-MAX]", "USER", "[TYPE:]N"), "Text"),
}
_KEYWORDS = '''"""The options of steps and jobs as keyword arguments: their names and types.

Made by tests/generate.py from the tables of the command's options: change those.
"""

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import TypedDict

Text = str | int
Listed = str | Sequence[str]
Amount = str | int  # of memory: MiB, or with K, M, G, T
Duration = str | int | timedelta  # minutes, or in srun's notations


class CommonOptions(TypedDict, total=False):
    """The options of steps and jobs alike; `nodectl run --help` explains each."""

{}


class StepOptions(CommonOptions, total=False):
    """The options of `run` and `start`.

    `plugin_options` holds a tuple for each option of a SPANK plugin: (plugin, option) or (plugin, option, argument).
    """

{}


class JobOptions(CommonOptions, total=False):
    """The options of `submit`. Patterns of file names: %j job, %A array, %a index, %x name, %u user."""

{}
'''


def explanations() -> dict[tuple[str, str], str]:
    """The string below each field, by table and field."""
    found = {}
    for module in (fields, request_fields):
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        for table in (node for node in tree.body if isinstance(node, ast.ClassDef)):
            for line, below in zip(table.body, table.body[1:], strict=False):
                match line, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        found[table.name, name] = " ".join(text.split())
    return found


def varlink_type(kind: Any) -> str:
    """A type of a table in the notation of Varlink."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind.__origin__ is list:
        return f"[]{varlink_type(kind.__args__[0])}"
    return f"[string]{varlink_type(kind.__args__[1])}"


def members(table: type) -> str:
    """The members of a table's type in the interface file, each below its explanation."""
    explained = explanations()
    found = []
    for name, kind in names(table).items():
        owner = next(one for one in table.__mro__ if name in one.__annotations__)
        field = getattr(table, name)
        comment = textwrap.wrap(explained.get((owner.__name__, name), ""), _COLUMNS - len("  # "))
        member = f"{name}: {'' if field.needed else '?'}{field.wire or varlink_type(kind)}"
        found.append("\n".join(f"  {line}" for line in (*(f"# {line}" for line in comment), member)))
    return ",\n".join(found)


def between(text: str, begin: str, end: str, body: str) -> str:
    """The text with `body` between the first `begin` and what follows it as `end`."""
    before, found, rest = text.partition(begin)
    _, ending, after = rest.partition(end)
    assert found and ending, f"there is no {begin!r}, or nothing ends behind it"  # noqa: PT018
    return before + begin + body + end + after


def interface(text: str) -> str:
    """The interface file with the types that are made of tables."""
    for name, table in _OF_THE_INTERFACE.items():
        text = between(text, f"\ntype {name} (\n", "\n)\n", members(table))
    return text


def keyword_type(option: Any, kind: str) -> str:
    """The type of an option as a keyword argument. `kind`: what the table of layout calls the option's values."""
    if option.many:
        return "Listed"
    if option.has_arg == NO_ARGUMENT or kind == FLAG:
        return "bool"
    of_reader = "int" if kind == COUNT else _OF_READERS.get(option.take.__name__)
    of_result = _OF_RESULTS.get(getattr(option.take, "__annotations__", {}).get("return"))
    return of_reader or of_result or _OF_ARGUMENTS.get(option.arginfo, "str")


def keywords(_: str) -> str:
    """The module with the keyword arguments of the Python API: those of both steps and jobs, of steps, of jobs."""
    parser = JobParser("submit")
    of_steps = (*OPTIONS, *layout_options(), *waiting_options(), *(one for one in FURTHER if one.long == "mpi"))
    of_jobs = (*parser.own, *parser.groups()["Of the job"], *parser.groups()["Layout"])
    kinds = {row[0]: row[4] for row in ROWS}

    def typed(options: Iterable[Any], others: set[str]) -> dict[str, str]:
        here = (one for one in options if one.long not in others)
        return {one.long.replace("-", "_"): keyword_type(one, kinds.get(one.long, "")) for one in here}

    steps = {**typed(of_steps, _OF_RUN), "plugin_options": "Sequence[tuple[str, ...]]"}
    jobs = typed(of_jobs, _OF_SUBMIT)
    both = steps.keys() & jobs.keys()

    def lines(types: dict[str, str], names: Iterable[str]) -> str:
        return "\n".join(f"    {name}: {types[name]}" for name in sorted(names))

    return _KEYWORDS.format(lines(steps, both), lines(steps, steps.keys() - both), lines(jobs, jobs.keys() - both))


def _in_a_table(text: str) -> str:
    return text.replace("|", "\\|")


def own_options(text: str) -> str:
    """The page of the commands with a table of the options of run that srun lacks."""
    rows = [
        f"| `--{option.long}{'=' * bool(option.arginfo)}{option.arginfo}` | {_in_a_table(option.help)} |"
        for option in OPTIONS
        if option.ours
    ]
    table = "\n".join(("| option | meaning |", "|---|---|", *rows))
    return between(text, " and nodectl's own:\n\n", "\n\n", table)


def configuration(text: str) -> str:
    """The class of the configuration with the type of each key: what its parser returns."""
    lines: dict[str, list[str]] = {}  # by section
    for key in KEYS:
        of_section = lines.setdefault(key.section, [f"    # {key.section}"])
        of_section.append(f"    {key.name}: {key.parser.read.__annotations__['return']}")
    return between(text, _OF_CONFIG, "\n\n    __slots__", "\n".join(chain(*lines.values())))


def schema(text: str) -> str:
    """The schema with all states where it has some of them, by a list that begins with the first one."""
    states = r",\1".join(f'"{state}"' for state in STATES)
    made, count = re.subn(rf'(?<="enum": \[)(\n +)"{STATES[0]}",[^]]*"(?=\n)', rf"\1{states}", text)
    assert count, "there are no states"
    return made


FILES: dict[str, Callable[[str], str]] = {
    INTERFACE: interface, "nodectl/client/api/keywords.py": keywords, COMMANDS: own_options, CONFIG: configuration,
    **{f"nodectl/model/schemas/{name}.json": schema for name in ("acct", "explain", "ps", "queue", "show")},
}  # fmt: skip


def main() -> None:
    """Write every file that has changed, and name it."""
    for name, made in FILES.items():
        path = ROOT / name
        before = path.read_text(encoding="utf-8")
        after = made(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(name)


if __name__ == "__main__":
    main()
