"""The columns of the table: contents, sort order, choice by width. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nodectl.model.number import whole
from nodectl.model.states import COMPLETING, CONFIGURING, PENDING, RUNNING, SUSPENDED
from nodectl.model.words import duration
from nodectl.view.live.view import Row

GAP = 2  # characters from one column to the next
_LAST = 2**32 - 1  # of jobs and tasks
_UNITS = "KMGTP"
_SHORT = {
    PENDING: "waits", RUNNING: "runs", SUSPENDED: "stopped", COMPLETING: "ends", CONFIGURING: "begins",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table.

    It has `most` characters, fewer (`narrow`) on a narrow terminal; 0 takes the rest of the line. Where columns do not
    fit, the column of the least `worth` is left out first.
    """

    title: str
    most: int
    worth: int
    cell: Callable[[Row], str]
    order: Callable[[Row], Any]
    right: bool = False
    narrow: int = 0


def amount(count: float | None) -> str:
    """Return bytes in at most five characters: 950K, 1.5G; "-" for unknown."""
    if count is None:
        return "-"
    for unit in _UNITS:
        count /= 1024
        if count < 1000:
            return f"{count:.1f}{unit}" if count < 9.95 else f"{count:.0f}{unit}"
    return f"{count:.0f}{_UNITS[-1]}"


def percent(share: float | None) -> str:
    """Return a number of CPUs in percent of a CPU."""
    return "-" if share is None else f"{100 * share:.0f}"


def pressure(row: Row) -> str:
    """Return the resource with the longest waits, and the share of time: cpu 12."""
    if not row.pressure:
        return "-"
    name = max(row.pressure, key=lambda name: row.pressure[name])
    share = row.pressure[name]
    return f"{name[:3]} {share:.0f}" if share >= 0.5 else "0"


def transferred(row: Row) -> float | None:
    """Return bytes read and written a second."""
    return None if row.read is None or row.written is None else row.read + row.written


def _number(value: float | None) -> float:
    return -1.0 if value is None else value


def _place(row: Row) -> tuple[int, int, int]:
    """Return the place of a step by its name: job or array, task of the array, step. Waiting tasks are behind."""
    job, underscore, task = row.name.partition(".")[0].partition("_")
    index = whole(task, _LAST) if underscore else 0
    return (whole(job, _LAST) or row.job, _LAST if index is None else index, -1 if row.step is None else row.step)


def state(row: Row) -> str:
    """Return the state in a word."""
    return _SHORT.get(row.state, row.state.lower())


def last_words(row: Row) -> str:
    """Return why a job waits, without the scheduler's own word; or what runs, and before it how far a bulk is."""
    if row.waits:
        return row.reason.partition(": ")[2] or row.reason
    return "; ".join(filter(None, (row.reason, row.command)))


COLUMNS = (
    Column("", 1, 9, lambda row: row.key, lambda row: (not row.key, row.key)),
    Column("STEP", 12, 10, lambda row: row.name, _place),
    Column("STATE", 9, 9, state, lambda row: row.state),
    Column("USER", 12, 8, lambda row: row.user, lambda row: row.user, narrow=8),
    Column("NAME", 20, 7, lambda row: row.title, lambda row: row.title, narrow=9),
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
    Column("COMMAND OR REASON", 0, 5, last_words, lambda row: row.command),
)
TITLES = tuple(column.title for column in COLUMNS)
# Columns sorted with the greatest value first.
DESCENDING = {"TIME", "TASKS", "CPUS", "CPU%", "MEM", "LIMIT", "STALL%", "I/O/s"}
_ONLY_OF_STEPS = ("CPU%", "MEM")  # before the second look at a step, its CPU time a second is not known yet
_LEAST_LAST, _ENOUGH_LAST = 12, 26  # of the last column: what it gets anyway, and what others must leave to reasons
_ENOUGH_OF_COMMAND = 40  # of the last column: more than this goes to other cells that are cut
_NARROW = 100


def fitting(rows: Iterable[Row], width: int, by: str) -> list[tuple[Column, int]]:
    """Return the fitting columns, with widths.

    The column `by`, by which rows are sorted, has room for a mark in the title.
    """
    rows = list(rows)
    reason = max((len(last_words(row)) for row in rows if row.waits), default=0)
    least = max(_LEAST_LAST, min(reason, _ENOUGH_LAST))
    steps = any(row.is_step for row in rows)
    wide: dict[Column, int] = {}
    for column in COLUMNS:
        cells = [column.cell(row) for row in rows]
        is_empty = all(cell in ("-", "") for cell in cells) and not (steps and column.title in _ONLY_OF_STEPS)
        if is_empty and rows and column.title and column.title != by:
            continue
        title = len(column.title) + (column.title == by)
        most = column.narrow if column.narrow and width < _NARROW else column.most
        wide[column] = max(title, min(max(map(len, cells), default=0), most)) if most else 0
    while len(wide) > 1:
        left = width - sum(wide.values()) - GAP * len(wide)
        last = next((column for column in wide if not column.most), None)
        if left >= (least if last else 0):
            if last:
                wide[last] = left
                _widen(wide, last, rows)
            break
        # Of equal worth, the later column is left out. A reason is worth more than a command.
        del wide[min(reversed(wide), key=lambda column: 9 if column is last and reason else column.worth)]
    return list(wide.items())


def _widen(wide: dict[Column, int], last: Column, rows: Sequence[Row]) -> None:
    """Give the room that the last column does not need to the columns whose cells are cut, in their order.

    The last column needs its reasons, but no more than the beginning of a long command.
    """
    reasons = [len(last_words(row)) for row in rows if row.waits]
    commands = [min(len(last_words(row)), _ENOUGH_OF_COMMAND) for row in rows if not row.waits]
    spare = wide[last] - max((*reasons, *commands), default=0)
    for column, width in list(wide.items()):
        more = min(max((len(column.cell(row)) for row in rows), default=0) - width, spare)
        if column is not last and more > 0:
            wide[column] += more
            wide[last] -= more
            spare -= more


def arranged(rows: Sequence[Row], title: str, words: str, *, turned: bool = False) -> list[Row]:
    """Return the rows with the words, in the order of the column; waiting rows come after running rows."""
    column = COLUMNS[TITLES.index(title)]
    found = [row for row in rows if matches(row, words)]
    found.sort(key=COLUMNS[1].order)
    found.sort(key=column.order, reverse=(title in DESCENDING) != turned)
    return sorted(found, key=lambda row: row.waits)


def matches(row: Row, words: str) -> bool:
    """Return True if each word occurs in the row: in user, name, state or job."""
    said = " ".join((row.name, row.user, row.title, state(row), row.state, row.command)).lower()
    return all(word in said for word in words.lower().split())
