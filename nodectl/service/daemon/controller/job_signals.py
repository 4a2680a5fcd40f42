"""Signals for jobs: from users, and as the warning before a job's time limit (sbatch's --signal).

The warning is sent once in each run of a job. Used only from the event loop.
"""

import asyncio
import contextlib
import time

from nodectl.kernel.signals import KILL
from nodectl.model.step_number import BATCH, EXTERN
from nodectl.model.warning import warning_of
from nodectl.model.wire.dispatch import Refused
from nodectl.selection.modes import RUNNING
from nodectl.selection.records import JobRecord
from nodectl.service.daemon.controller.core import Core
from nodectl.service.daemon.steps.live import LiveStep

_LOOK_AGAIN = 2.0  # while the job stands still, or its script has not begun
_LONGEST = 3600.0  # the clock may be set meanwhile


class JobSignals:
    """The signals of the node's jobs."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._timers: dict[int, asyncio.TimerHandle] = {}

    async def send(self, job: JobRecord, number: int, by: int, *, batch: bool) -> bool:
        """Send a signal to the steps of a job. Return True where the signal is meant for any step.

        By Slurm's rule the signal goes to all steps but the script, or to the script alone. The step that holds an
        allocation is no program of its user and receives only SIGKILL.
        """
        steps = [live for live in self._core.parts.registry.steps_of(job.job_id) if _is_meant(live, number, batch)]
        self._core.selection.job_signal(job, number)
        for live in steps:
            if not live.in_prolog:
                with contextlib.suppress(Refused):  # it has just ended, or is suspended
                    await live.order("Signal", {"signal": number, "by": by})
        return bool(steps)

    def watch(self, job: JobRecord) -> None:
        """Set the timer for the job's warning signal: the job has started, or the time limit has changed."""
        self.forget(job.job_id)
        if job.details.signal and job.time_limit and job.is_active and job.warned != job.restart_cnt:
            wait = min(max(self._left(job), 0.0), _LONGEST)
            self._timers[job.job_id] = asyncio.get_running_loop().call_later(wait, self._look, job)

    def forget(self, job_id: int) -> None:
        """Remove the timer of a job after the end of a run."""
        timer = self._timers.pop(job_id, None)
        if timer is not None:
            timer.cancel()

    @staticmethod
    def _left(job: JobRecord) -> float:
        end = job.start_time + job.time_limit + job.suspended_seconds
        return end - warning_of(job.details.signal).seconds - time.time()

    def _look(self, job: JobRecord) -> None:
        self._timers.pop(job.job_id, None)
        if self._core.table.jobs.get(job.job_id) is not job or not job.is_active:
            return
        if self._left(job) > 0:
            self.watch(job)
            return
        wanted = warning_of(job.details.signal)
        begun = [live for live in self._core.parts.registry.steps_of(job.job_id) if not live.in_prolog]
        if job.job_state != RUNNING or not begun:
            loop = asyncio.get_running_loop()
            self._timers[job.job_id] = loop.call_later(_LOOK_AGAIN, self._look, job)
            return
        job.warned = job.restart_cnt
        self._core.table.changed(job)
        self._core.table.commits.soon()
        self._core.tasks.begin(self._warn(job, wanted.number, batch=wanted.batch))

    async def _warn(self, job: JobRecord, number: int, *, batch: bool) -> None:
        await self.send(job, number, 0, batch=batch)

    def end(self) -> None:
        """Remove all timers, because the daemon ends. The next daemon sends the remaining signals."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


def _is_meant(live: LiveStep, number: int, batch: bool) -> bool:
    step = live.step.step_id
    if number == KILL and not batch:
        return True
    return step == BATCH if batch else step not in (BATCH, EXTERN)
