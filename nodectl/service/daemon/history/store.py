"""The history: an SQLite file (WAL) of the node's ended steps and jobs, and the counter of job ids.

The file holds the record and the trace of each ended step, notes on steps that have run for a while (the record that
the step gets if the machine is reset), the directories of containers, and jobs (`job_store.py`).

Only the daemon writes the file. Several nodes may share one file (private nodes of root do), so job ids come from a
transaction, not from memory. Ended steps are written in batches. Until then their files wait in the steps directory,
which survives the daemon.
"""

import contextlib
import functools
import itertools
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from nodectl.model.step_number import BATCH
from nodectl.model.wire.lean_json import dumps
from nodectl.service.daemon.history import pruning, schema
from nodectl.service.daemon.history.connection import HistoryConnection, locked_for, why_unusable
from nodectl.service.daemon.history.counters import Counters
from nodectl.service.daemon.history.decoding import decoded, readable

_DRAW = (
    "INSERT INTO counter VALUES ('job', :below + :count)"
    " ON CONFLICT (name) DO UPDATE SET value = MAX(value, :below) + :count RETURNING value"
)
_LEAVE_OUT = "INSERT INTO counter VALUES ('job', :job) ON CONFLICT (name) DO UPDATE SET value = MAX(value, :job)"
_AT_A_TIME = 16  # job ids, where jobs come in quick succession: so many are lost if the daemon is killed
_SOON = 1.0  # seconds
_OF_STEP = "SELECT {} FROM step WHERE job = ? AND step = ? ORDER BY restart DESC LIMIT 1"
# Rows which show that the job is this node's own: steps that are no parts of this user, and the job itself.
_NOT_PARTS = """
    SELECT 1 FROM (SELECT record FROM step WHERE job = :job UNION ALL SELECT record FROM running WHERE job = :job)
    WHERE json_extract(record, '$.uid') IS NOT :uid OR json_extract(record, '$.part') IS NULL
    UNION ALL SELECT 1 FROM job WHERE id = :job LIMIT 1
"""
_ROOM = 1 << 18  # characters of records in one reply: the event loop stands still while they are read and written
_LAST_JOB = 0xFFFFFF00
_CACHE_KIB = 512  # of the file, which the kernel has in memory anyway
_TASKS_AT_A_TIME = 16
# Of zlib, for traces: most have a few KiB, and memory for larger ones costs more than they do.
_QUICKLY, _WINDOW, _MEMORY = 1, 13, 5


class StoreError(Exception):
    """Raised when the history cannot be used; str() names the file."""


class Ended(NamedTuple):
    """The record and the raw trace of an ended step."""

    record: Mapping[str, object]
    trace: bytes


class Beside(Protocol):
    """A participant in the next transaction of the store, whichever step or job causes the transaction."""

    def write(self, db: sqlite3.Connection) -> None:
        """Write into the open transaction. Raises sqlite3.Error."""

    def written(self) -> None:
        """Forget the queued writes: the transaction is committed."""


class Store:
    """The open history file. `beside` lists the objects which write into the same transactions."""

    def __init__(
        self,
        path: str,
        limit: int,
        most_bytes: int = 1 << 30,
        tell: Callable[[Mapping[str, object]], None] | None = None,
        days: int = 0,
        least_job: int = 1,
    ) -> None:
        """Open or create the history at `path`. Raises StoreError.

        The history keeps `limit` steps and as many jobs, `most_bytes` bytes of each, for `days` days (0: for ever). It
        calls `tell` with each added record, and gives out no job id below `least_job`.
        """
        self.least_job = least_job
        self._limits = pruning.HistoryLimits(limit, most_bytes, days)
        self._tell = tell
        self.counters = Counters()
        self.beside: list[Beside] = []
        self._drawn: list[int] = []  # job ids that were drawn and not given out yet, the next one last
        self._drawn_at = -_SOON
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            self._db = HistoryConnection(path)
            os.chmod(path, 0o600)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
            self._db.execute("PRAGMA recursive_triggers=ON")  # a row that is replaced is one that is removed
            schema.prepare(self._db)
            self._containers: list[tuple[str, str]] = self._db.execute("SELECT plugin, base FROM container").fetchall()
        except sqlite3.Error as error:
            raise StoreError(why_unusable(path, error)) from error
        except (OSError, schema.UnknownVersion) as error:
            raise StoreError(f"{path}: {error}") from error

    def serve(self) -> None:
        """Shorten the wait for locks on the file: from now on users wait for the event loop."""
        self._db.be_quick()

    def must_wait(self) -> bool:
        """Return True if another process has locked the file and no job id was drawn in advance."""
        try:
            self.draw()
        except sqlite3.Error as error:
            return locked_for(error) is not None
        return False

    def draw(self) -> None:
        """Draw a job id unless a drawn id is left. Raises sqlite3.Error."""
        if not self._drawn:
            self._draw()

    def next_job(self) -> int:
        """Return a job id which no past or later job of this history has. Raises sqlite3.Error."""
        self.draw()
        return self._drawn.pop()

    @property
    def has_next_job(self) -> bool:
        """Whether the next job id needs no transaction."""
        return bool(self._drawn)

    def pass_over(self, job: int) -> None:
        """Exclude the id of a job which several nodes share from later draws. Raises sqlite3.Error."""
        if job <= _LAST_JOB:
            self._db.execute(_LEAVE_OUT, {"job": job})
            self._drawn = [drawn for drawn in self._drawn if drawn > job]

    def is_elsewheres(self, job: int, uid: int) -> bool:
        """Return True if the history knows the job only as this user's parts of steps over several nodes.

        Also True for an unknown job. Raises sqlite3.Error.
        """
        return self._db.execute(_NOT_PARTS, {"job": job, "uid": uid}).fetchone() is None

    def give_back(self, job: int) -> None:
        """Take back a drawn job id which no job used. The next job gets this id."""
        self._drawn.append(job)

    def draw_next_job(self) -> None:
        """Draw a job id in advance, because a launch should not wait for a transaction."""
        with contextlib.suppress(sqlite3.Error):  # the launch that needs it reports why there is none
            self.draw()

    def _draw(self) -> None:
        """Draw job ids, several at a time where jobs come in quick succession. Raises sqlite3.Error.

        After the last number the ids begin again at `least_job`, without the ids of known jobs. If `least_job` is above
        1, Slurm also numbers jobs that are recorded here, so the ids of known jobs are always left out.
        """
        now = time.monotonic()
        count = _AT_A_TIME if now - self._drawn_at < _SOON else 1
        self._drawn_at = now
        while not self._drawn:
            with self._db.explained():  # a row may fail that the statement has yet to bring
                values = {"count": count, "below": self.least_job - 1}
                latest = int(self._db.execute(_DRAW, values).fetchone()[0])
            for drawn in range(latest, latest - count, -1):
                job = (drawn - self.least_job) % (_LAST_JOB - self.least_job + 1) + self.least_job
                if (self.least_job == 1 and drawn <= _LAST_JOB) or not self._knows(job):
                    self._drawn.append(job)

    def _knows(self, job: int) -> bool:
        """Return True if the history has the job, or a step of the job, ended or running."""
        statement = "SELECT 1 FROM step WHERE job = :job UNION ALL SELECT 1 FROM running WHERE job = :job"
        statement += " UNION ALL SELECT 1 FROM job WHERE id = :job LIMIT 1"
        return self._db.execute(statement, {"job": job}).fetchone() is not None

    def add(self, steps: Sequence[Ended]) -> None:
        """Write ended steps in a single transaction. Steps already in the history stay unchanged."""
        rows = [
            (s.record["job"], s.record["step"], s.record["uid"], s.record["ended"], _text(s.record),
             _compressed(s.trace), s.record.get("restart", 0))
            for s in steps
        ]  # fmt: skip
        with self.transaction():
            self._db.executemany("INSERT OR IGNORE INTO step VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            self._db.executemany("DELETE FROM running WHERE job = ? AND step = ?", (row[:2] for row in rows))
        for step in steps:
            self.counters.add(step.record)
            if self._tell is not None:
                self._tell(step.record)

    def note(self, boot: str, records: Iterable[Mapping[str, object]]) -> None:
        """Write to the disk the records which running steps get if the machine is reset. Raises sqlite3.Error."""
        rows = [(record["job"], record["step"], boot, dumps(record)) for record in records]
        self._write_through("INSERT OR REPLACE INTO running VALUES (?, ?, ?, ?)", rows)

    def _write_through(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Write with fsync(2), which covers all earlier writes: the history never gives out a known job id again."""
        with self.transaction(through=True):
            self._db.executemany(statement, rows)

    @contextlib.contextmanager
    def transaction(self, *, through: bool = False) -> Iterator[None]:
        """Run the block and the writes of `beside` in a transaction. Raises sqlite3.Error.

        `through` waits for the disk.
        """
        if through:
            self._db.execute("PRAGMA synchronous=FULL")
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            for other in self.beside:
                other.write(self._db)
            pruning.prune(self._db, self._limits, time.time())
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk has ended it
                self._db.execute("ROLLBACK")
            raise
        finally:
            if through:
                self._db.execute("PRAGMA synchronous=NORMAL")
        for other in self.beside:
            other.written()

    def forget_old(self) -> bool:
        """Forget some steps and jobs older than the limit of days. Return True if more are left.

        Raises sqlite3.Error.
        """
        now = time.time()
        if not pruning.has_old(self._db, self._limits, now):
            return False
        with self.transaction():
            """Each one prunes."""
        return pruning.has_old(self._db, self._limits, now)

    def query(self, statement: str, values: Sequence[object] | Mapping[str, object] = ()) -> Iterator[Any]:
        """Yield the rows of a query. Raises sqlite3.Error."""
        with self._db.explained():
            yield from self._db.execute(statement, values)

    def record_lost(self, boot: str, known: Container[tuple[int, int]]) -> None:
        """Record steps noted by any node in an earlier boot as ended, except the steps in `known`."""
        rows = self._db.execute("SELECT job, step, record FROM running WHERE boot != ?", (boot,))
        lost = [row for row in rows if row[:2] not in known]
        ended = list(readable(lost, lambda row: decoded(row[2], f"step {row[0]}.{row[1]}")))
        if ended:
            self.add([Ended({**record, "ended": time.time()}, b"") for record in ended])

    def note_containers(self, plugin: str, base: str) -> None:
        """Note on the disk the directory `base`, below which containers of the plugin lie. Raises sqlite3.Error."""
        if (plugin, base) not in self._containers:
            self._write_through("INSERT OR IGNORE INTO container VALUES (?, ?)", [(plugin, base)])
            self._containers.append((plugin, base))

    def forget_containers(self, plugin: str, base: str) -> None:
        """Delete the note on `base`, where no containers of the plugin are left or will come. Raises sqlite3.Error."""
        self._db.execute("DELETE FROM container WHERE plugin = ? AND base = ?", (plugin, base))
        self._containers = [place for place in self._containers if place != (plugin, base)]

    def containers(self) -> list[tuple[str, str]]:
        """Return the (plugin, base) pairs noted and not forgotten, including notes of earlier daemons."""
        return list(self._containers)

    def record(self, job: int, step: int) -> Mapping[str, object] | None:
        """Return the record of the step's latest run, or None for a step not in the history. Raises sqlite3.Error."""
        row = self._db.execute(_OF_STEP.format("record"), (job, step)).fetchone()
        return None if row is None else decoded(row[0], f"step {job}.{step}")

    def last_step(self, job: int, restart: int) -> int:
        """Return the highest number of an ended step in this run of a job, or -1 for none.

        Named steps have no number.
        """
        statement = "SELECT MAX(step) FROM step WHERE job = ? AND step < ? AND restart = ?"
        found = self._db.execute(statement, (job, BATCH, restart)).fetchone()[0]
        return -1 if found is None else int(found)

    def trace(self, job: int, step: int) -> bytes | None:
        """Return the trace of the step's latest run, line by line, or None for a step not in the history."""
        row = self._db.execute(_OF_STEP.format("trace"), (job, step)).fetchone()
        return None if row is None else zlib.decompress(row[0])

    def latest(self, uid: int | None, most: int, skip: int = 0) -> tuple[list[Mapping[str, object]], bool]:
        """Return the records of the steps added last, newest first, and whether the reply left some out.

        The first `skip` records are left out. `uid` selects one user's steps; None selects all. The second value is
        True if one reply has no room for all records.
        """
        where, values = ("WHERE uid = ?", [uid]) if uid is not None else ("", [])
        statement = f"SELECT job, step, record FROM step {where} ORDER BY rowid DESC LIMIT ? OFFSET ?"  # noqa: S608
        found: list[Mapping[str, object]] = []
        room = _ROOM
        for job, step, text in self._db.execute(statement, (*values, most, skip)):
            if room <= 0:
                return found, True
            room -= len(text)
            found += readable([text], functools.partial(decoded, whose=f"step {job}.{step}"))
        return found, False

    def forget_pages(self) -> None:
        """Free the pages of the file that SQLite keeps for later statements."""
        with contextlib.suppress(sqlite3.Error):  # it may be closed by then, and is only memory
            self._db.execute("PRAGMA shrink_memory")

    def close(self) -> None:
        """Give back unused job ids, unless another node has drawn since; checkpoint and close the file."""
        latest = max(self._drawn, default=0)
        unused = next(count for count in itertools.count() if latest - count not in self._drawn)
        if unused:
            statement = "UPDATE counter SET value = value - ? WHERE name = 'job' AND value = ?"
            with contextlib.suppress(sqlite3.Error):  # the numbers are left out
                self._db.execute(statement, (unused, latest))
        self._db.close()


def _text(record: Mapping[str, Any]) -> str:
    """Return a record as JSON. Few tasks are encoded at a time: the encoder holds an object for each word until its
    end, ten times the text of 512 tasks, and Python does not return all of that memory to the kernel.
    """
    tasks = record.get("tasks") or ()
    if len(tasks) <= _TASKS_AT_A_TIME:
        return dumps(record)
    texts = (dumps(tasks[at : at + _TASKS_AT_A_TIME])[1:-1] for at in range(0, len(tasks), _TASKS_AT_A_TIME))
    rest = dumps({name: value for name, value in record.items() if name != "tasks"})
    return f'{rest[:-1]},"tasks":[{",".join(texts)}]}}'


def _compressed(trace: bytes) -> bytes:
    """Compress a trace for zlib.decompress."""
    compressor = zlib.compressobj(_QUICKLY, zlib.DEFLATED, _WINDOW, _MEMORY)
    return compressor.compress(trace) + compressor.flush()
