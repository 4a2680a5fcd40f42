"""The MPI server of a part of a step over several nodes: how it reaches those of the others. Runs in the stepd."""

import _socket
import errno

from nodectl.kernel.identity import effective_user
from nodectl.model import mpi_frames as frames
from nodectl.model.cpu_list import format_cpulist
from nodectl.wire import framing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.model.step import Step

_SECONDS = 5.0


def connect(step: "Step") -> int:
    """A socket to the agent, for the server, from which a job's container may hide the agent's name. Raises OSError.

    The user names it, and the user's server gets it: so the stepd connects as the user, and to nobody but the user.
    """
    part = step.part
    if part is None:
        raise ValueError("a step on one node has no other parts")
    one = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        one.settimeout(_SECONDS)
        with effective_user(step.identity):
            one.connect(part.exchange)
        if framing.peer_of(one).uid != step.uid:
            raise PermissionError(errno.EPERM, "it is not the user's who listens at part.exchange")
        one.sendall(frames.frame(part.nodeid, frames.HELLO, str(step).encode("ascii")))
        one.setblocking(True)
        return one.detach()
    finally:
        one.close()


def variables(step: "Step", others: int) -> "dict[str, str]":
    """What a server is told besides: `nodectl/model/mpi_server.py`."""
    return {
        "NODECTL_MPI_SIZE": str(step.total_tasks),
        "NODECTL_MPI_NUMBERS": format_cpulist(step.numbers),
        "NODECTL_MPI_NODE": str(step.nodeid),
        "NODECTL_MPI_NODE_NAME": step.node_name,
        "NODECTL_MPI_NODES": str(step.nnodes),
        "NODECTL_MPI_OTHERS": str(others),
    }
