"""Tables in plain text, for people. Pure."""

from collections.abc import Collection, Iterable, Sequence

from nodectl.render.words import printable

GAP = "  "
_CUT = "+"  # at the end of a line that goes on, as in sacct


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, right: Collection[str] = (), width: int | None = None
) -> list[str]:
    """The lines of a table with its header.

    Columns are as wide as their widest cell, those named in `right` flush right, the last one is not padded. With
    `width`, lines are cut to it.
    """
    cells = [list(header), *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        padded = [
            cell.rjust(wide) if name in right else cell.ljust(wide)
            for cell, name, wide in zip(row, header, widths, strict=True)
        ]
        lines.append(cut(GAP.join(padded).rstrip(), width))
    return lines


def cut(line: str, width: int | None) -> str:
    """The line, or as much of it as fits into `width` with a mark at its end; None cuts nothing."""
    return line if width is None or len(line) <= width else line[: width - 1] + _CUT


def pairs(rows: Iterable[tuple[str, object]]) -> list[str]:
    """Lines `name:  value`, the values in one column."""
    shown = [(f"{name}:", printable(str(value))) for name, value in rows]
    wide = max((len(name) for name, _ in shown), default=0)
    return [f"{name:{wide}}{GAP}{value}".rstrip() for name, value in shown]
