"""Questions to the select plugin about places: a place now, and for the first job in line also a place in the future.

In the daemon's event loop and in planning commands. The rule is EASY backfill: the first job in line that finds no
place gets one in the future, at its expected start. Other jobs start now if they end before, or leave that place alone:
its cores, and the memory and the devices that the job needs there.
"""

from __future__ import annotations

from bitarray import bitarray

from nodectl.model.reasons import ARRAY_LIMIT, BAD_CONSTRAINTS, DEPENDENCY, LAUNCH_FAILURE, PRIORITY, RESOURCES
from nodectl.scheduler import preemption
from nodectl.scheduler.arrays import is_waiting_array
from nodectl.scheduler.book import Book
from nodectl.scheduler.decisions import SUSPEND, NotAdmitted
from nodectl.scheduler.limits import Block, Demand, asked, given
from nodectl.scheduler.reservation import Reservations
from nodectl.scheduler.room import Claim, Room, Shadow
from nodectl.scheduler.watchers import DONE
from nodectl.selection.answers import BUSY, PLUGIN, Choice, Refusal
from nodectl.selection.modes import SELECT_MODE_RUN_NOW, SELECT_MODE_TEST_ONLY, SELECT_MODE_WILL_RUN
from nodectl.selection.records import JobRecord, JobResources

_RETRIES = 3
_MOST_ENDS = 8


class Backfill:
    """The search for places.

    `tests` counts the questions to the plugin. `refused`: shapes of jobs without a place until something is freed.
    `limited`: shapes of jobs that would be given more than their users may have, until something has ended.
    """

    def __init__(self, book: Book, room: Room, reservations: Reservations) -> None:
        self._book = book
        self._room = room
        self._selection = book.selection
        self._reservations = reservations
        self.tests = 0
        self.refused: set[tuple[object, ...]] = set()
        self.limited: dict[tuple[object, ...], Block] = {}

    def forget(self) -> None:
        """Drop the remembered refusals, because something was freed."""
        self.refused.clear()
        self.limited.clear()

    def start(self, job: JobRecord, now: float, *, is_new: bool = False) -> JobRecord | Block:
        """Start a job, or a task of a waiting array, where a place is free now. Return the started job, or the reason.

        A new job (`is_new`) enters the book only when it has started.
        """
        index = self._book.next_index(job)
        if index is None and is_waiting_array(job):
            return Block(DEPENDENCY, f"it waits for other jobs: {job.details.dependency}")
        block = self.block(job, now)
        if block is not None:
            return block
        choice = self._place(job, now)
        if isinstance(choice, Block):
            return choice
        block = self._limit(job, choice.resources, now)
        if block is not None:
            unplace(job)
            return block
        if is_new:
            return self._begin_new(job, now)
        return self._begin(job, index, choice, now)

    def _begin_new(self, job: JobRecord, now: float) -> JobRecord | Block:
        failed = self._selection.job_begin(job)
        if failed:
            unplace(job)
            return Block(LAUNCH_FAILURE, failed, kind=PLUGIN)
        self._book.add(job)
        self._bound(job, now)
        self._book.began(job, now)
        return job

    def _bound(self, job: JobRecord, now: float) -> None:
        """Limit a job without a time limit to the end of the job's reservation or to the deadline."""
        if job.time_limit or not (job.details.reservation or job.details.deadline):
            return
        ends = [at for at in (self._reservations.end_of(job), job.details.deadline) if at]
        job.time_limit = max(1, int(min(ends, default=now) - now))

    def block(self, job: JobRecord, now: float) -> Block | None:
        """Return the reason against starting the job, whatever is free; None where there is none."""
        if job.details.dependency and self._book.waits.state(job, now) != DONE:  # another of its name has started
            return Block(DEPENDENCY, f"it waits for other jobs: {job.details.dependency}")
        if self._book.arrays.is_full(job):
            run = "1 task of its array runs" if job.array_limit == 1 else f"{job.array_limit} tasks of its array run"
            words = f"{run}, the most at a time"
            return Block(ARRAY_LIMIT, words, "a higher limit after % in --array")
        book, block = self._book, None
        if self._has_limits:
            block = self._over_limit(job, asked(job), now)
        block = block or self.known_limit(job)
        if block is None and job.details.reservation:
            block = self._reservations.block(job, now)
        if block is None and job.details.gres:
            gpus = asked(job).gpus
            block = self._reservations.block_gpus(job, gpus, book.active.values(), now, book.version)
        return block

    @property
    def _has_limits(self) -> bool:
        return self._book.accounts.has_limits or bool(self._book.week)

    def _over_limit(self, job: JobRecord, demand: Demand, now: float) -> Block | None:
        book = self._book
        return book.accounts.block(job, demand) or book.week.block(job, demand, now, book.version)

    def known_limit(self, job: JobRecord) -> Block | None:
        """Return the remembered block of the job's shape, if any.

        None where something has ended since. None, too, for a job for which other jobs make room: its limit was checked
        before they did.
        """
        if not self.limited or self._book.freed or job.job_id in self._room.claims:
            return None
        return self.limited.get(shape_of(job, None))

    def _limit(self, job: JobRecord, resources: JobResources, now: float) -> Block | None:
        """Return the reason for which the job's user may not have the resources, or None.

        `block` knows the reason from then on, so that nothing is kept for the job and no other job makes room for it.
        """
        demand = given(resources)
        block = self._over_limit(job, demand, now)
        if block is not None:
            self.limited[shape_of(job, None)] = block
        return block

    def is_limited(self, job: JobRecord, now: float) -> bool:
        """True where the job would be given too much even on an empty machine. For a job without a known place."""
        if not self._has_limits:
            return False
        self.tests += 1
        found = self._selection.job_test(job, SELECT_MODE_TEST_ONLY, now=now)
        return isinstance(found, Choice) and self._limit(job, found.resources, now) is not None

    def _place(self, job: JobRecord, now: float) -> Choice | Block:
        """Find a place for the job now and write the place into the job; otherwise return the reason."""
        room = self._room
        details = job.details
        if room.is_closed(job):
            return Block(PRIORITY, "the first in line has waited so long that no other job goes before it", kind=BUSY)
        if not details.overcommit and details.min_cpus > room.free_cpus():
            return Block(RESOURCES, _needs(job), kind=BUSY)
        if self._book.accounts.has_limits and room.takes_from_first(job, asked(job)):
            return Block(RESOURCES, "its user may have no more beside the first in line", kind=BUSY)
        excluded = room.excluded(job, now)
        if self.refused and not self._book.freed and shape_of(job, excluded) in self.refused:
            return Block(RESOURCES, _needs(job), kind=BUSY)
        nodes: bitarray | None = None
        for _ in range(_RETRIES):
            found = self._ask(job, now, excluded, nodes)
            if isinstance(found, Refusal):
                if found.kind != PLUGIN:
                    self.refused.add(shape_of(job, excluded))
                return self._refused(found, job)
            delayed = room.delays(job, found.resources, now)
            if delayed is None:
                return found
            unplace(job)
            nodes = ~delayed if nodes is None else nodes & ~delayed
            if not nodes.any():
                break
        return Block(RESOURCES, "what is free is needed by the first in line", kind=BUSY)

    def _ask(
        self, job: JobRecord, now: float, excluded: bitarray | None, nodes: bitarray | None
    ) -> Choice | Refusal:  # fmt: skip
        self.tests += 1
        return self._selection.job_test(job, SELECT_MODE_RUN_NOW, excluded_cores=excluded, nodes=nodes, now=now)

    def _refused(self, refusal: Refusal, job: JobRecord) -> Block:
        if refusal.kind == PLUGIN and not self._book.completing:
            return Block(BAD_CONSTRAINTS, refusal.reason, kind=PLUGIN)
        # What a job that ends still holds the plugin may take for free: no fault of its own.
        return Block(RESOURCES, refusal.reason or _needs(job), kind=BUSY)

    def _begin(self, job: JobRecord, index: int | None, choice: Choice, now: float) -> JobRecord | Block:
        task = job
        if index is not None:
            nodes, names = job.node_bitmap, job.nodes
            unplace(job)
            try:
                task = self._book.split(job, index)
            except NotAdmitted as error:
                self._book.pauses.fail(job.job_id, str(error), now)
                self._book.place(job, now)
                return Block(LAUNCH_FAILURE, str(error))  # not the plugin's fault: others are tried
            task.node_bitmap, task.job_resrcs, task.nodes = nodes, choice.resources, names
        failed = self._selection.job_begin(task)
        if failed:
            unplace(task)
            self._book.pauses.fail(task.job_id, failed, now)
            self._book.place(task, now)
            return Block(LAUNCH_FAILURE, failed, kind=PLUGIN)
        self._room.forget(job)
        if index is not None and task is not job and self._book.line.is_its_turn(job):
            self._book.line.turn_taken(job, now)
        self._bound(task, now)
        self._book.pauses.forget(task.job_id)
        self._book.pauses.forget(job.job_id)
        self._book.began(task, now)
        return task

    def preempt(self, job: JobRecord, now: float) -> Claim | None:
        """Find the running jobs to be preempted for this job; None where preemption does not help."""
        policy, room = self._book.policy, self._room
        if room.is_closed(job):
            return None
        staying = self._book.staying
        victims = [
            one for one in preemption.candidates(policy, job, self._book.active.values())
            if one.preempted_by not in room.claims and not staying.until(one.job_id, now)[0]
        ]  # fmt: skip
        excluded = room.excluded(job, now)
        while victims:
            self.tests += 1
            found = self._selection.job_test(
                job, SELECT_MODE_RUN_NOW, candidates=victims, excluded_cores=excluded, now=now
            )
            unplace(job)
            if isinstance(found, Refusal) or not found.preempted:
                return None
            if self._limit(job, found.resources, now) is not None:
                return None
            fits = preemption.fits_beside_suspended(policy, self._selection.ledger, found, job.user_id)
            if fits and room.delays(job, found.resources, now, found.preempted) is None:
                return Claim(job, found.resources, list(found.preempted))
            stopping = [one for one in victims if preemption.way(policy, one) == SUSPEND]
            victims = [one for one in victims if one not in stopping] if stopping else []
        return None

    def foresee(self, job: JobRecord, now: float) -> Shadow | None:
        """Find the time and place of the job's start if no other job goes first.

        None where the plugin does not know, or where the job's user may not have so much; `block` then knows the limit.
        """
        times = [now, *self._reservations.ends(now)[:_MOST_ENDS]]
        begins = self._reservations.by_name.get(job.details.reservation)
        if begins is not None and begins.start_time > now:
            times = [begins.start_time]
        for at in times:
            found = self._foresee_from(job, at, now)
            if found is not None or self.known_limit(job) is not None:
                return found
        return None

    def _foresee_from(self, job: JobRecord, at: float, now: float) -> Shadow | None:
        """Find a start of the job at `at` or later, without the cores reserved during the job's run."""
        start = at
        for _ in range(_RETRIES):
            self.tests += 1
            end = self._room.end_of(job, start)
            known = self._reservations.overlapping(job, at, end)
            found = self._selection.job_test(
                job, SELECT_MODE_WILL_RUN, excluded_cores=self._lasting(job, at, end), now=now
            )
            if isinstance(found, Refusal) or self._limit(job, found.resources, now) is not None:
                return None
            start = max(found.start_time, at)
            later = self._reservations.overlapping(job, start, self._room.end_of(job, start))
            if set(later) <= set(known):
                return self._room.shadow_of(job, start, found.resources, now)
        return None

    def _lasting(self, job: JobRecord, start: float, end: float) -> bitarray | None:
        """Return the cores reserved or claimed for other jobs. Cores of completing jobs will be free by then."""
        found = self._reservations.excluded(job, start, end) if self._reservations.by_name else None
        for claim in self._room.claims.values():
            if claim.job is not job:
                found = claim.resources.core_bitmap.copy() if found is None else found | claim.resources.core_bitmap
        return found


def unplace(job: JobRecord) -> None:
    """Remove the place written into the job by job_test."""
    job.job_resrcs = job.node_bitmap = None
    job.nodes = ""


def shape_of(job: JobRecord, excluded: bitarray | None) -> tuple[object, ...]:
    """Return all values by which a plugin may choose. Where a job finds no place, no job of the same shape does."""
    details = job.details
    return (
        job.user_id, job.group_id, job.qos, job.time_limit, details.num_tasks, details.cpus_per_task, details.min_cpus,
        details.min_nodes, details.max_nodes, details.pn_min_cpus, details.pn_min_memory, details.mem_per_cpu,
        details.contiguous, details.overcommit, details.share_res, details.whole, details.core_spec, details.req_nodes,
        details.exc_nodes, details.features, tuple(details.gres.items()), tuple(details.layout.items()),
        details.reservation, None if excluded is None else excluded.tobytes(),
    )  # fmt: skip


def _needs(job: JobRecord) -> str:
    cpus = job.details.min_cpus
    return f"the {cpus} CPUs that it asks for are not free" if cpus > 1 else "no CPU is free for it"
