"""Which steps a runner may serve that is kept: one that has served others of the same user, and will serve more.

Such a runner is root's, is charged to no job, and must be as it was when its next step comes. So nothing is called in
it but nodectl's own plugins, its step's processes are those of a cgroup, what its user makes it remember is small, and
its tasks take all that its client sent: what a pump takes copies of lies in a socket until the process ends that has
it. In a user's own node, where the runner is the user's, a step's processes may be its descendants: it ends if it has
a child left.
"""

import os

from nodectl.config import Config
from nodectl.model.step import Step
from nodectl.model.step_number import BATCH, EXTERN
from nodectl.plugin_host import BUILTIN_DIR
from nodectl.plugin_host.node_plugins import NodePlugins

_LARGEST = 1 << 19  # bytes of the step's files
_MOST_TASKS = 32  # each leaves 10 KiB in the runner, which no job is charged for
_COPIED = ("", "all", "-")  # a stdin of several tasks: by a pump
_BY_CGROUP, _BY_PARENT = "proctrack/cgroup", "proctrack/linuxproc"


class WarmRunners:
    """One object per daemon."""

    def __init__(self, config: Config, plugins: NodePlugins) -> None:
        ours = all(plugin.path.startswith(f"{BUILTIN_DIR}/") for stack in plugins.stacks.values() for plugin in stack)
        self._by_cgroup = config.proctrack_type == _BY_CGROUP
        # Others are not certain of what a step has started, or leave root's runner in no cgroup.
        tracked = self._by_cgroup or (config.proctrack_type == _BY_PARENT and os.geteuid() != 0)
        self._any = config.warm_runners > 0 and ours and tracked

    def of(self, step: Step, size: int) -> int | None:
        """The uid of the user whose runner may serve the step, None where it gets one of its own. `size`: bytes of its
        files.
        """
        if (
            not self._any
            or (self._by_cgroup and not step.cgroup)
            or step.stack
            or step.bulk
            or step.container
            or step.step_id in (BATCH, EXTERN)
            or step.ntasks > _MOST_TASKS
            or (step.ntasks > 1 and step.stdin in _COPIED)
            or step.label
            or step.unbuffered
            or step.pty
            or step.mpi
            or step.within
            or size > _LARGEST
        ):
            return None
        return step.uid
