"""Decides which steps a warm runner may serve: a stepd kept after a step, for later steps of the same user.

Such a runner is root's, is charged to no job, and must be unchanged when its next step comes. So it calls no plugins
but nodectl's own, its step's processes are those of a cgroup, its user can make it remember little, and its tasks take
everything that its client sent: input that a relay process copies would stay in a socket until that process ends. On a
user's own node, where the runner is the user's, a step's processes may be its descendants; the runner ends if it has a
child left.
"""

import os

from nodectl.model.config import Config
from nodectl.model.step import Step
from nodectl.model.step_number import BATCH, EXTERN
from nodectl.plugin_host.node_plugins import NodePlugins

_LARGEST = 1 << 19  # bytes of the step's files
_MOST_TASKS = 32  # each leaves 10 KiB in the runner, which no job is charged for
_COPIED = ("", "all", "-")  # a stdin of several tasks, copied by a relay process
_BY_CGROUP, _BY_PARENT = "proctrack/cgroup", "proctrack/linuxproc"


class WarmRunners:
    """The daemon's rule for warm runners."""

    def __init__(self, config: Config, plugins: NodePlugins) -> None:
        self._by_cgroup = config.proctrack_type == _BY_CGROUP
        # Other trackers may miss processes of a step, or leave root's runner in no cgroup.
        tracked = self._by_cgroup or (config.proctrack_type == _BY_PARENT and os.geteuid() != 0)
        self._any = config.warm_runners > 0 and plugins.are_ours and tracked

    def of(self, step: Step, size: int) -> int | None:
        """Return the user's uid if a warm runner of the user may serve the step, else None.

        `size`: bytes of the step's files.
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
            or step.has_viewers
            or step.mpi
            or step.preload
            or step.within
            or size > _LARGEST
        ):
            return None
        return step.uid
