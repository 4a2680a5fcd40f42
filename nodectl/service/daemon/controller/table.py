"""The jobs known to this daemon: the jobs of the queue, found by name, and the latest ended jobs.

This module puts each change of a job into the store and wakes the calls that wait for it. Used only from the event
loop.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping

from nodectl.model.states import PENDING, SUSPENDED
from nodectl.model.wire.dispatch import Refused
from nodectl.scheduler import job_array
from nodectl.selection.records import BATCH, JobRecord
from nodectl.service.daemon.controller import job_bytes
from nodectl.service.daemon.controller.commits import Commits
from nodectl.service.daemon.controller.ended_texts import EndedTexts
from nodectl.service.daemon.controller.job_names import BadName, JobName, parse
from nodectl.service.daemon.history.batch_text import PackedText
from nodectl.service.daemon.history.job_store import JobStore

_OF_ENDED = 8  # a part of the bytes of a user is for the texts of ended jobs
_MOST_RECENT = 16  # ended jobs, of those in the history


class JobTable:
    """The table of the node's jobs.

    `jobs` is the scheduler's own table of jobs that have not ended, which the scheduler changes. `waiting` holds the
    jobs among them that wait for their start, or for their CPUs. The daemon keeps at most `most_bytes` for each user's
    jobs, root excepted, and the texts of so many ended jobs as `kept_texts` says.
    """

    def __init__(self, store: JobStore, most_bytes: int, kept_texts: int = 0) -> None:
        self._most_bytes = most_bytes
        self.jobs: Mapping[int, JobRecord] = {}
        self._waiting_tasks: Callable[[JobRecord], job_array.Tasks] = lambda job: job_array.tasks_of(job.array_tasks)
        self.waiting: set[int] = set()
        self.store = store
        self.commits = Commits(store)
        self.bytes: Counter[int] = Counter()  # by user: bytes kept for the queued jobs
        self._bytes: dict[int, tuple[int, int]] = {}  # by job: user and bytes of the record
        self._texts: dict[int, tuple[int, int]] = {}  # by job or array: user and bytes of its batch text
        self._ended_texts = EndedTexts(kept_texts, most_bytes // _OF_ENDED)
        self._arrays: dict[int, set[int]] = {}  # by array: its jobs that have not ended
        self._tasks: dict[int, dict[int, int]] = {}  # by array: the jobs of a single task, by the task's index
        self._recent: OrderedDict[int, JobRecord] = OrderedDict()  # ended jobs
        self._unwritten: set[int] = set()  # jobs that are not in the store while they run
        self._waiters: dict[int, list[asyncio.Future[None]]] = {}
        self.on_end: Callable[[JobRecord], None] = lambda _: None  # in the transaction of the end

    def restoring(
        self, jobs: Mapping[int, JobRecord], waiting_tasks: Callable[[JobRecord], job_array.Tasks]
    ) -> Generator[None, None, None]:
        """Fill the table at the daemon's start. The caller may pause at any yield.

        `waiting_tasks` returns the waiting tasks for which the record of an array stands.
        """
        self.jobs, self._waiting_tasks = jobs, waiting_tasks
        for job in jobs.values():
            self._index(job)
            yield
        for job_id, uid, size in list(self.store.batches()):
            yield
            if job_id in self._arrays or job_id in jobs:
                self._texts[job_id] = uid, size
                self.bytes[uid] += size
            else:
                self._keep_text(job_id, uid, size)

    def check_bytes(self, uid: int, more: int = 0) -> None:
        """Raise Refused if the daemon keeps more bytes for the user's jobs than allowed, or would with `more`."""
        kept = self.bytes[uid] + more
        if uid and kept > self._most_bytes:
            what = f"what is kept for your jobs in the queue would have {kept} bytes"
            raise Refused("LaunchRefused", f"{what}: max_batch_bytes_per_user = {self._most_bytes}", exit_status=1)

    def _count(self, job: JobRecord) -> None:
        """Count the bytes of the job's current record."""
        self._discount(job)
        size = job_bytes.of(job)
        self._bytes[job.job_id] = job.user_id, size
        self.bytes[job.user_id] += size

    def _discount(self, job: JobRecord) -> None:
        self._less(*self._bytes.pop(job.job_id, (job.user_id, 0)))

    def _less(self, uid: int, size: int) -> None:
        self.bytes[uid] -= size
        if not self.bytes[uid]:
            del self.bytes[uid]

    def _put(self, job: JobRecord) -> None:
        _, size = self._bytes.get(job.job_id, (0, 0))
        self.store.put(job, size)

    def _index(self, job: JobRecord) -> None:
        self._count(job)
        if job.array_job_id:
            self._arrays.setdefault(job.array_job_id, set()).add(job.job_id)
            if job.array_task_id is not None:
                self._tasks.setdefault(job.array_job_id, {})[job.array_task_id] = job.job_id
        if job.job_state in (PENDING, SUSPENDED):
            self.waiting.add(job.job_id)
        else:
            self.waiting.discard(job.job_id)

    # Changes of jobs.

    def add(self, job: JobRecord, batch: PackedText | None = None) -> None:
        """Add a job to the queue. The next commit writes the job and, for a batch job, the script and request."""
        self._index(job)
        self._put(job)
        if batch is not None:
            self.store.put_batch(text_of(job), batch)
            self._texts[text_of(job)] = batch.uid, batch.size
            self.bytes[batch.uid] += batch.size

    def rewrite(self, job: JobRecord, batch: PackedText) -> None:
        """Replace the script and request of a waiting batch job with the next commit."""
        self.store.put_batch(text_of(job), batch)
        uid, size = self._texts[text_of(job)]
        self._texts[text_of(job)] = uid, batch.size
        self.bytes[uid] += batch.size - size

    def add_unwritten(self, job: JobRecord) -> None:
        """Note a job recorded, while running, only in the file of the first step."""
        self._unwritten.add(job.job_id)

    def is_unwritten(self, job: JobRecord) -> bool:
        """Return True for a running job without a row."""
        return job.job_id in self._unwritten

    def withdraw(self, job: JobRecord) -> None:
        """Remove a job that could not be written or did not begin; no trace of the job remains."""
        self._unwritten.discard(job.job_id)
        self._drop(job)
        self.store.forget(job.job_id)
        self._tell(job.job_id)

    def changed(self, job: JobRecord) -> None:
        """Write a changed job with the next commit, and wake the calls waiting for the job."""
        self._index(job)
        if job.job_id not in self._unwritten:
            self._put(job)
        self._tell(job.job_id)

    def changed_soon(self, job: JobRecord) -> None:
        """Write a changed job soon, without waiting."""
        self.changed(job)
        self.commits.soon()

    def written_from_now_on(self, job: JobRecord) -> None:
        """Give a changed job a row, because the file of the first step no longer holds the whole state."""
        self._unwritten.discard(job.job_id)
        self.changed(job)

    def ended(self, job: JobRecord) -> None:
        """Move a job from the queue to the recent jobs, for good.

        A job with a row is written soon, a job without one together with its step.
        """
        is_queued = job.job_id not in self._unwritten
        self._unwritten.discard(job.job_id)
        if is_queued:
            self.commits.soon()
        self._put(job)
        size = self._texts.get(text_of(job), (0, 0))[1]
        if self._drop(job):
            self._keep_text(text_of(job), job.user_id, size)
        if is_queued:
            self.on_end(job)
        job.details.forget_request()
        self._recent[job.job_id] = job
        while len(self._recent) > _MOST_RECENT and not self.store.is_to_write(next(iter(self._recent))):
            self._recent.popitem(last=False)
        self._tell(job.job_id)

    def _keep_text(self, job_id: int, uid: int, size: int) -> None:
        """Keep the text of an ended job for `nodectl resubmit`, instead of older texts where there is no room."""
        for oldest in self._ended_texts.add(job_id, uid, size):
            self.store.drop_batch(oldest)

    def _drop(self, job: JobRecord) -> bool:
        """Remove the job from the table. Return True when no further job will use the batch text."""
        self.waiting.discard(job.job_id)
        self._discount(job)
        others = self._arrays.get(job.array_job_id)
        if others is not None:
            others.discard(job.job_id)
            if job.array_task_id is not None:
                self._tasks.get(job.array_job_id, {}).pop(job.array_task_id, None)
            if others:
                return False
            del self._arrays[job.array_job_id]
            self._tasks.pop(job.array_job_id, None)
        self._less(*self._texts.pop(text_of(job), (job.user_id, 0)))
        return job.held_by == BATCH

    # Calls that wait for a change.

    async def change(self, job_id: int, seconds: float) -> None:
        """Return when the job changes, or after `seconds`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(job_id, []).append(waiter)
        try:
            await asyncio.wait_for(waiter, seconds)
        except TimeoutError:
            return
        finally:
            waiters = self._waiters.get(job_id, [])
            if waiter in waiters:
                waiters.remove(waiter)
            if not waiters:
                self._waiters.pop(job_id, None)

    def tell_all(self) -> None:
        """Wake all waiting calls, because the reasons for which jobs wait may have changed."""
        for job_id in list(self._waiters):
            self._tell(job_id)

    def _tell(self, job_id: int) -> None:
        for waiter in self._waiters.pop(job_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    # Finding.

    def lives(self, number: int) -> bool:
        """Return True for a job, or an array, that has not ended."""
        return number in self.jobs or number in self._arrays

    def task_apart(self, job: JobRecord) -> JobRecord | None:
        """Return a task of the job's array that is a job of its own and has not ended; None for none."""
        numbers = self._tasks.get(job.array_job_id, {}).values()
        return next((self.jobs[number] for number in numbers if number in self.jobs), None)

    def get(self, job_id: int) -> JobRecord | None:
        """Return a queued or recently ended job."""
        return self.jobs.get(job_id) or self._recent.get(job_id)

    def anywhere(self, job_id: int) -> JobRecord | None:
        """Return a queued or recently ended job, or a job from the store."""
        found = self.get(job_id)
        if found is None and (kept := self.store.find(job_id)) is not None:
            found = kept.record
        return found

    def finding_newest(self, uid: int) -> Generator[None, None, int]:
        """Return the number of a user's newest job or array, queued or ended; 0 for none.

        The caller may pause at any yield.
        """
        found = 0
        for job in (*self.jobs.values(), *self._recent.values()):
            if job.user_id == uid:
                found = max(found, text_of(job))
            yield
        return max(found, self.store.newest(uid))

    def named(self, text: str, spend: Callable[[int], None] = job_array.freely) -> list[tuple[JobRecord, str]]:
        """Return the queued jobs that a name means, each with the meant tasks of a waiting array ("" for all).

        `spend` is called with the number of jobs, ranges and indices to look at, before they are looked at. Raises
        Refused where the name is malformed, and whatever `spend` raises.
        """
        try:
            name = parse(text, spend)
        except BadName as error:
            raise Refused("InvalidRequest", str(error), parameter="job") from None
        return list(self._meant(name, spend))

    def _meant(self, name: JobName, spend: Callable[[int], None]) -> Iterator[tuple[JobRecord, str]]:
        for job_id in sorted(self._numbers(name, spend)):
            job = self.jobs.get(job_id)
            if job is None:
                continue
            if not name.tasks:
                yield job, ""
            elif job.array_task_id is not None:
                if job.array_job_id == name.job and job_array.has(name.indices, job.array_task_id):
                    yield job, ""
            elif job.array_tasks and name.job == text_of(job):
                waiting = self._waiting_tasks(job)
                spend(min(len(waiting), len(name.indices)))
                if job_array.meet(waiting, name.indices):
                    yield job, name.tasks

    def _numbers(self, name: JobName, spend: Callable[[int], None]) -> set[int]:
        """Return the candidate jobs of a name: all jobs of an array, or only the named tasks if few."""
        array = self._arrays.get(name.job, set())
        named = job_array.size(name.indices) if name.tasks else len(array)
        spend(1 + min(named, len(array)))
        if named >= len(array):
            return {name.job, *array}
        tasks = self._tasks.get(name.job, {})
        return {name.job, *(tasks[index] for index in job_array.indices(name.indices) if index in tasks)}


def text_of(job: JobRecord) -> int:
    """Return the number under which the store keeps a batch job's text: the array's number, or else the job's."""
    return job.array_job_id or job.job_id
