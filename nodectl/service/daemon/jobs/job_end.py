"""The end of a job, after the last step: the epilog, the end of the container, the release of the resources.

A job whose prolog has begun gets an epilog, from this daemon or the next one. Until then the files of its first step
stay, and one of them marks the pending epilog (`StepFiles.begin_prolog`). Runs in the daemon, as root.
"""

from collections.abc import Callable, Coroutine, Mapping

from nodectl import messages
from nodectl.service.daemon.jobs.background_tasks import BackgroundTasks
from nodectl.service.daemon.jobs.containers import Containers
from nodectl.service.daemon.jobs.prolog_epilog import PrologEpilog
from nodectl.service.daemon.jobs.registry import EndingJob
from nodectl.service.daemon.jobs.resources import Resources
from nodectl.service.daemon.steps.live import LiveStep


class JobEnds:
    """The ends of the node's jobs, in the background as `tasks`.

    `ending` holds the jobs being ended, by the key of their first step. `empty(path)` empties a step's cgroup.
    `ending_begins(job)` is called before a job's end begins, `done(live, record)` after it, with the first step and its
    record for the history.
    """

    def __init__(
        self,
        parts: tuple[PrologEpilog, Containers, Resources],
        ending: dict[tuple[int, int], EndingJob],
        tasks: BackgroundTasks,
        empty: Callable[[str], Coroutine[object, object, object]],
        ending_begins: Callable[[int], None],
        done: Callable[[LiveStep, Mapping[str, object]], None],
    ) -> None:
        self._prolog_epilog, self._containers, self._resources = parts
        self._ending = ending
        self._tasks = tasks
        self._empty = empty
        self._ending_begins = ending_begins
        self._done = done
        self._waiting: dict[int, EndingJob] = {}  # jobs whose first step has ended and another has not

    def is_needed(self, live: LiveStep) -> bool:
        """Return True when an epilog or the deletion of a container follows this first step of a job."""
        return live.needs_epilog or self._containers.must_delete(live.step)

    def begin(self, live: LiveStep, record: Mapping[str, object], *, waits: bool) -> None:
        """Begin the end of a job after the first step has ended. `waits`: further steps of the job still run.

        Then the job ends when the last further step has ended (`release`), and the caller ends the further steps of a
        script or an allocation.
        """
        if live.needs_epilog or live.files.record() is None:
            _keep(live, record)
        self._ending[live.key] = EndingJob(live, record)
        if waits:
            self._waiting[live.step.job_id] = self._ending[live.key]
            self._tasks.begin(self._empty(live.step.cgroup))
        else:
            self._ending_begins(live.step.job_id)
            self._tasks.begin(self._end(self._ending[live.key]))

    def release(self, job: int) -> None:
        """End a waiting job, because no step of the job runs any more."""
        if job in self._waiting:
            self._ending_begins(job)
            self._tasks.begin(self._end(self._waiting.pop(job)))

    async def _end(self, ending: EndingJob) -> None:
        live, record = ending.live, ending.record
        await self._empty(live.step.cgroup)
        if live.needs_epilog:
            record = _noted(live, record, await self._prolog_epilog.epilog(live, record), "epilog")
            await self._prolog_epilog.end_epilog(live)
        if self._containers.must_delete(live.step):
            record = _noted(live, record, await self._containers.delete(live), "container")
        record = self.released(live, record)
        live.files.end_epilog()
        del self._ending[live.key]
        self._done(live, record)
        ending.final.set_result(record)

    def released(self, live: LiveStep, record: Mapping[str, object]) -> Mapping[str, object]:
        """Release the job's resources, as the last action. Return the job's final record."""
        return _noted(live, record, self._resources.release(live), "resources")


def _noted(live: LiveStep, record: Mapping[str, object], why: str, what: str) -> Mapping[str, object]:
    """Return the record, with a note of a failure after the step."""
    if why:
        record = {**record, what: why}
        _keep(live, record)
    return record


def _keep(live: LiveStep, record: Mapping[str, object]) -> None:
    """Write the record for the next daemon, should this daemon end early. A full disk does not stop the epilog."""
    try:
        live.files.write_record(record)
    except OSError as error:
        told = f"write the record of job {live.step.job_id} before its epilog: {error.strerror}"
        messages.tell("record-not-written", told, job=live.step.job_id, uid=live.step.uid)
