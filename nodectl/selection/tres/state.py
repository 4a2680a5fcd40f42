"""The resources held by each job and the use of every node, rebuilt from the jobs' records at each start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bitarray import bitarray

from nodectl.model.device_part import ANYONE, FREE, conflict
from nodectl.model.states import RUNNING, SUSPENDED
from nodectl.model.value_class import dataclass, field
from nodectl.selection.records import JobRecord, NodeRecord, NodeTable
from nodectl.selection.tres.shape import Shape
from nodectl.selection.tres.use import Pool, Share, Use
from nodectl.selection.tres.wish import Wishes


@dataclass(slots=True, eq=False)
class Held:
    """The resources of a job by node. `resting`: the job is suspended."""

    job: JobRecord
    shares: dict[int, Share] = field(default_factory=dict)
    resting: bool = False

    @property
    def taken(self) -> Mapping[int, Share]:
        """The resources in use at present."""
        return {node: share.at_rest() for node, share in self.shares.items()} if self.resting else self.shares


class State:
    """The use of all nodes.

    `uses`: the use of each node. `cpus`: the CPUs given to jobs on each node. `order`: nodes in the order of their
    weights, None where all weigh the same. `held`: by number of the job. `changed`: nodes of which something was taken
    or given back.
    """

    def __init__(self, table: NodeTable, wishes: Wishes) -> None:
        self.table = table
        self.wishes = wishes
        self.pool = Pool()
        self.held: dict[int, Held] = {}
        self._shapes: dict[object, Shape] = {}
        self.idle = [self.pool.of(self._shape(node)) for node in table]
        self.uses = list(self.idle)
        self.cpus = [0] * len(table)
        self.changed: set[int] = set()
        self.order = self._order()

    def _shape(self, node: NodeRecord) -> Shape:
        key = (
            id(node.config), node.real_memory, node.mem_spec_limit, node.reserved_cpus, node.devices, node.features,
            node.weight,
        )  # fmt: skip
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = Shape(node)  # keeps the machine, so that its id is no other's
        return shape

    def _order(self) -> list[int] | None:
        weights = [use.shape.weight for use in self.idle]
        if min(weights, default=1) == max(weights, default=1):
            return None
        return sorted(range(len(weights)), key=weights.__getitem__)

    def renew(self, node: NodeRecord) -> None:
        """Read a node's changed configuration."""
        index = node.index
        use = self.idle[index] = self.pool.of(self._shape(node))
        for held in self.held.values():
            if index in held.shares:
                use = self.pool.plus(use, held.taken[index])
        self.uses[index] = use
        self.order = self._order()

    def restore(self, jobs: Iterable[JobRecord]) -> None:
        """Forget everything, and enter the resources of running and suspended jobs from the records."""
        self.held.clear()
        self.uses = list(self.idle)
        self.cpus = [0] * len(self.table)
        self.changed.update(range(len(self.table)))
        for job in jobs:
            if job.job_state in (RUNNING, SUSPENDED) and job.job_resrcs is not None:
                held = self.held_by(job)
                held.resting = job.job_state == SUSPENDED
                self._add(held)

    def held_by(self, job: JobRecord) -> Held:
        """Return the resources in a job's record."""
        resources = job.job_resrcs
        if resources is None:
            return Held(job)
        whole = self.wishes.takes_whole_nodes(job)
        alone = whole or self.wishes.sharers(job) <= 1
        held = Held(job)
        for node in resources.node_bitmap.search(1):
            shape = self.uses[node].shape
            held.shares[node] = Share(
                shape.cores if whole else self.cores_of(resources.core_bitmap, node),
                resources.memory.get(node, 0),
                shape.bits_of(resources.gres[node]) if node in resources.gres else 0,
                resources.cpus.get(node, 0),
                alone=alone,
                parts=shape.parts_of(resources.gres[node]) if node in resources.gres else (),
                user=job.user_id,
            )
        return held

    def cores_of(self, bits: bitarray, node: int) -> int:
        """Return a node's part of a core bitmap, as a set of cores."""
        at = self.table[node].core_offset
        part = bitarray(bits[at : at + len(self.idle[node].shape.widths)], endian="little")
        return int.from_bytes(part.tobytes(), "little")

    def begin(self, job: JobRecord) -> str:
        """Enter the job's resources. Return "" or the reason of a conflict."""
        if job.job_id in self.held:
            self.finish(job)
        held = self.held_by(job)
        if not held.shares:
            return "no node was selected for it"
        for node, share in held.shares.items():
            if taken := self._conflict(node, share, job):
                return taken
        self._add(held)
        return ""

    def hold(self, job: JobRecord) -> None:
        """Enter the job's resources, even in conflict with present use."""
        self._add(self.held_by(job))

    def _conflict(self, node: int, share: Share, job: JobRecord) -> str:
        """Return the reason for which a job may not have this share beside the present use, or ""."""
        use = self.uses[node]
        name = self.table[node].name
        if share.alone:
            clash = use.busy & share.cores
        else:
            clash = use.taken(self.wishes.sharers(job) - 1, sharing=True) & share.cores
        if clash:
            return f"core {(clash & -clash).bit_length() - 1} of node {name} is another job's"
        if share.memory and use.memory + share.memory > use.shape.memory:
            return f"node {name} has {use.shape.memory - use.memory} MiB left, and not {share.memory}"
        if clash := share.gres & (use.gres | use.shared):
            return f"{use.shape.devices_of(clash)[0].key} of node {name} is another job's"
        loads = dict(use.loads) if share.parts else {}
        for place, part in share.parts:
            device = use.shape.devices[place]
            load = loads.get(place, FREE)._replace(wholes=use.gres >> place & 1)
            if why := conflict(device, load, part, share.user if device.one_user else ANYONE):
                return f"{device.key} of node {name} {why}"
        return ""

    def finish(self, job: JobRecord) -> None:
        """Remove the job's resources. A job without resources is no error, because calls may be replayed."""
        held = self.held.pop(job.job_id, None)
        if held is not None:
            for node, share in held.taken.items():
                self._give(node, share)

    def suspend(self, job: JobRecord) -> bool:
        """Free the cores of a suspended job. Return False for a job without resources."""
        held = self.held.get(job.job_id)
        if held is None:
            return False
        if not held.resting:
            for node, share in held.shares.items():
                self._give(node, share)
            held.resting = True
            self._take(held)
        return True

    def resume(self, job: JobRecord) -> str:
        """Give the job the cores again. Return "" or the reason of a failure."""
        held = self.held.get(job.job_id)
        if held is None:
            return "it holds nothing"
        if held.resting:
            for node, share in held.shares.items():
                only_cores = Share(share.cores, 0, 0, share.cpus, alone=share.alone)
                if taken := self._conflict(node, only_cores, job):
                    return taken
            for node, share in held.taken.items():
                self._give(node, share)
            held.resting = False
            self._take(held)
        return ""

    def shrink(self, job: JobRecord, node: int) -> bool:
        """Take a node from the job. Return False where the job has no such node, or no further node."""
        held = self.held.get(job.job_id)
        if held is None or node not in held.shares or len(held.shares) == 1:
            return False
        share = held.taken[node]
        del held.shares[node]
        self._give(node, share)
        return True

    def _add(self, held: Held) -> None:
        self.held[held.job.job_id] = held
        self._take(held)

    def _take(self, held: Held) -> None:
        for node, share in held.taken.items():
            self.uses[node] = self.pool.plus(self.uses[node], share)
            self.cpus[node] += share.cpus
            self.changed.add(node)

    def _give(self, node: int, share: Share) -> None:
        self.uses[node] = self.pool.minus(self.uses[node], share)
        self.cpus[node] -= share.cpus
        self.changed.add(node)

    def without(self, uses: Sequence[Use], gone: Iterable[Held]) -> list[Use]:
        """Return the uses as if the jobs `gone` had ended."""
        left = list(uses)
        for held in gone:
            for node, share in held.taken.items():
                left[node] = self.pool.minus(left[node], share)
        return left
