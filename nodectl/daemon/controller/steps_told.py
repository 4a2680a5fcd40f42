"""What the select plugin is told of steps: it may pick their nodes, and hears of their kills and ends."""

import time

from nodectl.daemon.controller.core import Core
from nodectl.model.step import Step
from nodectl.selection.records import StepRecord


class StepsTold:
    """The steps of this node's jobs that run, as records of the select interface."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._steps: dict[int, dict[int, StepRecord]] = {}
        self._killed: set[tuple[int, int]] = set()  # of these, job and step

    def begins(self, job_id: int, number: int, ntasks: int) -> str:
        """A step is about to be started. Returns what the plugin keeps of it, packed, for `go_on`."""
        job = self._core.table.jobs.get(job_id)
        if job is None:
            return ""
        step = StepRecord(job, number, num_tasks=ntasks, start_time=time.time())
        self._core.selection.step_pick_nodes(job, step, 1)
        self._steps.setdefault(job_id, {})[number] = step
        return self._core.selection.info.pack_step(step)

    def go_on(self, found: Step) -> None:
        """A step that an earlier daemon has started runs."""
        job = self._core.table.jobs.get(found.job_id)
        if job is None:
            return
        step = StepRecord(job, found.step_id, num_tasks=found.ntasks, start_time=found.submitted)
        step.step_node_bitmap = None if job.node_bitmap is None else job.node_bitmap.copy()
        self._core.selection.info.unpack_step(step, found.select_packed)
        self._steps.setdefault(found.job_id, {})[found.step_id] = step

    def killed(self, job_id: int, number: int | None = None) -> None:
        """The processes of this step, or of all steps of the job, are about to be killed. The plugin hears of each step
        once.
        """
        for step in self._steps.get(job_id, {}).values():
            if number in (None, step.step_id) and (job_id, step.step_id) not in self._killed:
                self._killed.add((job_id, step.step_id))
                self._core.selection.step_finish(step, killing_step=True)

    def over(self, job_id: int, number: int) -> None:
        """A step has ended, with all its processes."""
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
