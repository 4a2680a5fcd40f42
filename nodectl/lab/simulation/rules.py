"""The rules of a play, checked from outside with separate accounts, not with the queue's or the host's.

Violations: a core, a byte or a device given twice; a job that starts while it is held, before its time, before its
dependencies, on a drained node, or with more tasks of its array at a time than allowed; a job first in line that starts
later than it was expected to, as backfill would cause; a job that waits longer than the bound; a lost job; and each
answer of the plugin that its host rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from nodectl.lab.simulation.starvation import Starvation
from nodectl.lab.simulation.story import Run, Share, Violation
from nodectl.lab.simulation.submission import BEGINNING
from nodectl.model.device_part import DevicePart, device_of, part_of
from nodectl.model.reasons import PRIORITY, RESOURCES
from nodectl.model.states import COMPLETED, SUSPENDED
from nodectl.scheduler.decisions import Preempt
from nodectl.scheduler.policy import Policy
from nodectl.selection.records import JobRecord, NodeTable
from nodectl.selection.slurmctld import Parameters

TWICE, LOST, DELAYED, TOO_EARLY, NONSENSE = (
    "given twice", "lost", "first in line delayed", "started too early", "plugin",
)  # fmt: skip
_MOST = 10_000  # violations kept
_UNKNOWN = float("inf")


class Host(Protocol):
    """The members of `nodectl.selection.host.Selection` used by the rules."""

    @property
    def nodes(self) -> NodeTable: ...  # noqa: D102

    @property
    def parameters(self) -> Parameters: ...  # noqa: D102

    @property
    def faults(self) -> list[str]: ...  # noqa: D102


class Queue(Protocol):
    """The members of `nodectl.scheduler.scheduler.Scheduler` used by the rules."""

    @property
    def policy(self) -> Policy: ...  # noqa: D102

    @property
    def in_order(self) -> Callable[[float], Iterator[JobRecord]]: ...  # noqa: D102

    @property
    def expected_start(self) -> Callable[[JobRecord, float], float | None]: ...  # noqa: D102

    @property
    def goes_before(self) -> Callable[[JobRecord, JobRecord, float], bool]: ...  # noqa: D102


class Rules:
    """The checker of a play. `slack`: seconds allowed between expected and actual start, for the time taken by ends."""

    def __init__(self, host: Host, queue: Queue, *, slack: float = 1.0) -> None:
        self._host, self._queue, self._slack = host, queue, slack
        self.violations: list[Violation] = []
        self.notes: list[str] = []
        self._cores: dict[tuple[int, int], list[JobRecord]] = {}
        self._memory: dict[int, int] = {}
        self._devices: dict[tuple[int, str], dict[JobRecord, DevicePart | None]] = {}
        self._held: dict[JobRecord, dict[int, Share]] = {}
        self._off_cores: set[JobRecord] = set()
        self._outcomes: dict[tuple[int, int | None], tuple[str, int]] = {}
        self._tasks: dict[int, dict[int | None, tuple[str, int]]] = {}
        self._began: set[int] = set()
        self._promised: tuple[JobRecord, float, float] | None = None  # first in line, its expected start, since when
        self._arrays: dict[int, int] = {}  # tasks that run
        self._sizes: dict[int, int] = {}
        self._faults = 0
        self._has_room_made: set[int] = set()
        self._waiting: dict[int, tuple[JobRecord, float]] = {}
        self._starvation = Starvation(queue.policy, self.broken, slack)

    def broken(self, time: float, rule: str, jobs: tuple[int, ...], words: str) -> None:
        """Record a violation."""
        if len(self.violations) < _MOST:
            self.violations.append(Violation(time, rule, jobs, words))

    def outcome(self, job_id: int, task: int | None) -> tuple[str, int] | None:
        """Return the end of a job, a task, or a whole array; None before the end."""
        return self._outcomes.get((job_id, task))

    def submitted(self, job: JobRecord, tasks: int, now: float) -> None:
        """Record a job accepted by the queue; `tasks`: the number of an array's tasks."""
        self._sizes[job.job_id] = tasks
        self._waiting[job.job_id] = (job, now)

    def started(self, job: JobRecord, run: Run, now: float) -> None:
        """Check and record the start of a run."""
        self._may_start(job, run, now)
        self._starvation.started(job, now)
        self._array_limit(job, now)
        self._began.add(job.array_job_id or job.job_id)
        self._kept_promise(job, now)
        self.took(job, run, now)
        if not job.array_tasks:
            self._waiting.pop(job.job_id, None)

    def _may_start(self, job: JobRecord, run: Run, now: float) -> None:
        details = job.details
        said = ""
        if details.begin_time and details.begin_time - BEGINNING > now + 1e-6:
            said = f"{details.begin_time - BEGINNING - now:.0f} s before its begin time"
        elif job.held:
            said = "held"
        elif unmet := self._unmet(job):
            said = f"before {unmet}"
        if not said:
            nodes = self._host.nodes
            down = [nodes[index].name for index in run.shares if not nodes[index].may_start_jobs]
            said = f"on node {down[0]}, which is drained or down" if down else ""
        if said:
            self.broken(now, TOO_EARLY, (job.job_id,), f"job {job.job_id} started {said}")
        if not run.shares:
            self.broken(now, NONSENSE, (job.job_id,), f"job {job.job_id} started with nothing")

    def _unmet(self, job: JobRecord) -> str:
        """Return a dependency not met yet, "" if all are met.

        With ? between dependencies, a single met dependency suffices. Counts unknown kinds of dependencies as met.
        """
        text = job.details.dependency
        if not text:
            return ""
        either = "?" in text
        unmet = ""
        for part in text.replace("?", ",").split(","):
            kind, _, rest = part.partition(":")
            for word in rest.split(":"):
                wrong = self._missing(kind, word)
                if either and not wrong:
                    return ""
                unmet = unmet or wrong
        return unmet

    def _missing(self, kind: str, word: str) -> str:
        number, _, task = word.partition("+")[0].partition("_")
        if not number.isdecimal() or (task and not task.isdecimal()):
            return ""
        if kind == "after":
            return "" if int(number) in self._began else f"the start of job {word}"
        if kind not in ("afterany", "afterok", "afternotok"):
            return ""
        found = self._outcomes.get((int(number), int(task) if task else None))
        if found is None:
            return f"the end of job {word}"
        good = found[0] == COMPLETED and found[1] == 0
        if kind == "afterany" or good == (kind == "afterok"):
            return ""
        return f"a {'good' if kind == 'afterok' else 'bad'} end of job {word}"

    def _array_limit(self, job: JobRecord, now: float) -> None:
        array = job.array_job_id
        if not array or job.array_task_id is None:
            return
        self._arrays[array] = self._arrays.get(array, 0) + 1
        if job.array_limit and self._arrays[array] > job.array_limit:
            words = f"{self._arrays[array]} tasks of array {array} run, {job.array_limit} are allowed"
            self.broken(now, TOO_EARLY, (job.job_id,), words)

    def took(self, job: JobRecord, run: Run, now: float) -> None:
        """Record the shares held by the job from now on."""
        self._held[job] = dict(run.shares)
        self._take_cores(job, now)
        nodes = self._host.nodes
        for index, share in run.shares.items():
            node = nodes[index]
            used = self._memory.get(index, 0) + share.memory
            self._memory[index] = used
            room = node.real_memory - node.mem_spec_limit
            if node.real_memory and self._host.parameters.tracks_memory and used > room:
                words = f"{used} MiB of node {node.name} are given, it has {room}"
                self.broken(now, f"memory {TWICE}", (job.job_id,), words)
            for key in share.gres:
                holders = self._devices.setdefault((index, device_of(key)), {})
                holders[job] = part_of(key)
                if not self._fit(index, key, holders):
                    ids = tuple(one.job_id for one in holders)
                    words = f"{key} of node {node.name} is given to job {job.job_id} beside {ids[:-1]}"
                    self.broken(now, f"device {TWICE}", ids, words)

    def _fit(self, index: int, key: str, holders: Mapping[JobRecord, DevicePart | None]) -> bool:
        """True where a single job has all of the device, or the parts of all jobs are together no more than it has."""
        parts = [part for part in holders.values() if part is not None]
        if len(parts) < len(holders):
            return len(holders) == 1
        device = next(one for one in self._host.nodes[index].devices if one.key == device_of(key))
        shards, memory = sum(part.shards for part in parts), sum(part.memory for part in parts)
        return bool(shards <= device.shards and memory <= device.memory)

    def _take_cores(self, job: JobRecord, now: float) -> None:
        most = self._host.parameters.sharers
        for index, share in self._held[job].items():
            for core in share.cores:
                users = self._cores.setdefault((index, core), [])
                users.append(job)
                if len(users) > 1 and len(users) > min(map(most, users)):
                    ids = tuple(user.job_id for user in users)
                    words = f"core {core} of node {self._host.nodes[index].name} is given to jobs {ids}"
                    self.broken(now, f"core {TWICE}", ids, words)

    def gave_back(self, job: JobRecord) -> None:
        """Record the return of all shares of the job."""
        shares = self._held.get(job, {})
        self._give_cores(job)
        self._held.pop(job, None)
        if job.array_job_id in self._arrays and job.array_task_id is not None:
            self._arrays[job.array_job_id] -= 1
        for index, share in shares.items():
            self._memory[index] -= share.memory
            for key in share.gres:
                self._devices.get((index, device_of(key)), {}).pop(job, None)

    def _give_cores(self, job: JobRecord) -> None:
        if job in self._off_cores:
            self._off_cores.discard(job)
            return
        for index, share in self._held.get(job, {}).items():
            for core in share.cores:
                self._cores[index, core].remove(job)

    def suspended(self, job: JobRecord, now: float) -> None:
        """Free the cores of a suspended job; the job keeps memory and devices."""
        if job.job_state != SUSPENDED:
            self.broken(now, LOST, (job.job_id,), f"job {job.job_id} was suspended and is {job.job_state}")
        self._give_cores(job)
        self._off_cores.add(job)

    def resumed(self, job: JobRecord, run: Run, now: float) -> None:
        """Give a resumed job the cores again."""
        self._off_cores.discard(job)
        self.forget_promises()
        self._take_cores(job, now)

    def preempts(self, decision: Preempt, now: float) -> None:
        """Record a preemption; the expected start is void, since the end of the preempted job is unknown."""
        self._promised = None
        self._has_room_made.add(decision.for_job.job_id)
        if decision.job not in self._held:
            words = f"job {decision.job.job_id} makes room for job {decision.for_job.job_id} and holds nothing"
            self.broken(now, LOST, (decision.job.job_id,), words)

    def ended(self, job: JobRecord, state: str, code: int, now: float) -> None:
        """Record the end of a job or task."""
        key = job.array_job_id or job.job_id
        if (key, job.array_task_id) in self._outcomes:
            self.broken(now, LOST, (job.job_id,), f"job {job.job_id} ended twice")
        self._waiting.pop(job.job_id, None)
        self._outcomes[key, job.array_task_id] = (state, code)
        if job.array_task_id is not None:
            # The end of the whole array: the worst of its tasks, once all have ended.
            ends = self._tasks.setdefault(key, {})
            ends[job.array_task_id] = (state, code)
            if len(ends) >= self._sizes.get(key, 0):
                worst = next((end for end in ends.values() if end != (COMPLETED, 0)), (COMPLETED, 0))
                self._outcomes[key, None] = worst

    def before(self, now: float) -> None:
        """Do nothing: the queue is about to decide."""

    def after(self, now: float) -> None:
        """Record the host's new faults after a decision, and the expected start of the first waiting job."""
        for words in self._host.faults[self._faults :]:
            self.broken(now, NONSENSE, (), words.removeprefix("plugin "))
        self._faults = len(self._host.faults)
        # A suspended job goes on before any other job starts, at a time that cannot be known.
        first = None if self._off_cores else self._first(now)
        if first is None or first.job_id in self._has_room_made:
            self._promised = None
            return
        if self._promised is None or self._promised[0] is not first or self._promised[1] == _UNKNOWN:
            expected = self._queue.expected_start(first, BEGINNING + now)
            self._promised = (first, _UNKNOWN if expected is None else expected - BEGINNING, now)

    def _first(self, now: float) -> JobRecord | None:
        """Return the first job in line if the job waits for resources only, by the queue's own reason; else None."""
        if not self._waiting:
            return None
        for job in self._queue.in_order(BEGINNING + now):
            if job.state_reason in (RESOURCES, PRIORITY, ""):
                return job if job.state_reason == RESOURCES else None
        return None

    def _kept_promise(self, job: JobRecord, now: float) -> None:
        if self._promised is None:
            return
        first = self._promised[0]
        if job is not first and job.array_job_id != first.job_id:
            if self._overtakes(job, first, now):
                self._promised = None
            return
        _, expected, since = self._promised
        self._promised = None
        if now > expected + self._slack:
            words = (
                f"job {job.job_id}, first in line since {since:.0f} s, was expected to start at {expected:.0f} s "
                f"and started {now - expected:.0f} s later"
            )
            self.broken(now, DELAYED, (job.job_id,), words)

    def _overtakes(self, job: JobRecord, first: JobRecord, now: float) -> bool:
        """Return True if a starting job may overtake the first in line: more urgent, or waiting for too long."""
        longest = self._queue.policy.max_wait
        if longest and BEGINNING + now - (job.eligible_time or job.submit_time) >= longest:
            return True
        return self._queue.goes_before(job, first, BEGINNING + now)

    def forget_promises(self) -> None:
        """Forget the expected start after an unforeseeable event, for example of a node."""
        self._promised = None
        self._starvation.off()

    def at_the_end(self, now: float, left_over: list[Violation]) -> None:
        """Check at the end of the play: no job may hold resources."""
        self.violations += left_over
        for job in self._held:
            self.broken(now, LOST, (job.job_id,), f"job {job.job_id} still holds something at the end")
