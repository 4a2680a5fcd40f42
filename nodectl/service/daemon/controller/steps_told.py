"""Reports of steps to the select plugin: the plugin may pick the nodes of a step, and learns of kills and ends."""

import time

from nodectl.model.step import Step
from nodectl.selection.records import StepRecord
from nodectl.service.daemon.controller.core import Core


class StepsTold:
    """The running steps of this node's jobs, as records of the select interface."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._steps: dict[int, dict[int, StepRecord]] = {}
        self._killed: set[tuple[int, int]] = set()  # of these, job and step

    def begins(self, job_id: int, number: int, ntasks: int) -> str:
        """Report a step about to start. Return the plugin's packed data of the step, for `go_on`."""
        job = self._core.table.jobs.get(job_id)
        if job is None:
            return ""
        step = StepRecord(job, number, num_tasks=ntasks, start_time=time.time())
        self._core.selection.step_pick_nodes(job, step, 1)
        self._steps.setdefault(job_id, {})[number] = step
        return self._core.selection.info.pack_step(step)

    def go_on(self, found: Step) -> None:
        """Restore the record of a running step from an earlier daemon."""
        job = self._core.table.jobs.get(found.job_id)
        if job is None:
            return
        step = StepRecord(job, found.step_id, num_tasks=found.ntasks, start_time=found.submitted)
        step.step_node_bitmap = None if job.node_bitmap is None else job.node_bitmap.copy()
        self._core.selection.info.unpack_step(step, found.select_packed)
        self._steps.setdefault(found.job_id, {})[found.step_id] = step

    def killed(self, job_id: int, number: int | None = None) -> None:
        """Report this step, or every step of the job, as about to be killed.

        The plugin is told once for each step.
        """
        for step in self._steps.get(job_id, {}).values():
            if number in (None, step.step_id) and (job_id, step.step_id) not in self._killed:
                self._killed.add((job_id, step.step_id))
                self._core.selection.step_finish(step, killing_step=True)

    def over(self, job_id: int, number: int) -> None:
        """Report an ended step; all processes of the step are gone."""
        job = self._core.table.jobs.get(job_id)
        steps = self._steps.get(job_id, {})
        step = steps.pop(number, None)
        self._killed.discard((job_id, number))
        if not steps:
            self._steps.pop(job_id, None)
        if step is None and job is not None:  # an earlier daemon's
            step = StepRecord(job, number)
        if step is not None:
            self._core.selection.step_finish(step, killing_step=False)
