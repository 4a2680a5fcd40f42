"""Plain text for people: columns, durations, and what must not reach a terminal as it is.

Pure but for `put` and `terminal_width`. Names of steps, commands and plugins come from users: whatever is not printable
is shown as an escape, so that nobody's step name moves another's cursor.
"""

import io
import os
import sys
from collections.abc import Collection, Iterable, Sequence

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


def printable(text: str) -> str:
    """The text on one line, with escapes for control characters and for bytes that are no UTF-8."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)


def duration(seconds: float) -> str:
    """A time as [DAYS-]HH:MM:SS, whole seconds, never negative."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def terminal_width() -> int | None:
    """The columns of the terminal that standard output is; None where it is a file or a pipe: nothing is cut there."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):  # ValueError: an output without a descriptor
        return None


def put(lines: Iterable[str]) -> None:
    """Prints the lines; what the locale cannot write becomes an escape."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    for line in lines:
        print(line)
