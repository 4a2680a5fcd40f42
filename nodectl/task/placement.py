"""A task joins its job's container only when its tracker has the task: job_container plugins may rely on that.

The built-in trackers have a task from its fork on. With a site's own tracker the task waits until its stepd has called
proctrack_p_add.
"""

import os

from nodectl.model.launch_order import ROWS
from nodectl.plugin_host import BUILTIN_DIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.plugin_host.node_plugins import NodePlugins
    from nodectl.tracing.progress import Progress


def must_wait(node: "NodePlugins") -> bool:
    """True where tasks have to wait for their tracker."""
    return "container_p_add_pid" in node.container.hooks and not node.proctrack.path.startswith(BUILTIN_DIR)


class Placement:
    """The pipe on which one task waits."""

    __slots__ = ("_reader", "_writer")

    def __init__(self) -> None:
        self._reader = self._writer = -1

    def prepare(self) -> None:
        """In the stepd, right before the fork. Raises OSError.

        Not earlier: a task that had the writing end of a later task's pipe would keep that task waiting when the stepd
        dies.
        """
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC)

    def forked(self) -> None:
        """In the stepd: closes the reading end, which only the task needs."""
        os.close(self._reader)
        self._reader = -1

    def wait(self, progress: "Progress", slot: int) -> None:
        """In the task. Where the tracker does not take it, the task ends as at the gate."""
        progress.enter(slot, ROWS["gate"])
        os.close(self._writer)
        if not os.read(self._reader, 1):
            os._exit(1)
        os.close(self._reader)

    def done(self) -> None:
        """In the stepd: the tracker has the task, which may have ended already."""
        try:
            os.write(self._writer, b"1")
        except BrokenPipeError:
            pass

    def close(self) -> None:
        """In the stepd: closes what is still open."""
        for fd in (self._reader, self._writer):
            if fd >= 0:
                os.close(fd)
