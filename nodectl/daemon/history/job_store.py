"""Jobs in the history's file: those in the queue, what batch jobs are started with, and jobs that have ended.

What is put here is written with the next transaction, also with one that takes ended steps: a step's files are never
removed before the end of its job is on the disk. `commit` makes one and waits for the disk. While the disk is full,
everything stays here and is tried again. Used only from the event loop.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from nodectl.daemon.history.batch_text import PackedText
from nodectl.daemon.history.schema import TASK
from nodectl.daemon.history.store import Store
from nodectl.selection.modes import PENDING
from nodectl.selection.records import JobRecord
from nodectl.wire.lean_json import dumps

_PUT = "INSERT OR REPLACE INTO job VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# A run that did not begin after all was counted, and is none.
_DROP_OLDER = "DELETE FROM job WHERE id = ? AND restart < ? AND ended = 0"
_PUT_BATCH = "INSERT OR REPLACE INTO batch VALUES (?, ?, ?, ?, ?, ?)"
REQUEUED = "REQUEUED"
_MUCH = 256 << 10  # bytes of records: to write these takes some milliseconds
_LEAST = 4 << 10  # bytes of one

_Statement = tuple[str, tuple[object, ...]]
Resources = Callable[[JobRecord], Mapping[str, object]]


class Kept(NamedTuple):
    """A job as its row says: its record, what it holds by names of nodes (empty for nothing), and the boot of the
    machine in which that was written.
    """

    record: JobRecord
    resources: Mapping[str, Any]
    boot: str


class JobStore:
    """The jobs of one node in a file that nodes may share. `node` names it: its runtime directory. `boot` is the id of
    this boot; `resources` tells what a job holds.
    """

    def __init__(self, store: Store, node: str, boot: str, resources: Resources) -> None:
        self._store = store
        self._node = node
        self._boot = boot
        self._resources = resources
        self._jobs: dict[int, JobRecord] = {}  # to be written as they are then
        self._size = 0  # bytes of these, about
        # To be written before the jobs, in this order, by what they are about: the latest counts.
        self._statements: dict[tuple[str, object], _Statement] = {}
        store.beside.append(self)

    # What will be written.

    def put(self, job: JobRecord, size: int = 0) -> None:
        """The job, as it is when it is written: of about so many bytes."""
        if job.job_id not in self._jobs:
            self._size += max(size, _LEAST)
        self._jobs[job.job_id] = job

    @property
    def has_much(self) -> bool:
        """True where writing takes a while: who changes many jobs lets these be written before the next one."""
        return self._size >= _MUCH

    def is_to_write(self, job: int) -> bool:
        """True where what is on the disk is not the job as it was put last."""
        return job in self._jobs

    def put_run(self, job: JobRecord, state: str = REQUEUED) -> None:
        """A run of a job that is about to be put into the queue again, as it is now: it has ended."""
        self._statements["run", (job.job_id, job.restart_cnt)] = (_PUT, self._row(job, state))

    def put_batch(self, job: int, text: PackedText) -> None:
        """What a batch job, or all tasks of an array, are started with."""
        values = (job, self._node, text.uid, text.size, text.script, text.request)
        self._statements["batch", job] = (_PUT_BATCH, values)

    def drop_batch(self, job: int) -> None:
        """Nothing will be started with it any more."""
        self._statements["batch", job] = ("DELETE FROM batch WHERE job = ?", (job,))

    def put_usage(self, rows: Iterable[tuple[int, float, float]]) -> None:
        """What each user has used, for fair shares, and when that was so."""
        for uid, used, at in rows:
            values = (self._node, uid, used, at)
            self._statements["usage", uid] = ("INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?)", values)

    def put_node(self, state: str, reason: str, uid: int, at: float) -> None:
        """Whether jobs may start, why not, and who said so when."""
        values = (self._node, state, _column(reason), uid, at)
        self._statements["node", ""] = ("INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?)", values)

    def put_reservation(self, name: str, record: Mapping[str, object]) -> None:
        """One that was made."""
        values = (self._node, _column(name), dumps(record))
        self._statements["reservation", name] = ("INSERT OR REPLACE INTO reservation VALUES (?, ?, ?)", values)

    def drop_reservation(self, name: str) -> None:
        """One that is over."""
        statement = "DELETE FROM reservation WHERE node = ? AND name = ?"
        self._statements["reservation", name] = (statement, (self._node, _column(name)))

    def forget(self, job: int) -> None:
        """A job that could not be written, and now is refused: it was never put."""
        self._jobs.pop(job, None)
        self._statements.pop(("batch", job), None)

    def forget_statement(self, what: str, which: object = "") -> None:
        """Likewise for a node or a reservation."""
        self._statements.pop((what, which), None)

    @property
    def is_behind(self) -> bool:
        """True while something has still to be written."""
        return bool(self._jobs or self._statements)

    def commit(self) -> None:
        """Writes all of it and waits for the disk. Raises sqlite3.Error; then all of it stays."""
        if self.is_behind:
            with self._store.transaction(through=True):
                """`write` is called in it."""

    def write(self, db: sqlite3.Connection) -> None:
        """In a transaction of the store's."""
        for statement, values in self._statements.values():
            db.execute(statement, values)
        if self._jobs:
            rows = [self._row(job, job.job_state) for job in self._jobs.values()]
            db.executemany(_DROP_OLDER, [row[:2] for row in rows if row[1]])
            db.executemany(_PUT, rows)

    def written(self) -> None:
        """The transaction is over."""
        self._jobs.clear()
        self._size = 0
        self._statements.clear()

    def _row(self, job: JobRecord, state: str) -> tuple[object, ...]:
        record = job.as_json()
        record["boot"] = self._boot
        if state != job.job_state:
            record["job_state"] = state
        over = 0.0 if state in _OPEN else max(job.end_time, 1.0)
        held = {} if job.job_resrcs is None else self._resources(job)
        return (
            job.job_id, job.restart_cnt, self._node, job.user_id, state, job.array_job_id, job.submit_time, over,
            dumps(record), dumps(held) if held else "",
        )  # fmt: skip

    def drop_dead_nodes(self) -> None:
        """Jobs that private nodes have left in their queues, which went with their runtime directories."""
        nodes = self._store.query("SELECT DISTINCT node FROM job WHERE ended = 0 AND node != ?", (self._node,))
        for (node,) in nodes:
            if not os.path.isdir(node):
                self._statements["dead", node] = ("DELETE FROM job WHERE node = ? AND ended = 0", (node,))
                self._statements["dead texts", node] = ("DELETE FROM batch WHERE node = ?", (node,))

    # What was written.

    def waiting(self) -> Iterator[Kept]:
        """The jobs of this node that have not ended, each read when it is asked for: together they may be more than the
        memory has room for. What is written meanwhile may come twice.
        """
        statement = "SELECT rowid, record, resources FROM job WHERE node = ? AND ended = 0 AND rowid > ? ORDER BY rowid"
        row = 0
        while found := list(self._store.query(f"{statement} LIMIT 1", (self._node, row))):
            row, *texts = found[0]
            yield from _kept([tuple(texts)])

    def find(self, job: int) -> Kept | None:
        """A job by its number, its latest run; None where it is not known."""
        statement = "SELECT record, resources FROM job WHERE id = ? ORDER BY restart DESC LIMIT 1"
        return next(_kept(self._store.query(statement, (job,))), None)

    def task(self, array: int, index: int) -> Kept | None:
        """A task of an array that has been a job, its latest run; None where it is not known."""
        statement = f"SELECT record, resources FROM job WHERE array = ? AND array > 0 AND {TASK} = ?"  # noqa: S608  # ours
        return next(_kept(self._store.query(f"{statement} ORDER BY +restart DESC LIMIT 1", (array, index))), None)

    def outcome(self, job: int, task: int | None = None) -> str | None:
        """The state in which the latest run of a job, or of a task of an array, has ended. None where it goes on, or is
        not known. The record, which may be large, is not read.
        """
        which = "id = ?" if task is None else f"array = ? AND array > 0 AND {TASK} = ?"
        order = "restart" if task is None else "+restart"  # else by its index
        statement = f"SELECT state, ended FROM job WHERE {which} ORDER BY {order} DESC LIMIT 1"  # noqa: S608  # ours
        for state, ended in self._store.query(statement, (job,) if task is None else (job, task)):
            return str(state) if ended else None
        return None

    def batch(self, job: int) -> PackedText | None:
        """What a batch job is started with."""
        statement = "SELECT uid, size, script, request FROM batch WHERE job = ?"
        return next((PackedText(*row) for row in self._store.query(statement, (job,))), None)

    def batches(self) -> Iterator[tuple[int, int, int]]:
        """Of each batch text of this node: its job, its user, its bytes."""
        return self._store.query("SELECT job, uid, size FROM batch WHERE node = ?", (self._node,))

    def usage(self) -> list[tuple[int, float, float]]:
        """The rows of `put_usage`."""
        return list(self._store.query("SELECT uid, used, at FROM usage WHERE node = ?", (self._node,)))

    def node(self) -> tuple[str, str, int, float] | None:
        """State, reason, who, when; None where nothing was said."""
        rows = self._store.query("SELECT state, reason, uid, at FROM node WHERE node = ?", (self._node,))
        return next(rows, None)

    def reservations(self) -> list[Mapping[str, Any]]:
        """Their records."""
        rows = self._store.query("SELECT record FROM reservation WHERE node = ? ORDER BY name", (self._node,))
        return [json.loads(record) for (record,) in rows]


_OPEN = frozenset({PENDING, "RUNNING", "SUSPENDED", "COMPLETING"})


def _column(text: str) -> str:
    """Text that a column can hold: one odd byte would let every transaction fail."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _kept(rows: Iterable[tuple[str, str]]) -> Iterator[Kept]:
    for text, resources in rows:
        record = json.loads(text)
        held = json.loads(resources) if resources else {}
        yield Kept(JobRecord.from_json(record), held, record.get("boot", ""))
