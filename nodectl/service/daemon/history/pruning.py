"""Prunes the history: forgets the oldest steps and jobs of users above a fair share, and expired records.

The share is the largest one that keeps all users together within the limit. A user who has less than a share loses
nothing. Age is the order of recording, never a clock, which may be set back; only days are counted by the clock. The
database itself counts the records and bytes of each user (`schema.py`). Used by `Store`, within its transactions.
"""

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

_SLACK = 256  # records: forgetting them one by one would cost more
_OF_THE_LIMIT = 16
_MOST_AT_ONCE = 500  # of those that are too old
_MOST_BYTES = 1 << 20  # that a transaction forgets of each table: the event loop waits meanwhile
_DAY = 86_400
_OLD = "ended > 0 AND ended < ?"


class HistoryLimits(NamedTuple):
    """The limits for steps and, separately, for jobs: number of records, bytes, and days (0: for ever)."""

    records: int
    most_bytes: int
    days: int = 0


class _Kind(NamedTuple):
    """A table, the table of counts by user, the SQL for a row's bytes, and a condition on rows."""

    table: str
    kept: str
    size: str
    which: str


_KINDS = (
    _Kind("step", "kept", "LENGTH(record) + LENGTH(trace)", ""),
    _Kind("job", "kept_jobs", "LENGTH(record) + LENGTH(resources)", " AND ended > 0"),
)


def prune(db: sqlite3.Connection, limits: HistoryLimits, now: float) -> None:
    """Forget rows above the limits, once the excess is worth the cost, and some expired rows. Raises sqlite3.Error."""
    for kind in _KINDS:
        _keep_shares(db, kind, limits)
        if limits.days:
            _forget_old(db, kind, now - limits.days * _DAY)


def has_old(db: sqlite3.Connection, limits: HistoryLimits, now: float) -> bool:
    """Return True if expired rows exist. Raises sqlite3.Error."""
    oldest = now - limits.days * _DAY
    return bool(limits.days) and any(
        db.execute(f"SELECT 1 FROM {kind.table} WHERE {_OLD} LIMIT 1", (oldest,)).fetchone()  # noqa: S608
        for kind in _KINDS
    )


def _keep_shares(db: sqlite3.Connection, kind: _Kind, limits: HistoryLimits) -> None:
    kept = db.execute(f"SELECT * FROM {kind.kept}").fetchall()  # noqa: S608  # all of it is ours
    records, size = (sum(row[place] for row in kept) for place in (1, 2))
    most, most_bytes = limits.records, limits.most_bytes
    slack = most_bytes // _OF_THE_LIMIT
    if records <= most + min(_SLACK, most // _OF_THE_LIMIT) and size <= most_bytes + slack:
        return
    share, share_of_bytes = fair((row[1] for row in kept), most), fair((row[2] for row in kept), most_bytes)
    left = max(_MOST_BYTES, size - most_bytes - slack)
    for uid, records, size in kept:
        if left > 0 and (records > share or size > share_of_bytes):
            left -= _forget(db, kind, uid, records - share, size - share_of_bytes, left)


def fair(sizes: Iterable[int], most: int) -> int:
    """Return the largest share at which sum(min(size, share)) is within `most`, up to the largest size."""
    share, rest, ordered = 0, most, sorted(sizes)
    for place, size in enumerate(ordered):
        share = rest // (len(ordered) - place)
        if size > share:
            return share
        rest -= size
    return ordered[-1] if ordered else 0


def _forget_old(db: sqlite3.Connection, kind: _Kind, before: float) -> None:
    """Delete some rows with an end before the time."""
    statement = f"SELECT rowid, {kind.size} FROM {kind.table} WHERE {_OLD} ORDER BY ended LIMIT {_MOST_AT_ONCE}"  # noqa: S608
    left, found = _MOST_BYTES, []
    for rowid, of_record in db.execute(statement, (before,)):
        found.append((rowid,))
        left -= of_record
        if left <= 0:
            break
    db.executemany(f"DELETE FROM {kind.table} WHERE rowid = ?", found)  # noqa: S608


def _forget(db: sqlite3.Connection, kind: _Kind, uid: int, records: int, size: int, most: int) -> int:
    """Delete the user's oldest rows: `records` rows and `size` bytes at least. Return the bytes deleted.

    There may be fewer. The work stops soon after `most` bytes; the next transaction goes on.
    """
    last, done = None, 0
    statement = f"SELECT rowid, {kind.size} FROM {kind.table} WHERE uid = ?{kind.which} ORDER BY rowid"  # noqa: S608
    for rowid, of_record in db.execute(statement, (uid,)):
        if (records <= 0 and size <= 0) or done >= most:
            break
        last, records, size, done = rowid, records - 1, size - of_record, done + of_record
    if last is not None:
        db.execute(f"DELETE FROM {kind.table} WHERE uid = ?{kind.which} AND rowid <= ?", (uid, last))  # noqa: S608
    return done
