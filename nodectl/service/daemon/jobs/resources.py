"""Calls of task plugins about a job's resources: reserve before the first step, release at the end, suspend, resume.

Plugins give the resources up while all steps of the job are suspended. Runs in the daemon, as root. A new daemon
continues where the last daemon ended. Plugins without these functions cost nothing.
"""

import os
from collections.abc import Mapping

from nodectl import messages
from nodectl.model import launch_order
from nodectl.model.config import Config
from nodectl.model.launch_order import Hook
from nodectl.plugin_host.caller import OK, Outcome, PluginCaller
from nodectl.plugin_host.node_plugins import NodePlugins
from nodectl.plugin_host.tracing.recorder import Recorder
from nodectl.service.daemon.jobs.task_plugins import call_task_plugins
from nodectl.service.daemon.steps.live import LiveStep


class Resources:
    """The resources of the node's jobs. `live` holds the running steps."""

    def __init__(self, config: Config, plugins: NodePlugins, live: Mapping[tuple[int, int], LiveStep]) -> None:
        self._config = config
        self._plugins = plugins
        self._live = live
        self._given_up: set[int] = set()  # jobs whose suspension the plugins know

    def reserve(self, live: LiveStep, trace: int) -> None:
        """Reserve the resources before a job's first step. Raises Refused; then the caller releases the resources."""
        step = live.step
        if step.is_first and self._plugins.has(launch_order.TASK_SLURMD_RESERVE_RESOURCES):
            live.reserved = True
            call_task_plugins(
                step, self._plugins, trace, step.hook_timeout, launch_order.TASK_SLURMD_RESERVE_RESOURCES, (step, 0)
            )

    def release(self, live: LiveStep) -> str:
        """Release the resources of an ended job; `live` was the first step. Return the error as a single line, also
        logged.

        Returns "" for no error.
        """
        live.reserved = False
        self._given_up.discard(live.step.job_id)
        return self._call(live, launch_order.TASK_SLURMD_RELEASE_RESOURCES).why

    def found_suspended(self) -> None:
        """Note, at the daemon's start, the jobs suspended by an earlier daemon: all steps of these jobs stand still."""
        self._given_up = {live.step.job_id for live in self._live.values() if self._stands_still(live)}

    def has_given_up(self, job: int) -> bool:
        """Return True where the job is suspended, and the plugins know."""
        return job in self._given_up

    def is_to_be_given_up(self, live: LiveStep) -> bool:
        """Return True when all steps of the job stand still, and the plugins do not know yet."""
        return live.step.job_id not in self._given_up and self._stands_still(live)

    def suspend(self, live: LiveStep) -> str:
        """Have the plugins give up a suspended job's resources. Return why a plugin refuses, "" where all agree.

        Until `resume` the job counts as given up, since earlier plugins of the stack may have agreed.
        """
        self._given_up.add(live.step.job_id)
        return self._call(live, launch_order.TASK_SLURMD_SUSPEND_JOB).why

    def resume(self, live: LiveStep) -> str:
        """Have the plugins take the resources back, before a step runs again. Return why the step cannot run, "" where
        allowed.
        """
        job = live.step.job_id
        if job not in self._given_up:
            return ""
        outcome = self._call(live, launch_order.TASK_SLURMD_RESUME_JOB)
        if outcome:
            self._given_up.remove(job)
        return outcome.why

    def _stands_still(self, live: LiveStep) -> bool:
        return all(one.suspended for one in self._live.values() if one.step.job_id == live.step.job_id)

    def _trace(self, live: LiveStep) -> int:
        """Return the trace's descriptor, -1 for none. A failed open is ignored, because the job is more important."""
        try:
            return live.files.append_trace() if self._config.trace else -1
        except OSError:
            return -1

    def _call(self, live: LiveStep, row: Hook) -> Outcome:
        if not self._plugins.has(row):
            return OK
        job = live.step.job_id
        trace = self._trace(live)
        try:
            caller = PluginCaller(Recorder(trace, "daemon"), None, 0, live.step.hook_timeout, single_threaded=False)
            messages.concerns(job)
            outcome = self._plugins.call(caller, row, (job,))
            messages.concerns(0)
        finally:
            if trace >= 0:
                os.close(trace)
        if not outcome:
            outcome.why = f"job {job}: {outcome.why}"
            messages.tell("plugin-failed", outcome.why, job=job, uid=live.step.uid)
        return outcome
