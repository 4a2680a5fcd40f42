"""The jobs on each node and the number of jobs, as counted by select/linear.

Pure state of a plugin; changes cost as much as a job has nodes. A copy serves questions about the nodes without some
jobs.
"""

from __future__ import annotations

from collections.abc import Iterable

from bitarray import bitarray

from nodectl.model.device_part import device_of
from nodectl.model.value_class import dataclass, field
from nodectl.selection.records import JobRecord


class Counts:
    """A number for each node, and for each number a bitmap of the nodes with this number."""

    __slots__ = ("_counts", "_members", "_nodes")

    def __init__(self, size: int) -> None:
        self._counts: dict[int, int] = {}  # by node, where it is not 0
        self._nodes: dict[int, bitarray] = {0: ~bitarray(size)}
        self._members: dict[int, int] = {0: size}

    def copy(self) -> Counts:
        """Return a copy with nothing shared."""
        other = Counts.__new__(Counts)
        other._counts = self._counts.copy()
        other._nodes = {count: nodes.copy() for count, nodes in self._nodes.items()}
        other._members = self._members.copy()
        return other

    def add(self, node: int, change: int) -> None:
        """Change the node's number by `change`, but never below 0."""
        before = self._counts.get(node, 0)
        after = max(before + change, 0)
        if after == before:
            return
        if after:
            self._counts[node] = after
        else:
            del self._counts[node]
        self._nodes[before][node] = 0
        self._members[before] -= 1
        if before and not self._members[before]:
            del self._nodes[before], self._members[before]
        if after not in self._nodes:
            self._nodes[after] = bitarray(len(self._nodes[0]))
            self._members[after] = 0
        self._nodes[after][node] = 1
        self._members[after] += 1

    def of(self, node: int) -> int:
        """Return the node's number."""
        return self._counts.get(node, 0)

    def levels(self) -> list[int]:
        """Return the numbers in use, in ascending order."""
        return sorted(self._nodes)

    def at_most(self, count: int) -> bitarray:
        """Return the nodes with numbers up to `count`."""
        found = bitarray(len(self._nodes[0]))
        for level, nodes in self._nodes.items():
            if level <= count:
                found |= nodes
        return found


@dataclass(slots=True)
class JobHolding:
    """The resources of a job: nodes, and MiB and devices on each. `alone`: no sharing. `stopped`: suspended."""

    nodes: list[int]
    memory: dict[int, int] = field(default_factory=dict)
    gres: dict[int, tuple[str, ...]] = field(default_factory=dict)
    alone: bool = True
    stopped: bool = False


class Occupancy:
    """The jobs on the nodes.

    `running` and `total` (with suspended ones): jobs by node. `exclusive`: jobs that share with none.
    """

    __slots__ = ("devices", "exclusive", "jobs", "memory", "running", "size", "total")

    def __init__(self, size: int) -> None:
        self.size = size
        self.running = Counts(size)
        self.total = Counts(size)
        self.exclusive = Counts(size)
        self.memory: dict[int, int] = {}
        self.devices: dict[int, dict[str, int]] = {}  # by node and device: how many jobs hold any of it
        self.jobs: dict[JobRecord, JobHolding] = {}

    def copy(self) -> Occupancy:
        """Return a copy, changeable without effect on this object."""
        other = Occupancy.__new__(Occupancy)
        other.size = self.size
        other.running, other.total = self.running.copy(), self.total.copy()
        other.exclusive = self.exclusive.copy()
        other.memory = self.memory.copy()
        other.devices = {node: keys.copy() for node, keys in self.devices.items()}
        other.jobs = self.jobs.copy()
        return other

    def add(self, job: JobRecord, share: JobHolding) -> None:
        """Add the job to the job's nodes, unless already added."""
        if job not in self.jobs:
            self.jobs[job] = share
            self._put(share, share.nodes, 1)

    def remove(self, job: JobRecord) -> bool:
        """Remove the job. Return False for an unknown job."""
        share = self.jobs.pop(job, None)
        if share is not None:
            self._put(share, share.nodes, -1)
        return share is not None

    def remove_node(self, job: JobRecord, node: int) -> bool:
        """Take a node from the job. Return False where the job does not have the node."""
        share = self.jobs.get(job)
        if share is None or node not in share.nodes:
            return False
        self._put(share, [node], -1)
        left = [one for one in share.nodes if one != node]
        memory = {one: share.memory[one] for one in left if one in share.memory}
        gres = {one: share.gres[one] for one in left if one in share.gres}
        self.jobs[job] = JobHolding(left, memory, gres, share.alone, share.stopped)
        return True

    def stop(self, job: JobRecord, *, stopped: bool) -> bool:
        """Note the suspension or resumption of the job. Return False for an unknown job.

        Memory and devices stay the job's.
        """
        share = self.jobs.get(job)
        if share is None:
            return False
        if share.stopped != stopped:
            change = -1 if stopped else 1
            for node in share.nodes:
                self.running.add(node, change)
                if share.alone:
                    self.exclusive.add(node, change)
            self.jobs[job] = JobHolding(share.nodes, share.memory, share.gres, share.alone, stopped)
        return True

    def _put(self, share: JobHolding, nodes: Iterable[int], change: int) -> None:
        for node in nodes:
            self.total.add(node, change)
            if not share.stopped:
                self.running.add(node, change)
                if share.alone:
                    self.exclusive.add(node, change)
            if share.memory.get(node):
                self.memory[node] = self.memory.get(node, 0) + change * share.memory[node]
            for key in map(device_of, share.gres.get(node, ())):
                held = self.devices.setdefault(node, {})
                held[key] = held.get(key, 0) + change
                if held[key] <= 0:
                    del held[key]
