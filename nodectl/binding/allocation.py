"""What a job holds: the value between a job's allocation and the layout of its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nodectl.binding.refused import Refused
from nodectl.machine.topology import Topology
from nodectl.model.value_class import dataclass, field


@dataclass(frozen=True, slots=True)
class NodeGrant:
    """What the job holds on a node. `node`: an index into the machines; `cpus`: the machine mask of its cores, all
    their threads; `cpu_count`: how many CPUs it was granted, fewer than bits where it uses some threads of a core;
    `ntasks`: how many tasks the job was laid out for there, 0 where it was not.
    """

    node: int
    name: str
    cpus: int
    cpu_count: int
    ntasks: int = 0


@dataclass(frozen=True, slots=True)
class Allocation:
    """A job's nodes in the order of their names. `own`: the job was made by the step that is laid out, out of the same
    request; otherwise the step is one in a job that was there. `threads_per_core`: as the job asked, None if it did
    not. `environment`: the variables by which its steps inherit its options (SLURM_CPUS_PER_TASK, ...).
    """

    nodes: tuple[NodeGrant, ...]
    own: bool = False
    threads_per_core: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_masks(cls, machines: Sequence[Topology], masks: Mapping[int, int], names: Sequence[str] = ()) -> Allocation:
        """An allocation of these CPU masks, widened to whole cores, by index of the machine. Raises Refused."""
        grants = []
        for node, mask in sorted(masks.items()):
            machine = machines[node]
            cpus = 0
            for core in machine.cores:
                if core.mask & mask:
                    cpus |= core.mask
            cpus &= machine.usable
            if not cpus:
                raise Refused("the allocation holds no CPU that is online and usable by the service")
            name = names[node] if node < len(names) else f"n{node + 1}"
            grants.append(NodeGrant(node, name, cpus, cpus.bit_count()))
        return cls(tuple(grants))
