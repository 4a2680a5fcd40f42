"""The fields of a launch request and of a Step, each declared once.

A class is a table, and a line of it a field: its name, its type, and in `field()` its limits and its default. The class
says who sets the field. The string below a field explains it to callers of the service.

From here come: the shape which the service checks (`wire/table.py`), the values which the daemon passes on to the Step
(`passed`), the fields and types of `Step`, and the type Request of `wire/org.nodectl.varlink`, which
`tests/generate.py` writes. What a Step does not have is in `request_fields.py`. The strings below the fields cost a
process nothing, because Python drops them.
"""

# Not `from __future__ import annotations`: the types of a table are objects.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from nodectl.model.part import Part
    from nodectl.model.plugstack_entry import Entry

LONGEST_NAME = 1024
LONGEST_PATH = 4096
LONGEST_WORD = 131_072  # MAX_ARG_STRLEN, the limit of execve(2)
_MOST_TASKS = 2**31
YEAR = 366 * 86_400
OF_TERMINAL = 5  # figures of `pty`


class Field:
    """What the code needs of a field beside its name and type.

    `limits`, from outside to inside: the most elements of a list or mapping; the most characters of a text; the least
    and the greatest value of a number. `default`: the step's value where the request has none. `wire`: the type in the
    interface file, where the Python type does not give it.
    """

    __slots__ = ("default", "limits", "needed", "wire")

    def __init__(self, limits: "tuple[int, ...]", default: object, wire: str, *, needed: bool) -> None:
        self.limits = limits
        self.default = default
        self.needed = needed
        self.wire = wire


def field(*limits: int, default: object = None, needed: bool = False, wire: str = "") -> "Any":
    """Describe a field. The default is the type's empty value if not given; a request must have a `needed` field."""
    return Field(limits, default, wire, needed=needed)


def names(table: type) -> "dict[str, Any]":
    """Return the fields of a table by name, with their types, in the order in which they are written."""
    found: dict[str, Any] = {}
    for one in (*table.__mro__[1:-1], table):
        found |= one.__annotations__
    return found


def empty(table: type) -> dict[str, object]:
    """Return a value for each field of a table, as if none was given."""
    return {name: make() for name, make in _makers(table).items()}


def _makers(table: type) -> "dict[str, Callable[[], object]]":
    """Return for each field of a table a function that makes the value of a field not given."""
    return {name: _maker(getattr(table, name, None), kind) for name, kind in names(table).items()}


def _maker(field: "Field | None", kind: "Any") -> "Callable[[], Any]":
    default = None if field is None else field.default
    return kind if default is None and not isinstance(kind, str) else lambda: default


class Passed:
    """The fields that a client sets and the daemon passes on to the Step as they are."""

    __slots__ = ()

    argv: list[str] = field(65_536, LONGEST_WORD, needed=True)
    programs: list[list[object]] = field(4096, 3)
    """Instead of argv: rows of a list of tasks and their argv (srun's --multi-prog)."""
    cwd: str = field(LONGEST_PATH, needed=True)
    ntasks: int = field(1, _MOST_TASKS, needed=True)
    time_limit: int = field(1, YEAR)
    """Seconds."""
    stdin: str = field(LONGEST_PATH)
    """A file name pattern, a task number, "all" or "none"; without a value, the descriptor that came with the call."""
    stdout: str = field(LONGEST_PATH)
    stderr: str = field(LONGEST_PATH)
    open_append: bool = field()
    """Files of output keep their contents."""
    label: bool = field()
    unbuffered: bool = field()
    kill_on_bad_exit: bool = field()
    pty: list[int] = field(OF_TERMINAL, 0, 0xFFFF)
    """The number of the task that has a terminal, then the terminal's rows, columns and pixels. The first descriptor of
    the call is then a socket, with packets as in nodectl/model/wire/terminal_packets.py."""
    bulk: bool = field()
    """Commands come over the pipes of Launch, and ntasks of them run at a time (org.nodectl.step.Run). argv is only
    shown, not run."""
    preload: list[str] = field(64, 256)
    """Python modules that an interpreter of the step imports once. Tasks whose program is Python are forks of it."""
    verbose: int = field(0, 10)
    umask: int = field(0, 0o777, default=0o022)
    io_priority: int = field(0, 8, default=-1)
    """When reads and writes of the tasks get their turn at a disk: from 0, first, to 7; 8: while no others want it."""
    rlimits: dict[str, int] = field(16, -1, 2**63 - 1)
    """Soft limits by name (NOFILE, CORE, ...), -1 for infinity."""
    options: list[list[str]] = field(256, 3, 65_536)
    """SPANK options: plugin, option and the argument, if the option has one."""


class Revised:
    """The fields that a client sets, and of which the daemon makes the Step's own value."""

    __slots__ = ()

    environment: dict[str, str] = field(16_384, 2 << 20, needed=True)
    cpus_per_task: int = field(1, _MOST_TASKS)
    name: str = field(LONGEST_NAME)
    job_control: dict[str, str] = field(4096, LONGEST_WORD)
    """Variables that SPANK plugins set for prolog and epilog, which see each name with SPANK_ before it."""
    oom_kill_step: bool = field()
    """Whether the whole step is killed when it runs out of memory."""
    secure: str = field(16, default="none")
    """The level, "none", "default" or "strict"; without a value, the node's setting."""
    mpi: str = field(64)
    """An MPI plugin's name, or "none"."""


class StepFields(Passed, Revised):
    """All fields of a Step. The daemon sets those below; the plugins of task_p_slurmd_launch_request may change all.

    Times are seconds, `submitted` since the epoch. CPU masks are ints, bit n for CPU n of the machine; 0: not bound.
    """

    __slots__ = ()

    job_id: int
    step_id: int
    first_step: int  # the number of the first step of its job: 0, BATCH or EXTERN
    restart: int  # how often its job was requeued before
    array_job: int  # of a job that is a task of an array: the array's number, and which task; 0 for none
    array_task: int
    job_began: float  # of a further step: begin and time limit's end of its job; 0 for none
    job_ends: float
    node_name: str
    cluster_name: str
    partition: str
    uid: int
    gid: int
    gids: list[int]
    user_name: str
    part: "Part | None"  # of a step over several nodes: the part on this node
    hard_limits: dict[str, int]  # by their name without RLIMIT_, -1 for infinity
    allocation: int  # CPU mask of the job on this machine
    cores: str  # of the job, numbered socket by socket: "0-3,8"
    layout: dict[str, object]  # srun's options of layout and binding in force, by name
    # From here to `devices`: filled in by task_p_slurmd_launch_request.
    cpu_masks: list[int]  # per task
    base: int  # CPU mask from which the layout was made
    step_cpus: int  # CPU mask taken from `base`: all of it, except for an exact step
    mems: str  # NUMA nodes of these CPUs, "" for all
    mem_policies: list["tuple[int, list[int]] | None"]  # per task MPOL_* and NUMA nodes; empty where no task has one
    task_variables: list[dict[str, str]]  # per task, beside `environment`; empty where all have the same
    devices: list[str]  # the devices that the job holds: gpu:0
    kept: dict[str, str]  # variables of the tasks that replace the step's variables of the same meaning
    kill_wait: int
    unkillable_timeout: int
    suspend_grace_time: int
    hook_timeout: int
    always_fork: bool  # tasks are forks, even if no plugin is called in them
    task_prologs: list[str]  # the site's before the user's
    task_epilogs: list[tuple[str, float]]  # path, seconds it may take (0: no limit); the user's before the site's
    stack: list["Entry"]
    container: dict[str, object]  # the settings of the job's container (container/settings.py), empty for none
    cgroup: str  # the step's directory below the cgroup2 mount, "" when cgroups are not used
    within: str  # "" or the cgroup of another manager's job that encloses the step's (cgroup/slurms.py)
    submitted: float
    memory: int  # MiB asked for, 0 for none
    select_packed: str  # the select plugin's packed data about the step, in hexadecimal
    shares: dict[str, int]  # of CPU time, input and output (cgroup/shares.py)
    # The result of these, where the machine can enforce it:
    limits: dict[str, str]  # files of the step's `user` cgroup and their contents, written a line at a time
    device_rules: list[list[int]]  # the devices that tasks may open (cgroup/device_access.py), empty for all
    told: list[str]  # the task plugins' messages to the user in the daemon, a line each


def passed(request: "Mapping[str, object]") -> dict[str, object]:
    """Return the step's values of the fields which are passed on, from a request whose shape was checked."""
    return {name: request[name] if name in request else make() for name, make in _OF_PASSED.items()}


_OF_PASSED = _makers(Passed)
