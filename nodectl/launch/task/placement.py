"""The wait of a task for the tracker, before the task joins the job's container.

job_container plugins may rely on this order. The built-in trackers have a task from its fork on. With a site's own
tracker the task waits until its stepd has called proctrack_p_add.
"""

import os

from nodectl.model import launch_order
from nodectl.plugin_host import BUILTIN_DIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.plugin_host.node_plugins import NodePlugins
    from nodectl.plugin_host.tracing.progress import Progress


def must_wait(node: "NodePlugins") -> bool:
    """Return True if tasks have to wait for the tracker."""
    joins = launch_order.CONTAINER_ADD_PID.call in node.container.hooks
    return joins and not node.proctrack.path.startswith(BUILTIN_DIR)


class PlacementPipe:
    """The pipe on which a task waits."""

    __slots__ = ("_reader", "_writer")

    def __init__(self) -> None:
        self._reader = self._writer = -1

    def prepare(self) -> None:
        """Make the pipe in the stepd, right before the fork. Raises OSError.

        Not earlier: a task that had the writing end of a later task's pipe would keep that task waiting when the stepd
        dies.
        """
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC)

    def forked(self) -> None:
        """Close the reading end in the stepd, which only the task needs."""
        os.close(self._reader)
        self._reader = -1

    def wait(self, progress: "Progress", slot: int) -> None:
        """Wait in the task. If the tracker does not take the task, the task ends as at the gate."""
        progress.enter(slot, launch_order.GATE)
        os.close(self._writer)
        if not os.read(self._reader, 1):
            os._exit(1)
        os.close(self._reader)

    def done(self) -> None:
        """Let the task go on, from the stepd: the tracker has the task, which may have ended already."""
        try:
            os.write(self._writer, b"1")
        except BrokenPipeError:
            pass

    def close(self) -> None:
        """Close the open ends, in the stepd."""
        for fd in (self._reader, self._writer):
            if fd >= 0:
                os.close(fd)
