"""Jobs in the history file: queued jobs, the texts of batch jobs, and ended jobs.

The next transaction writes all changes put here, even if it was begun for ended steps: a step's files are never removed
before the end of its job is on the disk. `commit` makes a transaction and waits for the disk. While the disk is full,
all changes stay here and are tried again. Used only from the event loop.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from nodectl.model.states import IN_QUEUE, REQUEUED
from nodectl.model.wire.lean_json import dumps
from nodectl.selection.records import JobRecord
from nodectl.service.daemon.history.batch_text import PackedText
from nodectl.service.daemon.history.decoding import decoded, malformed, readable
from nodectl.service.daemon.history.notice import Notice
from nodectl.service.daemon.history.schema import TASK
from nodectl.service.daemon.history.store import Store

_PUT = "INSERT OR REPLACE INTO job VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# A run that was counted but never began is no run.
_DROP_OLDER = "DELETE FROM job WHERE id = ? AND restart < ? AND ended = 0"
_PUT_BATCH = "INSERT OR REPLACE INTO batch VALUES (?, ?, ?, ?, ?, ?)"
_MUCH = 256 << 10  # bytes of records: to write these takes some milliseconds
_LEAST = 4 << 10  # bytes of one
_SLICE = 5000  # runs of an array, read at a time: some milliseconds
_LATEST = 100  # ended jobs, among which the newest one is looked for

_Statement = tuple[str, tuple[object, ...]]
Resources = Callable[[JobRecord], Mapping[str, object]]


class Kept(NamedTuple):
    """A job as read from the file.

    `resources` is what the job holds, by names of nodes (empty for nothing); `boot` is the boot of the machine in which
    the row was written.
    """

    record: JobRecord
    resources: Mapping[str, Any]
    boot: str


class JobStore:
    """The jobs of a node in a history file which several nodes may share.

    `node`, the runtime directory, names the node. `boot` is the id of this boot. `resources` returns what a job holds.
    """

    def __init__(self, store: Store, node: str, boot: str, resources: Resources) -> None:
        self._store = store
        self._node = node
        self._boot = boot
        self._resources = resources
        self._jobs: dict[int, JobRecord] = {}  # written with their state at that time
        self._size = 0  # bytes of these, about
        # Written before the jobs, in this order. The key is the statement's subject: the latest statement counts.
        self._statements: dict[tuple[str, object], _Statement] = {}
        self.after_write: Callable[[], None] = lambda: None
        store.beside.append(self)

    # Queued writes.

    def put(self, job: JobRecord, size: int = 0) -> None:
        """Queue a job of about `size` bytes. The next transaction writes the job's state at the time of writing."""
        if job.job_id not in self._jobs:
            self._size += max(size, _LEAST)
        self._jobs[job.job_id] = job

    @property
    def has_much(self) -> bool:
        """Whether writing takes a while. Callers which change many jobs let the queued jobs be written first."""
        return self._size >= _MUCH

    def is_to_write(self, job: int) -> bool:
        """Return True if the job on the disk is older than the job put last."""
        return job in self._jobs

    def put_run(self, job: JobRecord, state: str = REQUEUED) -> None:
        """Queue the present run of a job as ended, before the job is requeued."""
        self._statements["run", (job.job_id, job.restart_cnt)] = (_PUT, self._row(job, state))

    def put_batch(self, job: int, text: PackedText) -> None:
        """Queue the packed text of a batch job, or of all tasks of a job array."""
        values = (job, self._node, text.uid, text.size, text.script, text.request)
        self._statements["batch", job] = (_PUT_BATCH, values)

    def drop_batch(self, job: int) -> None:
        """Queue the deletion of a batch job's text: the job will not start again."""
        self._statements["batch", job] = ("DELETE FROM batch WHERE job = ?", (job,))

    def put_usage(self, rows: Iterable[tuple[int, float, float]]) -> None:
        """Queue each user's usage for fair shares, and the time of the count: rows of (uid, used, at)."""
        for uid, used, at in rows:
            values = (self._node, uid, used, at)
            self._statements["usage", uid] = ("INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?)", values)

    def put_week(self, rows: Iterable[tuple[str, float, float, float]]) -> None:
        """Queue each user's hours of the week: rows of (user, CPU seconds, GPU seconds, at)."""
        for user, cpu, gpu, at in rows:
            values = (self._node, _column(user), cpu, gpu, at)
            self._statements["week", user] = ("INSERT OR REPLACE INTO week VALUES (?, ?, ?, ?, ?)", values)

    def put_node(self, state: str, reason: str, uid: int, at: float) -> None:
        """Queue the node's state (whether jobs may start), the reason, the author's uid and the time."""
        values = (self._node, state, _column(reason), uid, at)
        self._statements["node", ""] = ("INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?)", values)

    def put_reservation(self, name: str, record: Mapping[str, object]) -> None:
        """Queue a new reservation."""
        values = (self._node, _column(name), dumps(record))
        self._statements["reservation", name] = ("INSERT OR REPLACE INTO reservation VALUES (?, ?, ?)", values)

    def drop_reservation(self, name: str) -> None:
        """Queue the deletion of a reservation."""
        statement = "DELETE FROM reservation WHERE node = ? AND name = ?"
        self._statements["reservation", name] = (statement, (self._node, _column(name)))

    def put_notice(self, notice: Notice) -> None:
        """Queue a notice, with the change of the job. An existing notice of the same event stays."""
        values = (self._node, *notice[:5], 0, dumps(notice.record))
        self._statements["notice", notice[:4]] = (
            "INSERT OR IGNORE INTO notice VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            values,
        )

    def put_told(self, notice: tuple[int, int, str, str], *, is_over: bool) -> None:
        """Queue the mark of a sent notice (given by four members). `is_over`: the job has no further events."""
        change = "DELETE FROM notice" if is_over else "UPDATE notice SET done = 1"
        statement = f"{change} WHERE node = ? AND job = ? AND restart = ? AND event = ? AND way = ?"
        self._statements["told", notice] = (statement, (self._node, *notice))

    def drop_told(self, job: int) -> None:
        """Queue the deletion of the sent notices of an ended job or array."""
        statement = "DELETE FROM notice WHERE node = ? AND job = ? AND done = 1"
        self._statements["told", job] = (statement, (self._node, job))

    def drop_told_of_runs(self, job: int, before: int) -> None:
        """Queue the deletion of the sent notices about the runs of a job between the first run and this run."""
        statement = "DELETE FROM notice WHERE node = ? AND job = ? AND done = 1 AND restart > 0 AND restart < ?"
        self._statements["told runs", job] = (statement, (self._node, job, before))

    def forget(self, job: int) -> None:
        """Drop the queued writes of a job which could not be written and is now refused."""
        self._jobs.pop(job, None)
        self._statements.pop(("batch", job), None)

    def forget_statement(self, what: str, which: object = "") -> None:
        """Drop the queued write of a node or a reservation which could not be written."""
        self._statements.pop((what, which), None)

    @property
    def is_behind(self) -> bool:
        """Whether writes are queued."""
        return bool(self._jobs or self._statements)

    def commit(self) -> None:
        """Write all queued changes and wait for the disk. Raises sqlite3.Error; then all changes stay queued."""
        if self.is_behind:
            with self._store.transaction(through=True):
                """`write` is called in it."""

    def write(self, db: sqlite3.Connection) -> None:
        """Write the queued changes in a transaction of the store."""
        for statement, values in self._statements.values():
            db.execute(statement, values)
        if self._jobs:
            rows = [self._row(job, job.job_state) for job in self._jobs.values()]
            db.executemany(_DROP_OLDER, [row[:2] for row in rows if row[1]])
            db.executemany(_PUT, rows)

    def written(self) -> None:
        """Clear the queue after the transaction."""
        self._jobs.clear()
        self._size = 0
        self._statements.clear()
        self.after_write()

    def _row(self, job: JobRecord, state: str) -> tuple[object, ...]:
        record = job.as_json()
        record["boot"] = self._boot
        if state != job.job_state:
            record["job_state"] = state
        over = 0.0 if state in IN_QUEUE else max(job.end_time, 1.0)
        held = {} if job.job_resrcs is None else self._resources(job)
        return (
            job.job_id, job.restart_cnt, self._node, job.user_id, state, job.array_job_id, job.submit_time, over,
            dumps(record), dumps(held) if held else "",
        )  # fmt: skip

    def drop_dead_nodes(self) -> None:
        """Queue the deletion of jobs left in the queues of private nodes without a runtime directory."""
        nodes = self._store.query("SELECT DISTINCT node FROM job WHERE ended = 0 AND node != ?", (self._node,))
        for (node,) in nodes:
            if not os.path.isdir(node):
                self._statements["dead", node] = ("DELETE FROM job WHERE node = ? AND ended = 0", (node,))
                self._statements["dead texts", node] = ("DELETE FROM batch WHERE node = ?", (node,))

    # Reads.

    def waiting(self) -> Iterator[Kept]:
        """Yield the jobs of this node which have not ended, read singly: all together may exceed the memory.

        A job written meanwhile may come twice.
        """
        columns = "rowid, id, record, resources"
        statement = f"SELECT {columns} FROM job WHERE node = ? AND ended = 0 AND rowid > ? ORDER BY rowid"  # noqa: S608
        row = 0
        while found := list(self._store.query(f"{statement} LIMIT 1", (self._node, row))):
            row = found[0][0]
            yield from readable([found[0][1:]], _kept)

    def find(self, job: int) -> Kept | None:
        """Return the latest run of a job, or None for an unknown job. Raises sqlite3.Error."""
        statement = "SELECT id, record, resources FROM job WHERE id = ? ORDER BY restart DESC LIMIT 1"
        return next(map(_kept, self._store.query(statement, (job,))), None)

    def task(self, array: int, index: int) -> Kept | None:
        """Return the latest run of an array's task which has become a job, or None for an unknown task."""
        statement = f"SELECT id, record, resources FROM job WHERE array = ? AND array > 0 AND {TASK} = ?"  # noqa: S608
        return next(map(_kept, self._store.query(f"{statement} ORDER BY +restart DESC LIMIT 1", (array, index))), None)

    def newest(self, uid: int) -> int:
        """Return the highest number among a user's latest ended jobs and arrays, 0 for none."""
        ends = "SELECT id, array FROM job WHERE uid = ? AND ended > 0 ORDER BY ended DESC LIMIT ?"
        statement = f"SELECT MAX(CASE WHEN array > 0 THEN array ELSE id END) FROM ({ends})"  # noqa: S608  # ours
        return next(self._store.query(statement, (uid, _LATEST)), (0,))[0] or 0

    def outcome(self, job: int, task: int | None = None) -> str | None:
        """Return the state in which the latest run of a job, or of a task of an array, ended.

        Return None if the run goes on or is unknown. The record, which may be large, is not read.
        """
        which = "id = ?" if task is None else f"array = ? AND array > 0 AND {TASK} = ?"
        order = "restart" if task is None else "+restart"  # else by its index
        statement = f"SELECT state, ended FROM job WHERE {which} ORDER BY {order} DESC LIMIT 1"  # noqa: S608  # ours
        for state, ended in self._store.query(statement, (job,) if task is None else (job, task)):
            return str(state) if ended else None
        return None

    def batch(self, job: int) -> PackedText | None:
        """Return the packed text of a batch job, or None. A queued change counts."""
        if queued := self._statements.get(("batch", job)):
            _, (_, *text) = queued
            return PackedText(*text[1:]) if text else None  # type: ignore[arg-type]  # as put_batch has put it
        statement = "SELECT uid, size, script, request FROM batch WHERE job = ?"
        return next((PackedText(*row) for row in self._store.query(statement, (job,))), None)

    def batches(self) -> Iterator[tuple[int, int, int]]:
        """Yield (job, uid, size in bytes) of each batch text of this node."""
        return self._store.query("SELECT job, uid, size FROM batch WHERE node = ?", (self._node,))

    def usage(self) -> list[tuple[int, float, float]]:
        """Return the rows written by `put_usage`."""
        rows = self._store.query("SELECT uid, used, at FROM usage WHERE node = ?", (self._node,))
        return list(readable(rows, _figures))

    def week(self) -> list[tuple[str, float, float, float]]:
        """Return the rows written by `put_week`."""
        rows = self._store.query("SELECT user, cpu, gpu, at FROM week WHERE node = ?", (self._node,))
        return list(readable(rows, _figures))

    def node(self) -> tuple[str, str, int, float] | None:
        """Return the node's (state, reason, uid, time), or None if no state was written."""
        rows = self._store.query("SELECT state, reason, uid, at FROM node WHERE node = ?", (self._node,))
        return next(rows, None)

    def waiting_notices(self) -> list[tuple[str, int]]:
        """Return (way, uid) of the unsent notices."""
        rows = self._store.query("SELECT DISTINCT way, uid FROM notice WHERE node = ? AND done = 0", (self._node,))
        return list(rows)

    def noted(self) -> Iterator[tuple[tuple[int, int, str, str], int, bool, int]]:
        """Yield for each kept notice the identity (the first four members), the uid, True if sent, and the bytes of
        the record.
        """
        columns = "job, restart, event, way, uid, done, LENGTH(record)"
        rows = self._store.query(f"SELECT {columns} FROM notice WHERE node = ?", (self._node,))  # noqa: S608  # ours
        for job, restart, event, way, uid, done, size in rows:
            yield (job, restart, event, way), uid, bool(done), size

    def notices(self, way: str, uid: int, most: int) -> list[Notice]:
        """Return the first unsent notices of this way about this user's jobs."""
        statement = "SELECT job, restart, event, record FROM notice WHERE node = ? AND way = ? AND uid = ? AND done = 0"
        rows = self._store.query(f"{statement} ORDER BY rowid LIMIT ?", (self._node, way, uid, most))

        def read(row: tuple[int, int, str, str]) -> Notice:
            job, restart, event, record = row
            return Notice(job, restart, event, way, uid, decoded(record, f"a notice of job {job}"))

        return list(readable(rows, read))

    def runs_of_array(self, array: int, after: tuple[int, int]) -> list[tuple[int, int, str]]:
        """Return the next runs of an array's tasks, in order: job, restart, and the state in which the run ended.

        `after` are job and restart of the last one known. The state is "" for a run that goes on.
        """
        state = "CASE WHEN ended > 0 AND state != ? THEN state ELSE '' END"
        statement = f"SELECT id, restart, {state} FROM job WHERE array = ? AND (id, restart) > (?, ?)"  # noqa: S608  # ours
        return list(self._store.query(f"{statement} ORDER BY id, restart LIMIT ?", (REQUEUED, array, *after, _SLICE)))

    def reservations(self) -> list[Mapping[str, Any]]:
        """Return the records of this node's reservations, sorted by name."""
        rows = self._store.query("SELECT name, record FROM reservation WHERE node = ? ORDER BY name", (self._node,))
        return list(readable(rows, lambda row: decoded(row[1], f"reservation {row[0]}")))


def _column(text: str) -> str:
    """Escape surrogates, which no column can hold: a bad byte would fail every transaction."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _kept(row: tuple[int, str, str]) -> Kept:
    """Make the job of a row: number, record, resources. Raises Malformed."""
    whose = f"job {row[0]}"
    record = decoded(row[1], whose)
    try:
        job = JobRecord.from_json(record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise malformed(whose, repr(error)) from None
    if job.job_id != row[0]:
        raise malformed(whose, f"it is of job {job.job_id}")
    return Kept(job, decoded(row[2], whose) if row[2] else {}, record.get("boot", ""))


def _figures(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row of a user and figures. Raises Malformed."""
    if not all(isinstance(figure, int | float) for figure in row[1:]):
        raise malformed(f"what {row[0]} has used", "no figures")
    return row
