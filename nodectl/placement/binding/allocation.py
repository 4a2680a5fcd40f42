"""A job's allocation: the value between a job's resources and the layout of the job's steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nodectl.model.value_class import dataclass, field
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.machine.topology import Topology


@dataclass(frozen=True, slots=True)
class NodeGrant:
    """The resources of a job on a node.

    `node`: an index into the machines; `cpus`: the machine mask of the job's cores with all their threads; `cpu_count`:
    the number of granted CPUs, fewer than bits where the job uses only some threads of a core; `ntasks`: the number of
    tasks laid out there with the job, 0 where the job was not laid out.
    """

    node: int
    name: str
    cpus: int
    cpu_count: int
    ntasks: int = 0


@dataclass(frozen=True, slots=True)
class Allocation:
    """A job's nodes in the order of node names.

    `own`: the step to lay out made the job, from the same request; otherwise the step runs in an existing job.
    `threads_per_core`: as the job asked, None if it did not. `environment`: the variables by which the job's steps
    inherit its options (SLURM_CPUS_PER_TASK, ...).
    """

    nodes: tuple[NodeGrant, ...]
    own: bool = False
    threads_per_core: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_masks(cls, machines: Sequence[Topology], masks: Mapping[int, int], names: Sequence[str] = ()) -> Allocation:
        """Make an allocation of CPU masks by index of the machine, widened to whole cores. Raises NoLayout."""
        grants = []
        for node, mask in sorted(masks.items()):
            machine = machines[node]
            cpus = 0
            for core in machine.cores:
                if core.mask & mask:
                    cpus |= core.mask
            cpus &= machine.usable
            if not cpus:
                raise NoLayout("the allocation holds no CPU that is online and usable by the service")
            name = names[node] if node < len(names) else f"n{node + 1}"
            grants.append(NodeGrant(node, name, cpus, cpus.bit_count()))
        return cls(tuple(grants))
