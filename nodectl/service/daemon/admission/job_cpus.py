"""The CPUs and devices of a job for the job's further steps.

A step takes all CPUs of its job, and waits while another step has any of them. With --exact it takes what it names, out
of the CPUs that no other step has. With --overlap it shares. The steps of a script and of an allocation take none;
where the configuration makes jobs share their CPUs by force, steps share theirs too. Used in the daemon's event loop;
no I/O.
"""

from collections.abc import Iterable

from nodectl.model.config import Config
from nodectl.model.step import Step
from nodectl.model.step_number import BATCH, EXTERN
from nodectl.model.wire.dispatch import Refused, invalid
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.service.daemon.admission.binder import Binder
from nodectl.service.daemon.jobs.further_steps import FurtherSteps
from nodectl.service.daemon.steps.live import LiveStep

BUSY = "Requested nodes are busy"


class JobCpus:
    """The CPUs of the node's jobs."""

    def __init__(self, config: Config, binder: Binder, further_steps: FurtherSteps) -> None:
        self._binder = binder
        self._further_steps = further_steps
        self._shared = config.over_subscribe.startswith("force")

    def claim(self, step: Step, first: Step) -> None:
        """Give a further step CPUs and devices of the job of `first`. Raises Refused, Busy where the step must wait."""
        self._binder.give(step, first.allocation)
        if self._further_steps.stands_still(first.job_id):
            raise _busy(first.job_id)
        others = [] if self._shared or step.layout.get("overlap") else list(self._holders(first.job_id))
        try:
            if others:
                self._keep_apart(step, first.job_id, others)
            self._give_devices(step, first, others)
        except NoLayout as error:
            raise invalid("layout", error.reason) from None

    def _holders(self, job: int) -> Iterable[Step]:
        """Yield the job's steps with CPUs for exclusive use.

        A step that has left its record has none: its client may know of the end before we do.
        """
        for live in self._further_steps.running(job):
            if not _shares(live) and not live.files.has_record():
                yield live.step

    def _keep_apart(self, step: Step, job: int, others: Iterable[Step]) -> None:
        used = 0
        for other in others:
            used |= other.step_cpus
        free = step.allocation & ~used
        if not self._binder.is_exact(step) or not self._binder.fits(step, free):
            raise _busy(job)
        step.base = step.step_cpus = free

    def _give_devices(self, step: Step, first: Step, others: Iterable[Step]) -> None:
        """Give a step all devices of the job, or the requested devices; an exact step without a request gets no
        devices.
        """
        asked = self._binder.asked(step)
        if not asked.count:
            step.devices = [] if self._binder.is_exact(step) else list(first.devices)
        elif first.devices:
            self._binder.choose(step, first.devices, ())  # more than the job has: never
            try:
                step.devices = self._binder.choose(step, first.devices, [key for one in others for key in one.devices])
            except NoLayout:
                raise _busy(first.job_id) from None


def _shares(live: LiveStep) -> bool:
    step = live.step
    return step.step_id in (BATCH, EXTERN) or bool(step.layout.get("overlap"))


def _busy(job: int) -> Refused:
    return Refused("Busy", BUSY, job=job)
