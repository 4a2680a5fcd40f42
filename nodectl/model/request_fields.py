"""The fields of a launch request that its Step does not have under the same name, and what else clients describe.

The tables have the form of `fields.py`. The daemon, and the leader of a cluster, read them; no process of a step does.
"""

from nodectl.model.fields import LONGEST_NAME, LONGEST_PATH, LONGEST_WORD, Passed, Revised, field

LONGEST_SET = 65_536  # characters of a dependency, or of an array's indices
LATEST = 1 << 40  # seconds since the epoch
_LONGEST_LIST = 131_072
_LONGEST_LINE = 4200  # of a share: a path and four figures
_MOST_MEMORY = 1 << 40  # MiB
_WEIGHT = (1, 10_000)
_LAST_JOB = 2**32 - 1
_LAST_STEP = 0xFFFFFFF0  # the highest number of a step without a name
MOST_OF_ALL_NODES = 1 << 24  # tasks of a step over several nodes
LONGEST_MASK = 65_536 // 4  # digits: as many CPUs as a list may name


class Limits:
    """The limits that a client sets at the launch and may change while the step runs (Update)."""

    __slots__ = ()

    mem: int = field(0, _MOST_MEMORY)
    """MiB for the step, 0 for all memory of the machine."""
    cpu_max: int = field(0, 10_000_000)
    """Percent of one CPU, 0 for no limit."""
    cpu_weight: int = field(*_WEIGHT)
    """From 1 to 10000, as io_weight."""
    io_max: list[str] = field(64, _LONGEST_LINE)
    """A line for each disk: "/dev/vda:rbps=1048576,wiops=100"; a figure may be "max"."""
    io_weight: int = field(*_WEIGHT)
    pids_max: int = field(0, 1 << 22)
    """Most processes and threads, 0 for no limit."""
    hugetlb_max: list[str] = field(16, _LONGEST_LINE)
    """A line for each size of huge pages: "2MB:1G"; an amount may be "max"."""


class LaunchRequest(Passed, Revised, Limits):
    """All fields of a launch request. Those below lead to other fields of the Step, or to none."""

    __slots__ = ()

    preserve_env: bool = field()
    """For a step of a job: SLURM_NNODES and SLURM_NTASKS keep the job's values."""
    account: str = field(LONGEST_NAME)
    """The account that the work belongs to. It is shown with the job, and has no other effect."""
    cpu_bind: str = field(_LONGEST_LIST)
    layout: dict[str, str] = field(64, 8 << 20)
    """srun's other options of layout and binding by their long names with '_' for '-', as typed; "1" for a switch;
    "hostfile" is the text of SLURM_HOSTFILE. Other names are refused, and texts longer than an option needs."""
    task_prolog: str = field(LONGEST_PATH)
    task_epilog: str = field(LONGEST_PATH)
    uid: str = field(256)
    """Only for root: name or number of the user, of the group."""
    gid: str = field(256)
    job: int = field(1, _LAST_JOB)
    """A job id from Reserve, or a job that has resources already (Allocate, Await); without it a new job."""
    step: int = field(0, _LAST_JOB)
    """A number other than 0 that Reserve gave."""
    jobid: int = field(1, _LAST_JOB)
    """A running job of the same user; this becomes a further step of it."""
    container_ns: list[str] = field(16, 16)
    """Namespaces that the job does not share, in addition to the configured ones: "net"."""
    mem_per_cpu: int = field(0, _MOST_MEMORY)
    """MiB for each requested CPU."""
    mpi_linked: str = field(64)
    """The MPI plugin that suits the MPI library that the program is linked to."""
    part: dict[str, object] = field(wire="Part")
    """Only in a user's own node: this node's part of a step over several nodes. ntasks then counts the tasks of this
    node."""


class PartOfStep:
    """One node's part of a step that was laid out over several nodes. The node takes its numbers, CPUs and masks as
    they are.
    """

    __slots__ = ()

    job: int = field(1, _LAST_JOB, needed=True)
    step: int = field(0, _LAST_STEP, needed=True)
    nodes: str = field(_LONGEST_LIST - 64, needed=True)
    """Of the whole step: its nodes as a host list ("n[1-3]"), their number, its tasks, the tasks on each node
    ("2(x3),1"), and variables."""
    nnodes: int = field(1, 1 << 20, needed=True)
    ntasks: int = field(1, MOST_OF_ALL_NODES, needed=True)
    tasks_per_node: str = field(_LONGEST_LIST - 64, needed=True)
    environment: dict[str, str] = field(256, LONGEST_WORD)
    node: str = field(255, needed=True)
    """Of this node: its name, its place among the nodes, the numbers of its tasks in the whole step ("0-3,8"), the CPUs
    of the step here and of each task, hexadecimal ("0": not bound), and NUMA nodes ("0-1")."""
    nodeid: int = field(0, (1 << 20) - 1, needed=True)
    tasks: str = field(_LONGEST_LIST, needed=True)
    cpus: str = field(LONGEST_MASK, needed=True)
    masks: list[str] = field(MOST_OF_ALL_NODES, LONGEST_MASK, needed=True)
    mems: str = field(LONGEST_PATH)
    mem_policies: list[list[object]] = field(MOST_OF_ALL_NODES, 2)
    """For each task nothing, or the kernel's number of a memory policy and its NUMA nodes."""
    bind: list[str] = field(2, _LONGEST_LIST)
    """SLURM_CPU_BIND_TYPE and SLURM_CPU_BIND_LIST."""
    devices: list[str] = field(4096, 256)
    """The devices of this node that the step has: "gpu:0"."""
    exchange: str = field(107)
    """A socket of this node over which the step's MPI servers reach each other: nodectl/model/mpi_frames.py."""


class JobOptions:
    """The description of a job, without its first step, a LaunchRequest. Times are seconds since the epoch."""

    __slots__ = ()

    nice: int = field(-(2**31), 2**31 - 1)
    priority: int = field(0, 2**32 - 1)
    """Only for admins."""
    hold: bool = field()
    dependency: str = field(LONGEST_SET)
    """As sbatch's: "afterok:7:8_2,singleton"."""
    array: str = field(LONGEST_SET)
    """As sbatch's: "0-9:2%3"."""
    begin: int = field(0, LATEST)
    deadline: int = field(0, LATEST)
    qos: str = field(LONGEST_NAME)
    reservation: str = field(LONGEST_NAME)
    requeue: bool = field()
    """Whether the job may be started a second time."""
    comment: str = field(LONGEST_NAME)
    open_mode: str = field(16)
    """What happens to existing files of output: "append" or "truncate"."""
    exclusive: bool = field()
    oversubscribe: bool = field()
    contiguous: bool = field()
    min_cpus: int = field(1, 2**31)
    """The fewest CPUs."""
    constraint: str = field(LONGEST_NAME)
    """Features of nodes, with "&" between them."""
    signal: str = field(64)
    """The signal before the job's time is up, as sbatch's: "B:USR1@300"."""
    kill_on_invalid_dep: bool = field()
    """Whether the job ends when its dependency can never be fulfilled."""
    mail_type: str = field(LONGEST_NAME)
    """Of which events a mail tells, as sbatch's: "BEGIN,END,FAIL,TIME_LIMIT_80,ARRAY_TASKS"."""
    mail_user: str = field(LONGEST_NAME)
    """The addresses of these mails; without a value, the job's user."""
    notify: str = field(LONGEST_PATH)
    """A line of shell that runs at each event, as the job's user and as confined as the job."""
