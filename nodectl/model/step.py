"""The record of a step: made by the daemon, passed on by the forkserver, given to every plugin.

`Step` is the documents' launch_tasks_request_msg_t before the launch (the daemon fills it in, task plugins may change
it in task_p_slurmd_launch_request) and their stepd_step_rec_t afterwards. It travels once, from daemon to stepd, as
JSON in a root-owned file. `Task` is a task of the step, in the stepd and in that task's own process.
"""

from operator import attrgetter

from nodectl.kernel.identity import Identity
from nodectl.model.fields import StepFields, empty, names
from nodectl.model.plugstack_entry import entry_as_list, entry_from_list
from nodectl.model.step_number import step_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    from nodectl.model.mpi_server import MpiServer
    from nodectl.model.node_device import NodeDevice

    class Binder(Protocol):
        """Chooses a step's CPUs, memory and devices, in the daemon: `daemon/admission/binder.py`."""

        @property
        def node_devices(self) -> Sequence[NodeDevice]:
            """The devices of this node."""

        def bind(self, req: "Step") -> None:
            """Fill in the CPUs, memory and devices of a step. Raises `binding.no_layout.NoLayout`."""

        def for_containers(self, req: "Step") -> Mapping[str, object]:
            """Return the description of the step's GPUs for containers, empty for a step without any."""


NO_TASK = -1
_NO_VAL = 0xFFFFFFFE
_NO_CONTAINER = "job_container/none"  # the plugin of a job without a container
_TOLD_COMMAND = 4096  # characters


def told_command(argv: "list[str]") -> "list[str]":
    """Return the start of argv, with "..." for the rest: a history has thousands, and an argv may have megabytes."""
    room = _TOLD_COMMAND
    for number, word in enumerate(argv):
        if len(word) >= room:
            return [*argv[:number], f"{word[:room]}..."]
        room -= len(word) + 1
    return argv


class Step(StepFields):
    """A step: the fields of the table, which travel, and what a process notes beside them."""

    FIELDS = tuple(sorted(names(StepFields)))
    __slots__ = (
        *FIELDS, "binder", "container_id", "forked_into_cgroup", "helpers", "mpi_server", "process_group", "refused",
        "task",
    )  # fmt: skip

    task: "Task | None"  # in a task's own process: this task; None in the stepd
    helpers: set[int]  # pids of the stepd's own helpers (relays): no part of the user's step
    forked_into_cgroup: bool  # the kernel forked the last task into its cgroup: no move is needed
    binder: "Binder | None"  # in the daemon: chooses CPUs, memory and devices
    refused: str  # why the binder refuses, in words for the user
    process_group: int  # the tasks' process group made by proctrack_p_create; 0: the first task makes one
    mpi_server: "MpiServer | None"  # set by mpi_p_slurmstepd_prefork in the stepd
    container_id: int  # 64 bits, set by proctrack_p_create in the stepd; never travels

    def __init__(self, **fields: object) -> None:
        for name in self.FIELDS:
            setattr(self, name, fields[name])
        self.binder = None
        self.refused = ""
        self.container_id = 0
        self.forked_into_cgroup = False
        self.helpers = set()
        self.mpi_server = None
        self.process_group = 0
        self.task = None

    def __str__(self) -> str:
        """Return the step's name in users' notation: "42.0", "42.batch"."""
        return step_name(self.job_id, self.step_id)

    @property
    def is_first(self) -> bool:
        """True for the job's first step, owner of prolog, container and limits; the job ends with this step."""
        return self.step_id == self.first_step

    @property
    def array_id(self) -> int:
        """The number of the job's array; the job's number for a job without an array."""
        return self.array_job or self.job_id

    @property
    def array_task_id(self) -> int:
        """The number of the job in the array; Slurm's NO_VAL for a job without an array."""
        return self.array_task if self.array_job else _NO_VAL

    @property
    def total_tasks(self) -> int:
        """The number of tasks of the whole step, on all nodes."""
        return self.ntasks if self.part is None else self.part.ntasks

    @property
    def nnodes(self) -> int:
        """The number of nodes of the whole step."""
        return 1 if self.part is None else self.part.nnodes

    @property
    def nodeid(self) -> int:
        """The number of this node among the step's nodes."""
        return 0 if self.part is None else self.part.nodeid

    @property
    def nodelist(self) -> str:
        """The step's nodes, in Slurm's notation."""
        return self.node_name if self.part is None else self.part.nodes

    @property
    def tasks_per_node(self) -> str:
        """The number of tasks of each node, in Slurm's notation."""
        return str(self.ntasks) if self.part is None else self.part.tasks_per_node

    @property
    def numbers(self) -> "Sequence[int]":
        """The numbers of this node's tasks in the whole step, ascending."""
        return range(self.ntasks) if self.part is None else self.part.numbers

    @property
    def has_viewers(self) -> bool:
        """True where a process copies the step's streams and shows them to viewers (--pty, -l, -u)."""
        return bool(self.pty or self.label or self.unbuffered)

    @property
    def identity(self) -> Identity:
        """The identity of the step's tasks."""
        return Identity(self.uid, self.gid, self.gids)

    @property
    def container_plugin(self) -> str:
        """The type of the plugin for the job's container."""
        return str(self.container.get("type", _NO_CONTAINER))

    @property
    def cpus(self) -> int:
        """The number of CPUs held by the job here: S_JOB_NCPUS, SLURM_JOB_CPUS_PER_NODE."""
        return self.allocation.bit_count()

    def facts(self) -> "dict[str, object]":
        """Return the step's facts for lists and records."""
        return {
            "job": self.job_id,
            "step": self.step_id,
            "restart": self.restart,
            "name": self.name,
            "user": self.user_name,
            "uid": self.uid,
            "gid": self.gid,
            "node": self.node_name,
            "command": told_command(self.argv),
            "cwd": self.cwd,
            "ntasks": self.ntasks,
            "cpus": f"{self.allocation if self.is_first else self.step_cpus or self.allocation:x}",
            "secure": self.secure,
            "memory": self.memory,
            "limits": self.limits,
            "submitted": self.submitted,
            **({"devices": self.devices} if self.devices else {}),
            **({"array_job": self.array_job, "array_task": self.array_task} if self.array_job else {}),
            **({"part": self.part.facts()} if self.part is not None else {}),
        }

    def as_json(self) -> "dict[str, object]":
        """Return every field by name. CPU masks are hex texts: JSON readers lose the top bits of large numbers."""
        fields: dict[str, object] = dict(zip(self.FIELDS, _values(self), strict=True))
        fields["allocation"] = f"{self.allocation:x}"
        fields["base"] = f"{self.base:x}"
        fields["step_cpus"] = f"{self.step_cpus:x}"
        fields["cpu_masks"] = [f"{mask:x}" for mask in self.cpu_masks]
        fields["stack"] = [entry_as_list(entry) for entry in self.stack]
        if self.part is not None:
            fields["part"] = self.part.as_json()
        return fields

    @classmethod
    def from_json(cls, fields: "Mapping[str, object]") -> "Step":
        """Return the step of `as_json`'s result; a field unknown to the writing version of nodectl is empty.

        Raises KeyError, TypeError or ValueError: only our own daemon writes such files.
        """
        values = dict(fields) if fields.keys() >= _NAMES else {**_empty(), **fields, "job_id": fields["job_id"]}
        values["allocation"] = int(values["allocation"], 16)  # type: ignore[call-overload]
        values["base"] = int(values["base"], 16)  # type: ignore[call-overload]
        values["step_cpus"] = int(values["step_cpus"], 16)  # type: ignore[call-overload]
        values["cpu_masks"] = [int(mask, 16) for mask in values["cpu_masks"]]  # type: ignore[attr-defined]
        values["stack"] = [entry_from_list(row) for row in values["stack"]]  # type: ignore[attr-defined]
        if values["part"] is not None:
            from nodectl.model.part import Part  # few steps have parts

            values["part"] = Part(values["part"])  # type: ignore[arg-type]
        return cls(**values)


_NAMES = frozenset(Step.FIELDS)
_values = attrgetter(*Step.FIELDS)
_AS_TEXT = {"allocation": "0", "base": "0", "step_cpus": "0"}  # masks, as `as_json` gives them


def _empty() -> "dict[str, object]":
    return {**empty(StepFields), **_AS_TEXT}


class HandOver:
    """What a task of a step with --preload executes in the place of its program: `nodectl/launch/c/hand_over.c`.

    `words` go before those of the program; `fds` are the descriptors that it inherits. `verdict` is the step runner's
    end of the pipe for the verdict. A descriptor that is closed is -1.
    """

    __slots__ = ("fds", "verdict", "words")

    def __init__(self, fds: "tuple[int, int]", verdict: int, words: list[str]) -> None:
        self.fds = fds
        self.verdict = verdict
        self.words = words


class Task:
    """A task of a step: the documents' slurmd_task_p_info_t.

    `local_id` is its place among the tasks of this node, `number` its number in the whole step, which users see.

    `environment` and `argv` are this task's own copies. They are final when task_p_pre_launch sees them, except for
    changes by that hook and the later hooks. `status` is the wait status, None until the task has ended; `usage` user
    and system CPU seconds and peak RSS in KiB, from wait4(2), `transferred` bytes read and written by system calls,
    `used` the figures of its cgroup. `out_of_memory`: the kernel killed a process in it, whatever its status says.
    `mpi_fd`: the descriptor by which its program reaches the server of the step's MPI plugin, -1 for none. `hand_over`:
    what it executes in the place of its program with --preload, None without.
    """

    __slots__ = (
        "argv", "ended", "environment", "hand_over", "killed_by_command", "local_id", "mask", "mpi_fd", "number",
        "out_of_memory", "pid", "status", "transferred", "usage", "used",
    )  # fmt: skip

    def __init__(self, local_id: int, mask: int, number: "int | None" = None) -> None:
        self.local_id = local_id
        self.number = local_id if number is None else number
        self.mask = mask
        self.pid = NO_TASK
        self.status: int | None = None
        self.usage: tuple[float, float, int] = (0.0, 0.0, 0)
        self.transferred = (0, 0)
        self.ended = 0.0
        self.killed_by_command = False
        self.out_of_memory = False
        self.mpi_fd = -1
        self.hand_over: HandOver | None = None
        self.used: dict[str, object] = {}
        self.environment: dict[str, str] = {}
        self.argv: list[str] = []

    @property
    def global_id(self) -> int:
        """The task's number in the whole step."""
        return self.number

    def shown(self) -> dict[str, object]:
        """Return number, pid, wait status and CPUs, as clients and the record have them."""
        cpus = f"{self.mask:x}" if self.mask else ""
        return {"task": self.number, "pid": self.pid, "status": self.status, "cpus": cpus}
