"""Writes the files that are made from tables of nodectl: `.venv/bin/python3 tests/generate.py`, after a change of one.

Each part that is made stands in a file with other text, which stays. `tests/unit/test_generated.py` fails if a part is
not what the tables give.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # the tables as they stand in the tree, not as they were installed

INTERFACE = "nodectl/model/wire/org.nodectl.varlink"
_TABLES = ("nodectl.model.fields", "nodectl.model.request_fields")
_OF_THE_INTERFACE = {"Request": "Request", "Part": "PartOfStep", "JobOptions": "JobOptions"}
_PLAIN = {bool: "bool", int: "int", float: "float", str: "string", object: "object"}
_COLUMNS = 140


def explanations() -> dict[tuple[str, str], str]:
    """The string below each field, by table and field."""
    found = {}
    for module in map(import_module, _TABLES):
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
    from nodectl.model.fields import names

    explained = explanations()
    found = []
    for name, kind in names(table).items():
        owner = next(one for one in table.__mro__ if name in one.__annotations__)
        field = getattr(table, name)
        comment = textwrap.wrap(explained.get((owner.__name__, name), ""), _COLUMNS - len("  # "))
        member = f"{name}: {'' if field.needed else '?'}{field.wire or varlink_type(kind)}"
        found.append("\n".join(f"  {line}" for line in (*(f"# {line}" for line in comment), member)))
    return ",\n".join(found)


def interface(text: str) -> str:
    """The interface file with the types that are made of tables."""
    tables = {name: table for module in map(import_module, _TABLES) for name, table in vars(module).items()}
    for name, table in _OF_THE_INTERFACE.items():
        before, begin, rest = text.partition(f"\ntype {name} (\n")
        _, end, after = rest.partition("\n)\n")
        assert begin, f"{INTERFACE}: no type {name}"
        text = before + begin + members(tables[table]) + end + after
    return text


FILES: dict[str, Callable[[str], str]] = {INTERFACE: interface}


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
