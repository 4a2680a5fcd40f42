"""Allocate and Await: a job with a waiting client, which launches the first step itself."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nodectl.model.states import PENDING
from nodectl.model.wire.dispatch import Call, Refused, invalid
from nodectl.model.wire.shape import Optional, an_object, boolean, text
from nodectl.selection.records import ALLOC, RUN, JobRecord
from nodectl.service.daemon.controller.job_names import name_of
from nodectl.service.daemon.jobs.further_steps import FurtherSteps
from nodectl.service.daemon.jobs.registry import JOB
from nodectl.service.daemon.methods.job_calls import JobCalls, no_job

if TYPE_CHECKING:
    from nodectl.model.wire.shape import Shape

_LONGEST_WAIT = 20.0  # seconds
ALLOCATE: "Shape" = {"request": an_object, "job": an_object, "held_by": text(16)}
AWAIT: "Shape" = {"job": JOB, "seen": text(1024), "step": Optional(boolean), "watch": Optional(boolean)}


class Allocate:
    """The allocation methods of the node. `lease`: seconds without an Await, after which a job is cancelled."""

    def __init__(self, calls: JobCalls, numbers: FurtherSteps, lease: float) -> None:
        self._calls = calls
        self._numbers = numbers
        self._longest = min(_LONGEST_WAIT, lease / 3)

    async def allocate(self, call: Call) -> Mapping[str, object]:
        """Add a job with a waiting client to the queue."""
        held_by = str(call.parameters["held_by"])
        if held_by not in (RUN, ALLOC):
            raise invalid("held_by", "run or alloc")
        wanted = await self._calls.wanted(call, held_by)
        await self._numbers.ready(wanted.numbered)
        wanted.job.job_id, _ = self._numbers.take(wanted.numbered, call.peer.uid, None)
        try:
            await self._calls.controller.submit(wanted.job)
        except Refused:
            self._numbers.give_back(wanted.numbered, call.peer.uid, wanted.job.job_id)
            raise
        return self._calls.accepted(wanted.job)

    async def wait(self, call: Call) -> Mapping[str, object]:
        """Answer when the job has changed."""
        controller, job_id = self._calls.controller, call.parameters["job"]
        job = controller.table.anywhere(job_id)
        may_see = job is not None and self._calls.permissions.may_see(call.peer, job.user_id)
        if job is None or (not may_see and self._calls.hides_others):
            raise no_job(str(job_id))
        if not may_see:
            raise Refused("NotPermitted", f"job {name_of(job)} is not yours")
        with contextlib.nullcontext() if call.parameters.get("watch") else controller.leases.asked(job_id):
            if call.parameters.get("step"):
                seen = await self._released(job_id, str(call.parameters["seen"]))
            else:
                await self._changed(job, str(call.parameters["seen"]))
                seen = ""
            answer = await self._answer(call, controller.table.get(job_id) or job)
        return {**answer, "seen": seen} if seen else answer

    async def _changed(self, job: JobRecord, seen: str) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._longest
        while _token(job) == seen and (left := until - loop.time()) > 0:
            await self._calls.controller.table.change(job.job_id, left)

    async def _released(self, job_id: int, seen: str) -> str:
        """Wait until CPUs of the job may be free, unless freed since `seen`. Return the number of releases, as text."""
        steps = self._calls.controller.parts.further_steps
        if seen == str(steps.wakes(job_id)):
            await asyncio.wait([steps.released(job_id)], timeout=self._longest)
        return str(steps.wakes(job_id))

    async def _answer(self, call: Call, job: JobRecord) -> Mapping[str, object]:
        why = await self._calls.explained(call, job) if job.job_state == PENDING else None
        start: float | None = job.start_time or None
        reason, words = job.state_reason, job.state_desc
        if why is not None and job.job_state == PENDING:
            reason, words, start = why.reason, why.words, why.expected_start
        return {"state": job.job_state, "reason": reason, "words": words, "start": start, "seen": _token(job)}


def _token(job: JobRecord) -> str:
    return f"{job.job_state} {job.state_reason} {job.restart_cnt} {hash(job.array_tasks)}"
