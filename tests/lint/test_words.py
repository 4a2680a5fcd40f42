"""Docstrings say what they are about: a stranger reads them once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lint.sources import ROOT, modules

pytestmark = pytest.mark.lint

_MOST = 0.1  # of all docstrings
_LEANS = re.compile(
    r"\b(it|its|who|whom|whose|what|whatever|whoever|that|those|these|ones?|them|they|their|nobody|somebody|anybody|others?)\b",
    re.IGNORECASE,
)  # fmt: skip
_VAGUE = re.compile(r"\b(nobody|somebody|whoever|likewise)\b", re.IGNORECASE)
_MOST_VAGUE = 30
_WRITTEN = (".py", ".c", ".h", ".md", ".toml", ".service", ".conf")
_MOST_TERMS = 30
_WITH = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def first_lines(path: Path) -> Iterator[str]:
    """Yield the first line of each docstring of a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, _WITH) and (text := ast.get_docstring(node)):
            yield text.partition("\n")[0]


def test_few_docstrings_begin_with_a_line_that_leans_on_a_pronoun() -> None:
    lines = {path: list(first_lines(path)) for path in modules("nodectl", "plugins")}
    leaning = {str(path.relative_to(ROOT)): sum(map(bool, map(_LEANS.search, found))) for path, found in lines.items()}
    worst = sorted(leaning, key=lambda path: -leaning[path])[:5]
    assert sum(leaning.values()) <= _MOST * sum(map(len, lines.values())), {path: leaning[path] for path in worst}


def test_few_sentences_have_a_vague_subject() -> None:
    """The user `nobody` is none, so programs and documents may name it."""
    found = []
    for place in ("nodectl", "plugins", "docs", "systemd", "README.md", "HACKING.md", "NEWS.md", "CONTRIBUTING.md"):
        top = ROOT / place
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.suffix in _WRITTEN and "__pycache__" not in path.parts:
                text = path.read_text(encoding="utf-8")
                found += [f"{path.relative_to(ROOT)}: {word}" for word in _VAGUE.findall(text)]
    assert len(found) < _MOST_VAGUE, found


def test_the_glossary_is_short_and_has_the_processes_of_the_architecture() -> None:
    """The processes that a launch on one node goes through, and those of a cluster."""
    rows = re.findall(r"^\| ([a-zA-Z][^|]*?) \|", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    terms = {term for row in rows for term in row.split(", ")} - {"term"}
    assert len(rows) - 1 <= _MOST_TERMS
    way = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").partition("## The way of a launch")[2]
    table = way.partition("|---|")[2].partition("\n\n")[0]
    processes = set(re.findall(r"^\| ([a-z ]+) \|", table, re.MULTILINE))
    assert processes
    assert processes <= terms
