"""Column formats of squeue and sinfo: -o "%.18i %9P %T", -O "JobID:10,State:.12". Pure.

The caller gives the possible columns, each a `Field`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nodectl.client.command import Failed
from nodectl.model.words import printable

_LETTER = re.compile(r"%(\.?)([0-9]{0,4})(all|[A-Za-z])", re.ASCII)
_NAMED = re.compile(r"([A-Za-z_-]+)(?::(\.?)([0-9]{0,4})(.*))?", re.ASCII | re.DOTALL)
_WIDTH = 20  # of a column of -O without a width

Row = Mapping[str, Any]


class Field(NamedTuple):
    """The content of a column. `letter`: of -o, "" for none; `name`: of -O. `more`: needs the whole record."""

    letter: str
    name: str
    header: str
    text: Callable[[Row], object]
    more: bool = False


class Column(NamedTuple):
    """A field in a layout: width (0: as long as the text), flush right or left, and the text behind the column."""

    field: Field
    width: int
    right: bool
    behind: str

    def cell(self, text: str) -> str:
        """Return the text cut or padded to the width, with the text behind the column."""
        if not self.width:
            return text + self.behind
        cut = text[: self.width]
        return (cut.rjust(self.width) if self.right else cut.ljust(self.width)) + self.behind


class Layout(NamedTuple):
    """Columns, and the text before the first column."""

    before: str
    columns: Sequence[Column]

    def header(self) -> str:
        """Return the line of headers."""
        return self.before + "".join(column.cell(column.field.header) for column in self.columns)

    def line(self, row: Row) -> str:
        """Return the line of a row."""
        return self.before + "".join(column.cell(printable(str(column.field.text(row)))) for column in self.columns)

    def needs_more(self) -> bool:
        """Return True if a field needs the whole record."""
        return any(column.field.more for column in self.columns)


def by_letters(text: str, fields: Iterable[Field]) -> Layout:
    """Parse a format of -o. Raises Failed."""
    known = {field.letter: field for field in fields if field.letter}
    columns: list[Column] = []
    before, end = "", 0
    for found in _LETTER.finditer(text):
        between = text[end : found.start()]
        before, columns = _joined(before, columns, between)
        end = found.end()
        if found[3] == "all":
            columns += [Column(field, 0, False, "|") for field in known.values()]
            continue
        if found[3] not in known:
            raise Failed(f"Invalid format specification: {found[3]}")
        columns.append(Column(known[found[3]], int(found[2] or 0), bool(found[1]), ""))
    before, columns = _joined(before, columns, text[end:])
    if not columns:
        raise Failed(f"Format option '{text[:40]}' invalid")
    return Layout(before, columns)


def _joined(before: str, columns: list[Column], text: str) -> tuple[str, list[Column]]:
    """Put plain text behind the last column, or before the first column."""
    if not columns:
        return before + text, columns
    return before, [*columns[:-1], columns[-1]._replace(behind=columns[-1].behind + text)]


def by_names(text: str, fields: Iterable[Field]) -> Layout:
    """Parse a format of -O. Raises Failed."""
    known = {field.name.lower(): field for field in fields if field.name}
    columns = []
    for word in filter(None, map(str.strip, text.split(","))):
        found = _NAMED.fullmatch(word)
        field = known.get(found[1].lower()) if found else None
        if found is None or field is None:
            raise Failed(f"Invalid format specification: {word[:40]}")
        width = int(found[3]) if found[3] else _WIDTH
        columns.append(Column(field, width, bool(found[2]), found[4] or ""))
    if not columns:
        raise Failed(f"Format option '{text[:40]}' invalid")
    return Layout("", columns)


def lines_of(layout: Layout, rows: Iterable[Row], *, header: bool) -> Iterator[str]:
    """Yield the lines of the table."""
    if header:
        yield layout.header()
    for row in rows:
        yield layout.line(row)
