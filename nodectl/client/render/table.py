"""Tables in plain text, for people. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from nodectl.model.words import printable

GAP = "  "
_CUT = "+"  # at the end of a line that goes on, as in sacct


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Collection[str] = (),
    width: int | None = None,
    paint: Mapping[str, Callable[[str], str]] = MappingProxyType({}),
) -> list[str]:
    """Return the lines of a table with a header.

    Columns are as wide as their widest cell, the columns named in `right` flush right; the last column is not padded.
    With `width`, lines are cut to it. `paint` colours the cells of a column without changing their width.
    """
    cells = [list(header), *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for number, row in enumerate(cells):
        padded = [
            cell.rjust(wide) if name in right else cell.ljust(wide)
            for cell, name, wide in zip(row, header, widths, strict=True)
        ]
        line = cut(GAP.join(padded).rstrip(), width)
        lines.append(_painted(line, header, widths, paint) if paint and number else line)
    return lines


def _painted(line: str, header: Sequence[str], widths: Sequence[int], paint: Mapping[str, Callable[[str], str]]) -> str:
    begin, parts, done = 0, [], 0
    for name, wide in zip(header, widths, strict=True):
        end = min(begin + wide, len(line))
        if name in paint and begin < end:
            cell = line[begin:end]
            parts += [line[done:begin], paint[name](cell.rstrip()), cell[len(cell.rstrip()) :]]
            done = end
        begin += wide + len(GAP)
    return "".join([*parts, line[done:]])


def cut(line: str, width: int | None) -> str:
    """Return the line, or as much as fits into `width` with a mark at the end; None cuts nothing."""
    return line if width is None or len(line) <= width else line[: width - 1] + _CUT


def pairs(rows: Iterable[tuple[str, object]]) -> list[str]:
    """Return lines `name:  value`, the values aligned."""
    shown = [(f"{name}:", printable(str(value))) for name, value in rows]
    wide = max((len(name) for name, _ in shown), default=0)
    return [f"{name:{wide}}{GAP}{value}".rstrip() for name, value in shown]
