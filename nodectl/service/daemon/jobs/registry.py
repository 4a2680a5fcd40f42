"""The steps known to this node, and which user may see which: running steps, ending steps, and steps in the history.

One object per daemon, used only from the event loop. It makes no decisions about a step; it finds steps. An ending step
is one whose job is being ended; the history includes the steps about to be written.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from nodectl.model.step import Step
from nodectl.model.step_number import FIRST, FIRST_STEPS, step_name, step_number
from nodectl.model.wire.dispatch import Call, Refused
from nodectl.model.wire.shape import integer
from nodectl.service.daemon.connections.permissions import Permissions
from nodectl.service.daemon.history.batch import Batch
from nodectl.service.daemon.history.reset_notes import ResetNotes
from nodectl.service.daemon.history.store import Store
from nodectl.service.daemon.steps.energy import EnergyBook
from nodectl.service.daemon.steps.files import StepFiles
from nodectl.service.daemon.steps.live import LiveStep

if TYPE_CHECKING:
    from nodectl.model.wire.shape import Shape

JOB = integer(1, 2**32 - 1)
WHICH: "Shape" = {"job": JOB, "step": integer(0, 2**32 - 1)}  # the shape of a call that names a step


class EndingJob:
    """A job being ended after the end of the first step: the step, the record so far, the final record as a future."""

    __slots__ = ("final", "live", "record")

    def __init__(self, live: LiveStep, record: Mapping[str, object]) -> None:
        self.live = live
        self.record = record
        self.final: asyncio.Future[Mapping[str, object]] = asyncio.get_running_loop().create_future()


class Registry:
    """The registry of steps. The keys are (job, step); `directory` holds the files of steps."""

    def __init__(self, store: Store, directory: str) -> None:
        self.directory = directory
        self.live: dict[tuple[int, int], LiveStep] = {}
        self.ending: dict[tuple[int, int], EndingJob] = {}
        self.batch = Batch(store)
        self.reset_notes = ResetNotes(store, self.live)
        self.permissions = Permissions()
        self.energy = EnergyBook(self.live)

    def files(self, job: int, step: int) -> StepFiles:
        """Return the files of a step, which may not exist."""
        return StepFiles(self.directory, job, step)

    def add(self, live: LiveStep) -> None:
        """Add a running step."""
        self.live[live.key] = live
        self.reset_notes.begun()
        self.energy.begun(live.step.job_id, is_first=live.step.is_first)

    def find_live(self, call: Call) -> LiveStep | None:
        """Return the running step named by a call, None where the step does not run.

        Raises Refused where the caller may not know of the step.
        """
        live = self.live.get(self.which(call))
        if live is not None and not self.permissions.may_see(call.peer, live.step.uid):
            raise _none(call)
        return live

    def find_running(self, call: Call) -> LiveStep:
        """Return the running step named by a call. Raises Refused where the step does not run or the caller may not
        know.

        A step that has left its record counts as ended, because its client knows of the end.
        """
        live = self.find_live(call)
        record = self.find_ended(call) if live is None else live.files.record()
        if live is None or record is not None:
            raise Refused("NoSuchStep", _has_ended(record))
        return live

    def find_ended(self, call: Call) -> Mapping[str, object]:
        """Return the record of the ended step named by a call.

        Raises Refused where the caller may not know of the step, or where no step of this name is known.
        """
        job, step = self.which(call)
        ending = self.ending.get((job, step))
        record = self.batch.record(job, step) if ending is None else ending.record
        if record is None or not self.permissions.may_see(call.peer, record["uid"]):
            raise _none(call)
        return record

    def first(self, job: int) -> LiveStep | None:
        """Return the first step of an unfinished job: running, or ended before the further steps. None for none."""
        for number in FIRST_STEPS:
            live = self.live.get((job, number))
            if live is None and (job, number) in self.ending:
                live = self.ending[job, number].live
            if live is not None and live.step.is_first:
                return live
        return None

    def steps_of(self, job: int) -> list[LiveStep]:
        """Return the job's running steps."""
        return [live for (of_job, _), live in self.live.items() if of_job == job]

    def commands_of_jobs(self) -> Mapping[int, Mapping[str, int]]:
        """Return how far the commands of bulk steps are, by job: done, failed and, if known for all steps, total."""
        found: dict[int, Mapping[str, int]] = {}
        for (job, _), live in self.live.items():
            if live.commands:
                before = found.get(job)
                found[job] = live.commands if before is None else _sums(before, live.commands)
        return found

    def which(self, call: Call) -> tuple[int, int]:
        """Return the key of the step named by a call. FIRST is the first step of a running job, or of a job in the
        history.
        """
        job, step = call.parameters["job"], call.parameters["step"]
        if step != FIRST:
            return job, step
        live = self.first(job)
        known = (number for number in FIRST_STEPS[1:] if self.batch.record(job, number) is not None)
        return job, next(known, 0) if live is None else live.step.step_id

    def unfinished(self) -> Iterator[LiveStep]:
        """Yield running steps, and ended first steps of jobs being ended."""
        yield from self.live.values()
        yield from (ending.live for ending in self.ending.values())

    def with_files(self) -> Iterator[LiveStep]:
        """Yield the unfinished steps, and the steps not yet written to the history."""
        yield from self.unfinished()
        yield from self.batch.waiting()

    def holders(self) -> Iterator[Step]:
        """Yield the steps which may hold devices, or CPUs for exclusive use.

        A step that has left its record holds nothing: its client may know of the end before we do. Nor does a step
        within another manager's job, which has what that job gave it.
        """
        for live in self.live.values():
            if live.step.within:
                continue
            own = live.step.devices or live.step.step_cpus != live.step.allocation
            if not (own and live.files.has_record()):
                yield live.step

    def forkserver_answered(self, message: Mapping[str, object]) -> None:
        """Handle the forkserver's answer about a step, or the death of the forkserver."""
        if message.get("lost"):
            for live in list(self.live.values()):
                if live.pid == 0 and not live.in_prolog and not live.files.alive():
                    live.fail(str(message["error"]))
            return
        job, _, number = str(message["step"]).partition(".")
        found = self.live.get((int(job), step_number(number) or 0))
        if found is None:
            return
        if "pid" in message:
            found.watch(int(str(message["pid"])), has_taken_it=not message.get("waited"))
        else:
            found.fail(str(message["error"]))


def _sums(one: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    """Return the sums of the counts that both have."""
    return {name: count + other[name] for name, count in one.items() if name in other}


def _has_ended(record: Mapping[str, object] | None) -> str:
    record = record or {}
    return f"step {step_name(record['job'], record['step'])} has ended: {record['state']}"


def _none(call: Call) -> Refused:
    """Return the refusal of a step. It does not tell which first step another user's job has, or whether it has one."""
    job, step = call.parameters["job"], call.parameters["step"]
    step = 0 if step == FIRST else step
    return Refused("NoSuchStep", f"no step {step_name(job, step)} is running or in the history", subject="unknown")
