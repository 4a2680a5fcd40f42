"""Submit and TestOnly: add a batch job to the queue, or test when and where a job would start."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nodectl.model.config import Config
from nodectl.model.wire.dispatch import Call, Refused, invalid, subject
from nodectl.model.wire.shape import an_object
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.selection.answers import Refusal
from nodectl.selection.modes import SELECT_MODE_WILL_RUN
from nodectl.selection.records import BATCH
from nodectl.service.daemon.controller.options import SCRIPT
from nodectl.service.daemon.history.batch_text import BatchText, packing
from nodectl.service.daemon.jobs.further_steps import FurtherSteps
from nodectl.service.daemon.methods.job_calls import JobCalls
from nodectl.service.daemon.methods.rewrite import checked_script, shown_command

if TYPE_CHECKING:
    from nodectl.model.wire.shape import Shape

SUBMIT: "Shape" = {"request": an_object, "job": an_object, "script": SCRIPT}
TEST_ONLY: "Shape" = {"request": an_object, "job": an_object}


class Submit:
    """The submission methods of the node."""

    def __init__(self, config: Config, calls: JobCalls, numbers: FurtherSteps) -> None:
        self._config = config
        self._calls = calls
        self._numbers = numbers

    async def submit(self, call: Call) -> Mapping[str, object]:
        """Add a batch job to the queue."""
        script = checked_script(str(call.parameters["script"]), self._config.max_script_size)
        wanted = await self._calls.wanted(call, BATCH)
        if wanted.step.bulk:
            raise invalid("bulk", "a script waits for no client that could send commands")
        if wanted.step.pty:
            raise invalid("pty", "a script has no client whose terminal could be shown")
        job = wanted.job
        job.details.argv = shown_command(wanted.step.argv, script)
        options = call.parameters["job"]  # which `wanted` has checked
        job.array_tasks = str(options.get("array") or "")
        kept = {name: value for name, value in wanted.request.items() if name not in ("job", "step", "jobid")}
        if wanted.level != self._config.secure:  # perhaps that of the caller's own step, which a repetition keeps
            kept["secure"] = wanted.level
        kept_request = {"request": kept, "caller": call.peer.uid, "level": wanted.level, "job": options}
        text = BatchText(job.user_id, kept_request, script)
        batch = await self._calls.work().through(packing(text))
        await self._numbers.ready(wanted.numbered)
        job.job_id, _ = self._numbers.take(wanted.numbered, call.peer.uid, None)
        if job.array_tasks:
            job.array_job_id = job.job_id
        try:
            await self._calls.controller.submit(job, batch)
        except Refused:
            self._numbers.give_back(wanted.numbered, call.peer.uid, job.job_id)
            raise
        return self._calls.accepted(job)

    async def test_only(self, call: Call) -> Mapping[str, object]:
        """Return when and where a job would start."""
        wanted = await self._calls.wanted(call, BATCH)
        await self._numbers.ready({})
        scheduler, selection, now = self._calls.controller.scheduler, self._calls.controller.selection, time.time()
        job = wanted.job
        job.job_id = self._numbers.new_job()
        try:
            scheduler.submit(job, now)
        except NotAdmitted as error:
            raise Refused("LaunchRefused", str(error), exit_status=1, **subject(error.subject)) from None
        finally:
            self._numbers.give_back({}, call.peer.uid, job.job_id)
        expected = scheduler.expected_start(job, now)
        choice = selection.job_test(job, SELECT_MODE_WILL_RUN, candidates=None, now=now)
        scheduler.cancel(job, now)
        if isinstance(choice, Refusal):
            raise Refused("LaunchRefused", choice.reason, exit_status=1)
        names = [node.name for node, bit in zip(selection.nodes, choice.nodes, strict=True) if bit]
        start = max(expected or now, choice.start_time, job.details.begin_time)
        return {
            "start": float(start), "nodes": ",".join(names), "cpus": choice.resources.ncpus, "job": job.job_id,
            "partition": job.partition,
        }  # fmt: skip
