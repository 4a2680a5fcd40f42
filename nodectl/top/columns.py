"""The columns of the table: what they show, by what they sort, which fit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nodectl.live.view import Row
from nodectl.model.value_class import dataclass
from nodectl.render.words import duration

GAP = 2  # characters from one column to the next
_UNITS = "KMGTP"
_SHORT = {
    "PENDING": "waits", "RUNNING": "runs", "SUSPENDED": "stopped", "COMPLETING": "ends", "CONFIGURING": "begins",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """`most` characters, of which a `narrow` terminal leaves fewer; 0 takes what is left. `worth` orders which are left
    out where they do not fit: the least first.
    """

    title: str
    most: int
    worth: int
    cell: Callable[[Row], str]
    order: Callable[[Row], Any]
    right: bool = False
    narrow: int = 0


def amount(count: float | None) -> str:
    """Bytes in at most five characters: 950K, 1.5G; "-" for what is not known."""
    if count is None:
        return "-"
    for unit in _UNITS:
        count /= 1024
        if count < 1000:
            return f"{count:.1f}{unit}" if count < 9.95 else f"{count:.0f}{unit}"
    return f"{count:.0f}{_UNITS[-1]}"


def percent(share: float | None) -> str:
    """A number of CPUs in percent of one."""
    return "-" if share is None else f"{100 * share:.0f}"


def pressure(row: Row) -> str:
    """The resource that it waits for the most, and for how much of the time: cpu 12."""
    if not row.pressure:
        return "-"
    name = max(row.pressure, key=lambda name: row.pressure[name])
    share = row.pressure[name]
    return f"{name[:3]} {share:.0f}" if share >= 0.5 else "0"


def transferred(row: Row) -> float | None:
    """Bytes read and written a second."""
    return None if row.read is None or row.written is None else row.read + row.written


def _number(value: float | None) -> float:
    return -1.0 if value is None else value


def state(row: Row) -> str:
    """The state in one word."""
    return _SHORT.get(row.state, row.state.lower())


COLUMNS = (
    Column("", 1, 9, lambda row: row.key, lambda row: (not row.key, row.key)),
    Column("STEP", 12, 9, lambda row: row.name, lambda row: (row.job, -1 if row.step is None else row.step)),
    Column("USER", 12, 8, lambda row: row.user, lambda row: row.user, narrow=8),
    Column("NAME", 20, 7, lambda row: row.title, lambda row: row.title, narrow=9),
    Column("STATE", 9, 8, state, lambda row: row.state),
    Column("TIME", 11, 6, lambda row: "-" if row.waits else duration(row.elapsed), lambda row: row.elapsed, True),
    Column("TASKS", 5, 3, lambda row: str(row.ntasks), lambda row: row.ntasks, True),
    Column("CPUS", 5, 7, lambda row: str(row.cpus), lambda row: row.cpus, True),
    Column("CPU%", 6, 9, lambda row: percent(row.cpu), lambda row: _number(row.cpu), True),
    Column("MEM", 5, 9, lambda row: amount(row.memory), lambda row: _number(row.memory), True),
    Column("LIMIT", 5, 2, lambda row: amount(row.memory_limit or None), lambda row: row.memory_limit, True),
    Column("STALL%", 7, 6, pressure, lambda row: max(row.pressure.values(), default=-1.0), True),
    Column("I/O/s", 5, 5, lambda row: amount(transferred(row)), lambda row: _number(transferred(row)), True),
    Column("DEVICES", 16, 4, lambda row: row.gres or "-", lambda row: row.gres),
    Column("ON CPUS", 16, 1, lambda row: row.cpu_list or "-", lambda row: row.cpu_list),
    Column("COMMAND OR REASON", 0, 5, lambda row: row.reason if row.waits else row.command, lambda row: row.command),
)
TITLES = tuple(column.title for column in COLUMNS)
# Columns of which the greatest is looked for, not the first.
DESCENDING = {"TIME", "TASKS", "CPUS", "CPU%", "MEM", "LIMIT", "STALL%", "I/O/s"}
_IF_ANY = ("DEVICES", "LIMIT", "I/O/s")  # shown where some row has something to say there
_LEAST_LAST = 12
_NARROW = 100


def fitting(rows: Iterable[Row], width: int, by: str) -> list[tuple[Column, int]]:
    """The columns that fit, with their widths; that `by` which rows are sorted has room for a mark in its title."""
    rows = list(rows)
    wide: dict[Column, int] = {}
    for column in COLUMNS:
        cells = [column.cell(row) for row in rows]
        if column.title in _IF_ANY and column.title != by and all(cell == "-" for cell in cells):
            continue
        title = len(column.title) + (column.title == by)
        most = column.narrow if column.narrow and width < _NARROW else column.most
        wide[column] = max(title, min(max(map(len, cells), default=0), most)) if most else 0
    while len(wide) > 1:
        left = width - sum(wide.values()) - GAP * len(wide)
        last = next((column for column in wide if not column.most), None)
        if left >= (_LEAST_LAST if last else 0):
            if last:
                wide[last] = left
            break
        # Of equal worth the later one goes.
        del wide[min(reversed(wide), key=lambda column: column.worth)]
    return list(wide.items())


def arranged(rows: Sequence[Row], title: str, words: str, *, turned: bool = False) -> list[Row]:
    """Those that have the words somewhere, in the order of the column; what waits stands behind what runs."""
    column = COLUMNS[TITLES.index(title)]
    found = [row for row in rows if matches(row, words)]
    found.sort(key=COLUMNS[1].order)
    found.sort(key=column.order, reverse=(title in DESCENDING) != turned)
    return sorted(found, key=lambda row: row.waits)


def matches(row: Row, words: str) -> bool:
    """Whether each word is found in what the row says: a user, a name, a state, a job."""
    said = " ".join((row.name, row.user, row.title, state(row), row.state, row.command)).lower()
    return all(word in said for word in words.lower().split())
