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
