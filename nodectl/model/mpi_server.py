"""What the server of a step's MPI plugin is, as mpi_p_slurmstepd_prefork says it: `step.mpi_server = MpiServer(...)`.

It runs as the step's user, confined as the step is, and ends with it. It finds in its environment

    NODECTL_MPI_TASKS     how many tasks there are
    NODECTL_MPI_JOB       job and step: 7.0
    NODECTL_MPI_LIFE      a descriptor at whose end it has to end: the step is over
    NODECTL_MPI_WORDS     a descriptor into which it writes what the step runner has to know, a line each
    NODECTL_MPI_SOCKETS   where it is `connected`: a descriptor for each task, in their order, with ',' between them

and of a step over several nodes besides

    NODECTL_MPI_SIZE      how many tasks there are on all nodes
    NODECTL_MPI_NUMBERS   the numbers in the step of the tasks here, 2-3; words have these
    NODECTL_MPI_NODE      which of its nodes this is, from 0 on
    NODECTL_MPI_NODE_NAME the name of this one
    NODECTL_MPI_NODES     how many it has
    NODECTL_MPI_OTHERS    a socket by which it reaches the servers of the others (`nodectl/model/mpi_frames.py`)

and may write

    abort TASK CODE       the task has called MPI_Abort: the step ends
    within TASK           the task is within MPI: when it fails, the step ends
    without TASK          no more
    lost TASK             the task's connection ended before MPI_Finalize: the step ends, if the task failed
    stuck TASK            the others wait for a task whose connection has ended: the step ends
    bad TASK              what the task sends is none of the protocol: the step ends
    full TASK             the task has stored more than there is room for: its user is told once
    deserted NODE         the tasks here wait for those of another node, which have all gone: the step ends
    apart NODE            the server of this node has lost the others: the step ends
    crowded NODE          the tasks have stored more than the servers give each other: the step ends
    spawn TASK            the task wants to start programs, and that was refused: its user is told once
    unserved TASK         likewise, what is served on one node only
    env NAME=VALUE        a variable of all tasks, where it `announces`
    ready                 likewise: the tasks can begin
    failed NUMBER         likewise: they cannot
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class MpiServer:
    """`argv`: the program, by an absolute path. `connected`: each task has a socket to it, its `mpi_fd`. `announces`:
    tasks begin when it has said what their environment has.
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
