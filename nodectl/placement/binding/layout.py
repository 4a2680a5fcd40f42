"""The result of binding: node, CPUs and memory of each task. Values only."""

from __future__ import annotations

from nodectl.model.value_class import dataclass, field

DEFAULT, PREFERRED, BIND = 0, 1, 2  # the kernel's numbers of memory policies, set_mempolicy(2)


@dataclass(frozen=True, slots=True)
class MemPolicy:
    """A memory policy: `mode` is the kernel's number, `nodes` the mask of NUMA nodes."""

    mode: int
    nodes: int


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """The place of a task: the number in the step, `node` as an index into the machines, the `local` number there.

    `mask`: the machine CPUs to which the task is bound, 0 for none: the task then inherits `cpus`, all CPUs of the step
    on the node; otherwise `cpus` is the mask. `mems`: the NUMA nodes for the task's memory; `policy`: the memory policy
    to set, None for none. `why`: the rule behind the mask, in words; "" where the caller did not ask.
    """

    task: int
    node: int
    local: int
    mask: int
    cpus: int
    mems: int
    policy: MemPolicy | None
    why: str


@dataclass(frozen=True, slots=True)
class NodeShare:
    """A step's share of a node: `node` is an index into the machines, `cpus` and `mems` are the step's cpuset there.

    `ntasks` is the number of tasks; `bind_type` and `bind_list` are the kind and list in SLURM_CPU_BIND there.
    """

    node: int
    cpus: int
    mems: int
    ntasks: int
    bind_type: str
    bind_list: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a step. `tasks` in the order of task numbers; `environment`: Slurm's variables for task 0."""

    tasks: tuple[TaskPlace, ...]
    nodes: tuple[NodeShare, ...]
    environment: dict[str, str] = field(default_factory=dict)
    rule: str = ""
