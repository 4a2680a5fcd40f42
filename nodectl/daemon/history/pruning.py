"""What the history forgets: the oldest steps of users who have more than their share.

The share is the largest one that keeps all users together within the limit. A user who has less than a share loses
nothing. Age is the order in which steps were recorded, never a clock, which may be set back. The database itself counts
what each user has (`schema.py`). Used by `Store`, within its transactions.
"""

import sqlite3
from collections.abc import Iterable

_SLACK = 256  # steps: forgetting them one by one would cost more
_OF_THE_LIMIT = 16


def prune(db: sqlite3.Connection, most: int, most_bytes: int) -> None:
    """Forgets what is over the limits, once it is enough to be worth it. Raises sqlite3.Error."""
    kept = db.execute("SELECT uid, steps, bytes FROM kept WHERE steps > 0").fetchall()
    steps, size = (sum(row[place] for row in kept) for place in (1, 2))
    if steps <= most + min(_SLACK, most // _OF_THE_LIMIT) and size <= most_bytes + most_bytes // _OF_THE_LIMIT:
        return
    share, share_of_bytes = fair((row[1] for row in kept), most), fair((row[2] for row in kept), most_bytes)
    for uid, steps, size in kept:
        if steps > share or size > share_of_bytes:
            _forget(db, uid, steps - share, size - share_of_bytes)


def fair(sizes: Iterable[int], most: int) -> int:
    """The largest share of `most` for which everybody can have what they need up to that share."""
    share, rest, ordered = 0, most, sorted(sizes)
    for place, size in enumerate(ordered):
        share = rest // (len(ordered) - place)
        if size > share:
            return share
        rest -= size
    return ordered[-1] if ordered else 0


def _forget(db: sqlite3.Connection, uid: int, steps: int, size: int) -> None:
    """At least so many steps and bytes of the user's, as far as there are."""
    last = None
    statement = "SELECT rowid, LENGTH(record) + LENGTH(trace) FROM step WHERE uid = ? ORDER BY rowid"
    for rowid, of_step in db.execute(statement, (uid,)):
        if steps <= 0 and size <= 0:
            break
        last, steps, size = rowid, steps - 1, size - of_step
    if last is not None:
        db.execute("DELETE FROM step WHERE uid = ? AND rowid <= ?", (uid, last))
