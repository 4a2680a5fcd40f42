"""The MPI server of a part of a step over several nodes: the connection to the servers of the remaining nodes.

Runs in the process that becomes the server, as the user: the path is the user's, and what lies there may never answer.
"""

import _socket
import errno

from nodectl.kernel.identity import BEGAN_AS
from nodectl.launch.task import users_process
from nodectl.model import mpi_frames as frames
from nodectl.model.cpu_list import format_cpulist
from nodectl.model.wire import framing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from nodectl.launch.cgroup.tree import Group
    from nodectl.launch.confine.confinement import Confinement
    from nodectl.model.step import Step

_SECONDS = 5.0


def joining(environment: "dict[str, str]", keep: "list[int]") -> "Callable[..., bool]":
    """Return `users_process.become` for the server's process, extended to connect and to set the environment."""

    def join(step: "Step") -> None:
        others = _connect(step)
        keep.append(others)
        environment.update(_variables(step, others))

    def become(step: "Step", confinement: "Confinement", *, group: "Group | None", enter: "Callable[[], bool]") -> bool:
        if BEGAN_AS != 0:
            join(step)  # earlier than root's, because the job's container may hide the name of the agent
        if not users_process.become(step, confinement, group=group, enter=enter):
            return False
        if BEGAN_AS == 0:
            join(step)  # a part of root's service has no container
        return True

    return become


def _connect(step: "Step") -> int:
    """Return a socket to the agent, which has to be the user's. Raises OSError."""
    part = step.part
    if part is None:
        raise ValueError("a step on one node has no other parts")
    one = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        one.settimeout(_SECONDS)
        one.connect(part.exchange)
        if framing.peer_of(one).uid != step.uid:
            raise PermissionError(errno.EPERM, "it is not the user's who listens at part.exchange")
        one.sendall(frames.frame(part.nodeid, frames.HELLO, str(step).encode("ascii")))
        one.setblocking(True)
        return one.detach()
    finally:
        one.close()


def _variables(step: "Step", others: int) -> "dict[str, str]":
    """Return the further variables of the server's environment: `nodectl/model/mpi_server.py`."""
    return {
        "NODECTL_MPI_SIZE": str(step.total_tasks),
        "NODECTL_MPI_NUMBERS": format_cpulist(step.numbers),
        "NODECTL_MPI_NODE": str(step.nodeid),
        "NODECTL_MPI_NODE_NAME": step.node_name,
        "NODECTL_MPI_NODES": str(step.nnodes),
        "NODECTL_MPI_OTHERS": str(others),
    }
