"""The steps that this node knows, and who may see which: those that run, those whose job is being ended, and those that
are in the history or about to be.

One object per daemon, touched only from the event loop. It decides nothing about a step; it finds it.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from nodectl.daemon.history.batch import Batch
from nodectl.daemon.history.reset_notes import ResetNotes
from nodectl.daemon.history.store import Store
from nodectl.daemon.reception.permissions import Permissions
from nodectl.daemon.steps.energy import EnergyBook
from nodectl.daemon.steps.files import StepFiles
from nodectl.daemon.steps.live import LiveStep
from nodectl.model.step import Step
from nodectl.model.step_number import FIRST, FIRST_STEPS, step_name, step_number
from nodectl.wire.dispatch import Call, Refused
from nodectl.wire.shape import integer

if TYPE_CHECKING:
    from nodectl.wire.shape import Shape

JOB = integer(1, 2**32 - 1)
WHICH: "Shape" = {"job": JOB, "step": integer(0, 2**32 - 1)}  # the shape of a call that names a step


class EndingJob:
    """A job whose first step has ended, and the end of the job has not: that step, its record so far, its final one."""

    __slots__ = ("final", "live", "record")

    def __init__(self, live: LiveStep, record: Mapping[str, object]) -> None:
        self.live = live
        self.record = record
        self.final: asyncio.Future[Mapping[str, object]] = asyncio.get_running_loop().create_future()


class Registry:
    """See the module. The keys are (job, step); `directory` is where steps' files lie."""

    def __init__(self, store: Store, directory: str) -> None:
        self.directory = directory
        self.live: dict[tuple[int, int], LiveStep] = {}
        self.ending: dict[tuple[int, int], EndingJob] = {}
        self.batch = Batch(store)
        self.reset_notes = ResetNotes(store, self.live)
        self.permissions = Permissions()
        self.energy = EnergyBook(self.live)

    def files(self, job: int, step: int) -> StepFiles:
        """The files of a step, which may not be there."""
        return StepFiles(self.directory, job, step)

    def add(self, live: LiveStep) -> None:
        """From now on the step is one that runs."""
        self.live[live.key] = live
        self.reset_notes.begun()
        self.energy.begun(live.step.job_id, is_first=live.step.is_first)

    def find_live(self, call: Call) -> LiveStep | None:
        """The running step that a call names, None where it does not run. Raises Refused: its caller may not know."""
        key = self.which(call)
        live = self.live.get(key)
        if live is not None and not self.permissions.may_see(call.peer, live.step.uid):
            raise _none(*key)
        return live

    def find_running(self, call: Call) -> LiveStep:
        """Likewise. Raises Refused where it does not run, also where it has left its record: its client knows."""
        live = self.find_live(call)
        record = self.find_ended(call) if live is None else live.files.record()
        if live is None or record is not None:
            raise Refused("NoSuchStep", _has_ended(record))
        return live

    def find_ended(self, call: Call) -> Mapping[str, object]:
        """The record of an ended step that a call names. Raises Refused: its caller may not know, or nobody does."""
        job, step = self.which(call)
        ending = self.ending.get((job, step))
        record = self.batch.record(job, step) if ending is None else ending.record
        if record is None or not self.permissions.may_see(call.peer, record["uid"]):
            raise _none(job, step)
        return record

    def first(self, job: int) -> LiveStep | None:
        """The first step of a job that is not over: it runs, or it has ended and others have not. None where there is
        none.
        """
        for number in FIRST_STEPS:
            live = self.live.get((job, number))
            if live is None and (job, number) in self.ending:
                live = self.ending[job, number].live
            if live is not None and live.step.is_first:
                return live
        return None

    def steps_of(self, job: int) -> list[LiveStep]:
        """The job's steps that run."""
        return [live for (of_job, _), live in self.live.items() if of_job == job]

    def which(self, call: Call) -> tuple[int, int]:
        """The key of the step that a call names. FIRST is the first of a job that runs, or of one in the history."""
        job, step = call.parameters["job"], call.parameters["step"]
        if step != FIRST:
            return job, step
        live = self.first(job)
        known = (number for number in FIRST_STEPS[1:] if self.batch.record(job, number) is not None)
        return job, next(known, 0) if live is None else live.step.step_id

    def unfinished(self) -> Iterator[LiveStep]:
        """Steps that run, and those after which their jobs are being ended."""
        yield from self.live.values()
        yield from (ending.live for ending in self.ending.values())

    def with_files(self) -> Iterator[LiveStep]:
        """Likewise, and those that the history has not taken yet."""
        yield from self.unfinished()
        yield from self.batch.waiting()

    def holders(self) -> Iterator[Step]:
        """Steps that may hold devices, or CPUs for themselves. A step that has left its record holds nothing: its
        client may know of the end before we do. One within another manager's job has what that gave.
        """
        for live in self.live.values():
            if live.step.within:
                continue
            own = live.step.devices or live.step.step_cpus != live.step.allocation
            if not (own and live.files.has_record()):
                yield live.step

    def forkserver_answered(self, message: Mapping[str, object]) -> None:
        """The forkserver's answer to a step, or the news of its death."""
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


def _has_ended(record: Mapping[str, object] | None) -> str:
    record = record or {}
    return f"step {step_name(record['job'], record['step'])} has ended: {record['state']}"


def _none(job: int, step: int) -> Refused:
    return Refused("NoSuchStep", f"no step {step_name(job, step)} is running or in the history", subject="unknown")
