"""What comes out: which task runs where, on which CPUs, with which memory. Values only."""

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
    """One task: its number in the step, `node` an index into the machines, its number there. `mask`: machine CPUs it is
    bound to, 0 for none: it then inherits `cpus`, what the step has on the node; otherwise `cpus` is the mask. `mems`:
    NUMA nodes its memory may come from; `policy`: the memory policy to be set, None for none. `why`: the rule behind
    the mask, in words; "" where nobody asked.
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
    """What a step has on one node: `node` an index into the machines, `cpus` and `mems` its cpuset, how many tasks, and
    the kind and list that SLURM_CPU_BIND tells there.
    """

    node: int
    cpus: int
    mems: int
    ntasks: int
    bind_type: str
    bind_list: str


@dataclass(frozen=True, slots=True)
class Layout:
    """One step, laid out. `tasks` in the order of their numbers; `environment` is what Slurm tells task 0."""

    tasks: tuple[TaskPlace, ...]
    nodes: tuple[NodeShare, ...]
    environment: dict[str, str] = field(default_factory=dict)
    rule: str = ""
