"""Further steps of running jobs, srun's --jobid, and the numbers of jobs and steps.

The file of a job's first step describes the job: its user, its share of the machine, its container, its limits. The
prolog ran before that step, and the epilog belongs to it too; so its file and its record stay until the job's last step
has ended. The first step has number 0 in a job of `nodectl run`; in a job with a script, or with a shell that holds it,
the first step has a name, and further steps count from 0. Further steps belong to the same user and run in the same
cgroup and container. No further step makes or removes anything of the job's, whichever process is killed when. Used
only from the event loop.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Container, Mapping

from nodectl.launch.cgroup import shares
from nodectl.model.step import Step
from nodectl.model.step_number import step_name
from nodectl.model.wire.dispatch import Call, Refused, invalid
from nodectl.service.daemon.history.connection import patiently
from nodectl.service.daemon.history.store import Store
from nodectl.service.daemon.jobs.registry import Registry
from nodectl.service.daemon.steps.live import LiveStep

NEW_JOB = -1  # in place of a step's number, which may be 0 in an existing job
_MOST = 1024  # of one user, whose next reservation takes the oldest number again
_MOST_ELSEWHERE = 1024  # jobs remembered: the numbers of forgotten jobs are checked once more


class ReservedNumbers:
    """The numbers of jobs and steps reserved by clients for a launch, by user."""

    def __init__(self) -> None:
        self._steps: dict[int, dict[tuple[int, int], None]] = {}  # by uid, the oldest first

    def oldest_job_if_full(self, uid: int) -> int:
        """Return, and forget, the oldest job number of a user at the limit of reservations; 0 for other users.

        So a user who only reserves does not use up the ids.
        """
        own = self._steps.get(uid, {})
        if len(own) < _MOST:
            return 0
        job, step = next(iter(own))
        del own[job, step]
        return job if step == NEW_JOB else 0

    def add(self, uid: int, job: int, step: int) -> None:
        """Reserve the number for this user. `step` is NEW_JOB for the number of a job."""
        own = self._steps.setdefault(uid, {})
        if len(own) >= _MOST:
            del own[next(iter(own))]
        own[job, step] = None

    def has(self, job: int) -> bool:
        """Return True where any user has a number of this job."""
        return any(number[0] == job for own in self._steps.values() for number in own)

    def take(self, uid: int, job: int, step: int) -> bool:
        """Remove the number. Return True when this user had reserved the number."""
        own = self._steps.get(uid, {})
        if (job, step) not in own:
            return False
        del own[job, step]
        if not own:
            del self._steps[uid]
        return True


class FurtherSteps:
    """The further steps of the node's jobs, and the numbers of jobs and steps.

    `job_over(job)` is called when no step of a job runs any more.
    """

    def __init__(self, registry: Registry, store: Store, job_over: Callable[[int], None]) -> None:
        self._registry = registry
        self._job_over = job_over
        self._store = store
        self._running: dict[int, set[int]] = {}  # further steps by job
        self._given: dict[int, int] = {}  # by job: the highest number of a further step
        self._reserved = ReservedNumbers()
        self._elsewhere: dict[int, int] = {}  # by job elsewhere with parts of steps here: the user's uid
        self._released: dict[int, asyncio.Future[None]] = {}  # by job: the future for the end of a step
        self._wakes: dict[int, int] = {}  # by job: how often CPUs may have become free

    def reserve(self, call: Call, wanted: Step | None = None) -> Mapping[str, object]:
        """Reserve the number of a new job, or of a new step of a running job, for a later launch by the caller. Raises
        Refused.

        `wanted` is the step of that launch, if known.
        """
        uid = call.peer.uid
        job, step = int(str(call.parameters.get("jobid", 0))), 0
        if job:
            first = self._joined(job, None if uid == 0 else uid, uid)
            if wanted is not None:
                fit(wanted, first, call.parameters["request"])
            step = self._next(first)
            self._reserved.add(uid, job, step)
        else:
            job = self._reserved.oldest_job_if_full(uid) or self.new_job()
            self._reserved.add(uid, job, NEW_JOB)
        return {"job": job, "step": step}

    def first_for(self, request: Mapping[str, object], caller: int, uid: int) -> Step | None:
        """Return the first step of the job of a requested further step, to run as `uid`. Raises Refused.

        None where the request makes a new job.
        """
        job = request.get("jobid", request.get("job") if "step" in request else None)
        return None if job is None else self._joined(int(str(job)), uid, caller)

    def take(self, request: Mapping[str, object], caller: int, first: Step | None) -> tuple[int, int]:
        """Return job and number of a step, further to `first` where given. Raises Refused."""
        if "jobid" in request and first is not None:
            return first.job_id, self._next(first)
        if "job" not in request:
            return self.new_job(), 0
        job, step = int(str(request["job"])), 0 if first is None else int(str(request["step"]))
        if not self._reserved.take(caller, job, NEW_JOB if first is None else step):
            raise invalid("job", f"{step_name(job, step) if 'step' in request else job} was not reserved by you")
        return job, step

    def take_part(self, step: Step, jobs: Container[int]) -> None:
        """Claim the numbers of a step which is a part of a cluster's step. Raises Refused where the numbers are in use.

        The numbers may be in use by a job of this node (the scheduler has `jobs`), by another user's job, or by a step
        that runs or ran here.
        """
        key = step.job_id, step.step_id
        self.leave_out(step.job_id, step.uid, jobs)
        before = self._registry.batch.record(*key)
        if key in self._registry.live or (before is not None and not step.within):
            raise Refused("LaunchRefused", f"step {step} runs here already, or has", exit_status=1)
        if before is not None:  # a later cluster in the same job, or in a requeued job
            step.restart = int(str(before.get("restart", 0))) + 1

    def leave_out(self, job: int, uid: int, jobs: Container[int]) -> None:
        """Keep the number of this user's job elsewhere out of this node's own job numbers. Raises Refused.

        It is refused where a job of this node has or had the number (the scheduler has `jobs`), or where the number
        belongs to another user: users must not find their records mixed with those of others.
        """
        if self._elsewhere.get(job) == uid:
            return
        if job in jobs or self._registry.first(job) is not None or self._reserved.has(job):
            raise invalid("part", f"job: {job} is one of this node's own")
        known = (live.step for live in self._registry.with_files() if live.step.job_id == job)
        try:
            if any(step.uid != uid or step.part is None for step in known) or not self._store.is_elsewheres(job, uid):
                raise invalid("part", f"job: {job} was one of this node's own, or another user's")
            if self._store.least_job == 1:  # else this node's own numbers begin above those of other jobs
                self._store.pass_over(job)
        except sqlite3.Error as error:
            why = f"job {job} cannot be left out of this node's own: {error}"
            raise Refused("LaunchRefused", why, exit_status=1) from None
        if len(self._elsewhere) >= _MOST_ELSEWHERE:
            self._elsewhere.clear()
        self._elsewhere[job] = uid

    def give_back(self, request: Mapping[str, object], caller: int, job: int) -> None:
        """Give an unused job number from `take` back: to the caller if reserved by the caller, else to the store."""
        if "job" in request:
            self._reserved.add(caller, job, NEW_JOB)
        else:
            self._store.give_back(job)

    def must_wait(self, request: Mapping[str, object]) -> bool:
        """Return True where the request needs a new job number, and another process has locked the history."""
        return request.keys().isdisjoint(("job", "jobid", "part")) and self._store.must_wait()

    async def ready(self, request: Mapping[str, object]) -> None:
        """Wait a few seconds for the lock of the history, where `must_wait` is True. Raises Refused."""
        try:
            while self.must_wait(request):
                await patiently(self._store.draw)
        except sqlite3.Error as error:
            raise _no_number(error) from None

    def new_job(self) -> int:
        """Return a number never used by any job. Raises Refused."""
        try:
            while (job := self._store.next_job()) in self._elsewhere:
                pass  # the history may know nothing of that job yet
            return job
        except sqlite3.Error as error:
            raise _no_number(error) from None

    def _joined(self, job: int, uid: int | None, caller: int) -> Step:
        """Return the first step of a job open for further steps. Raises Refused.

        A job whose script or allocation has ended accepts no further step: its steps are being ended, and the job must
        not go on forever.
        """
        first = self._first(job, uid, caller)
        if first.step_id and (job, first.step_id) not in self._registry.live:
            raise Refused("NoSuchStep", f"no job {job} is running", exit_status=1, subject="unknown")
        return first

    def _first(self, job: int, uid: int | None, caller: int = 0) -> Step:
        """Return the first step of a running job of this user (None: of any user). Raises Refused.

        Only root learns that another user's job exists.
        """
        live = self._registry.first(job)
        if live is not None and live.key not in self._registry.live and job not in self._running:
            live = None  # its end has begun
        others = live is not None and uid not in (None, live.step.uid)
        if live is None or (others and caller != 0):
            raise Refused("NoSuchStep", f"no job {job} is running", exit_status=1, subject="unknown")
        if others:
            raise Refused("NotPermitted", f"job {job} belongs to {live.step.user_name}", exit_status=1)
        if live.in_prolog:
            raise Refused("NoSuchStep", f"job {job} has no step yet: its prolog is running", exit_status=1)
        return live.step

    def _next(self, first: Step) -> int:
        """Return the next step number of a job. Numbers count up, also over restarts of the daemon.

        This holds because each step of an earlier daemon runs or is in the history.
        """
        job = first.job_id
        if job not in self._given:
            least = 0 if first.step_id == 0 else -1
            ended = self._registry.batch.last_step(job, first.restart)
            self._given[job] = max(ended, *self._running.get(job, ()), least)
        self._given[job] += 1
        return self._given[job]

    def job_of(self, step: Step) -> Step:
        """Return the first step of this step's job, or the step itself where the step is a part.

        The job of a part is not this node's.
        """
        return step if step.is_first or step.part is not None else self._first(step.job_id, None)

    def running(self, job: int) -> list[LiveStep]:
        """Return the running steps of the job, including the first step."""
        first = self._registry.first(job)
        numbers = {*self._running.get(job, ()), *(() if first is None else (first.step.step_id,))}
        return [live for number in numbers if (live := self._registry.live.get((job, number))) is not None]

    def stands_still(self, job: int) -> bool:
        """Return True where steps of the job run and all are suspended."""
        running = self.running(job)
        return bool(running) and all(live.suspended for live in running)

    def released(self, job: int) -> asyncio.Future[None]:
        """Return a future, done at the next end of a step of the job: CPUs of the job may then be free."""
        return self._released.setdefault(job, asyncio.get_running_loop().create_future())

    def wakes(self, job: int) -> int:
        """Return how often `released` has been done, so a caller comparing two counts misses no release."""
        return self._wakes.get(job, 0)

    def add(self, step: Step) -> None:
        """Add a running further step."""
        self._running.setdefault(step.job_id, set()).add(step.step_id)

    def any_running(self, job: int) -> bool:
        """Return True while the job's end has to wait for further steps."""
        return job in self._running

    def wake(self, job: int) -> None:
        """Wake the calls waiting for CPUs of the job, because CPUs may be free."""
        self._wakes[job] = self.wakes(job) + 1
        if (waited_for := self._released.pop(job, None)) is not None and not waited_for.done():
            waited_for.set_result(None)

    def remove(self, step: Step) -> None:
        """Remove an ended step, first or further. With the last step the job is over."""
        self.wake(step.job_id)
        running = self._running.get(step.job_id, set())
        running.discard(step.step_id)
        if running:
            return
        self._running.pop(step.job_id, None)
        first = self._registry.first(step.job_id)
        if first is None or first.key not in self._registry.live:
            self._given.pop(step.job_id, None)
            self._wakes.pop(step.job_id, None)
        self._job_over(step.job_id)


def _no_number(error: sqlite3.Error) -> Refused:
    return Refused("LaunchRefused", f"no job id can be drawn from the history: {error}", exit_status=1)


def fit(step: Step, first: Step, request: Mapping[str, object]) -> None:
    """Make the step a further step of the job: in the container of `first`, within the limits of `first`. Raises
    Refused.
    """
    if request.get("container_ns"):
        raise invalid("container_ns", f"job {first.job_id} has the namespaces that its first step asked for")
    if first.memory and step.memory > first.memory:
        raise invalid("mem", f"{step.memory} MiB are more than the {first.memory} MiB of job {first.job_id}")
    wanted = {**first.shares, **shares.asked(request)}
    more = shares.beyond(wanted, first.shares)
    if more:
        most = f"{shares.said(more, first.shares)} of job {first.job_id}"
        raise invalid(shares.parameter_of(more), f"{shares.said(more, wanted)} is more than {most}")
    step.memory, step.shares = step.memory or first.memory, wanted
    step.container, step.first_step, step.restart = first.container, first.first_step, first.restart
    step.array_job, step.array_task = first.array_job, first.array_task
    step.job_began = first.submitted
    step.job_ends = first.submitted + first.time_limit if first.time_limit else 0
