"""The server of a step's MPI plugin, as set by mpi_p_slurmstepd_prefork: `step.mpi_server = MpiServer(...)`.

The server runs as the step's user, confined like the step, and ends with the step. Its environment has

    NODECTL_MPI_TASKS     how many tasks there are
    NODECTL_MPI_JOB       job and step: 7.0
    NODECTL_MPI_LIFE      a descriptor at whose end the server must end: the step is over
    NODECTL_MPI_WORDS     a descriptor into which the server writes words for the step runner, a line each
    NODECTL_MPI_SOCKETS   where it is `connected`: a descriptor for each task, in their order, with ',' between them

and for a step over several nodes also

    NODECTL_MPI_SIZE      how many tasks there are on all nodes
    NODECTL_MPI_NUMBERS   the numbers in the step of the tasks here, 2-3; words have these
    NODECTL_MPI_NODE      the number of this node among the step's nodes, from 0 on
    NODECTL_MPI_NODE_NAME the name of this node
    NODECTL_MPI_NODES     how many nodes the step has
    NODECTL_MPI_OTHERS    a socket to the servers of the other nodes (`nodectl/model/mpi_frames.py`)

and it may write

    abort TASK CODE       the task has called MPI_Abort: the step ends
    within TASK           the task is within MPI: when it fails, the step ends
    without TASK          the task is not within MPI any more
    lost TASK             the task's connection ended before MPI_Finalize: the step ends, if the task failed
    stuck TASK            the other tasks wait for a task whose connection has ended: the step ends
    bad TASK              the task sends data outside of the protocol: the step ends
    full TASK             the task has stored more than there is room for: its user is told once
    deserted NODE         the tasks here wait for tasks of another node, which have all gone: the step ends
    apart NODE            the server of this node has lost the other servers: the step ends
    crowded NODE          the tasks have stored more than the servers give each other: the step ends
    spawn TASK            the task wants to start programs, and that was refused: its user is told once
    unserved TASK         the task wants what is served on one node only; refused, and its user is told once
    env NAME=VALUE        a variable of all tasks, if the server `announces`
    ready                 the tasks can start, if the server `announces`
    failed NUMBER         the tasks cannot start, if the server `announces`
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class MpiServer:
    """The program of an MPI server. `argv`: words, the first an absolute path.

    `connected`: each task has a socket to the server, its `mpi_fd`. `announces`: the tasks start when the server has
    sent their variables.
    """

    __slots__ = ("announces", "argv", "connected", "environment")

    def __init__(
        self, argv: "Sequence[str]", environment: "Mapping[str, str]", *, connected: bool = False,
        announces: bool = False,
    ) -> None:  # fmt: skip
        self.argv = list(argv)
        self.environment = dict(environment)
        self.connected = connected
        self.announces = announces
