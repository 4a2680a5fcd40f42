"""Pages of ended steps and jobs for accounting, newest end first, and of unfinished jobs.

A page costs the event loop a bounded time, however long the history is: it reads along an index, up to a limit of rows
and characters. The position of the next page is a text that the caller hands back. It is a position in the index, so
that rows added or forgotten meanwhile move nothing.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nodectl.service.daemon.history.store import Store

_ROOM = 1 << 18  # characters of records in one page
_MOST = 1000  # rows
_MOST_QUESTIONS = 200  # queries, one for each job: thousands of jobs may have no rows
_OPEN, _ENDED, _NAMED = "open", "ended", "named"
_LATEST = 1e300


class BadPosition(ValueError):
    """Raised for a position never handed out."""


class RecordSelection(NamedTuple):
    """A selection by user (None: all), by `jobs` (empty: all), and by a time of end from `since` on."""

    uid: int | None = None
    jobs: Sequence[int] = ()
    since: float = 0.0


class RecordPage(NamedTuple):
    """A page. `rows` are the columns asked for; `next` is the position of the next page, "" for none."""

    rows: list[tuple[str, ...]]
    next: str


class _Table(NamedTuple):
    """A table to read.

    `columns` are the columns read. `of_job` are the conditions that find a job's rows, in the order of `order`, with
    one index each.
    """

    name: str
    columns: str
    of_job: tuple[str, ...]
    order: str


_STEPS = _Table("step", "record", ("job = :job",), "step, restart")
_JOBS = _Table("job", "record, resources", ("id = :job", "array = :job AND id != :job"), "id, restart")


def steps(store: Store, wanted: RecordSelection, position: str = "") -> RecordPage:
    """Return records of ended steps. Raises BadPosition, sqlite3.Error."""
    return _page(store, _STEPS, wanted, position or (_NAMED if wanted.jobs else _ENDED))


def jobs(store: Store, wanted: RecordSelection, position: str = "") -> RecordPage:
    """Return records and resources of jobs, unfinished jobs first. A number also selects the tasks of an array.

    Raises BadPosition, sqlite3.Error.
    """
    return _page(store, _JOBS, wanted, position or (_NAMED if wanted.jobs else _OPEN))


def _page(store: Store, table: _Table, wanted: RecordSelection, position: str) -> RecordPage:
    phase, _, place = position.partition(" ")
    try:
        numbers = [float(word) for word in place.split()]
    except ValueError:
        raise BadPosition(position) from None
    if not all(map(math.isfinite, numbers)):
        raise BadPosition(position)
    if phase == _NAMED and wanted.jobs and len(numbers) in (0, 3):
        return _of_named(store, table, wanted, numbers or [0, -1, -1])
    if phase == _OPEN and table is _JOBS and not wanted.jobs and len(numbers) in (0, 1):
        return _of_open(store, wanted, numbers[0] if numbers else 0)
    if phase == _ENDED and not wanted.jobs and len(numbers) in (0, 2):
        return _of_ended(store, table, wanted, numbers or [_LATEST, 0])
    raise BadPosition(position)


def _of_ended(store: Store, table: _Table, wanted: RecordSelection, after: Sequence[float]) -> RecordPage:
    whose = "uid = :uid AND " if wanted.uid is not None else ""
    statement = (
        f"SELECT ended, rowid, {table.columns} FROM {table.name} "  # noqa: S608  # all of it is ours
        f"WHERE {whose}ended > 0 AND ended >= :since AND (ended < :ended OR (ended = :ended AND rowid < :row)) "
        f"ORDER BY ended DESC, rowid DESC LIMIT {_MOST + 1}"
    )
    values = {"uid": wanted.uid, "since": wanted.since, "ended": after[0], "row": after[1]}
    rows, last = _take(store.query(statement, values), 2)
    return RecordPage(rows, "" if last is None else f"{_ENDED} {last[0]!r} {last[1]}")


def _of_open(store: Store, wanted: RecordSelection, after: float) -> RecordPage:
    whose = "uid = :uid AND " if wanted.uid is not None else ""
    statement = (
        f"SELECT rowid, {_JOBS.columns} FROM job WHERE {whose}ended = 0 AND rowid > :row "  # noqa: S608
        f"ORDER BY rowid LIMIT {_MOST + 1}"
    )
    rows, last = _take(store.query(statement, {"uid": wanted.uid, "row": after}), 1)
    return RecordPage(rows, _ENDED if last is None else f"{_OPEN} {last[0]}")


def _of_named(store: Store, table: _Table, wanted: RecordSelection, after: Sequence[float]) -> RecordPage:
    """Read the named jobs in turn until the page is full."""
    place, first, second = after
    rows: list[tuple[str, ...]] = []
    room = _ROOM
    questions = [(job, of_job) for job in wanted.jobs for of_job in table.of_job]
    whose = " AND uid = :uid" if wanted.uid is not None else ""
    begin = max(0, int(place))
    for number in range(begin, len(questions)):
        job, of_job = questions[number]
        statement = (
            f"SELECT {table.order}, {table.columns} FROM {table.name} "  # noqa: S608
            f"WHERE {of_job}{whose} AND ({table.order}) > (:first, :second) "
            f"ORDER BY {table.order} LIMIT {_MOST + 1}"
        )
        values = {"job": job, "uid": wanted.uid, "first": first, "second": second}
        found, last = _take(store.query(statement, values), 2, room)
        rows += found
        room -= sum(len(text) for row in found for text in row)
        if last is not None:
            return RecordPage(rows, f"{_NAMED} {number} {last[0]} {last[1]}")
        is_full = room <= 0 or len(rows) > _MOST or number - begin >= _MOST_QUESTIONS
        if is_full and number + 1 < len(questions):
            return RecordPage(rows, f"{_NAMED} {number + 1} -1 -1")
        first = second = -1
    return RecordPage(rows, "")


def _take(
    cursor: Iterable[tuple[object, ...]], keys: int, room: int = _ROOM
) -> tuple[list[tuple[str, ...]], tuple[object, ...] | None]:
    """Return the rows without keys, and the keys of the last row if more rows follow."""
    rows: list[tuple[str, ...]] = []
    last: tuple[object, ...] | None = None
    for row in cursor:
        if room <= 0 or len(rows) >= _MOST:
            return rows, last
        last = row[:keys]
        texts = tuple(map(str, row[keys:]))
        room -= sum(map(len, texts))
        rows.append(texts)
    return rows, None
