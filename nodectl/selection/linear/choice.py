"""The choice of nodes for a job by select/linear: on free nodes, on all nodes, or after the end of running jobs.

One Chooser is one call of select_p_job_test. Pure: the occupancy is an argument, and is copied for questions about the
future.
"""

from __future__ import annotations

from collections.abc import Sequence

from bitarray import bitarray

from nodectl.model.value_class import dataclass, field
from nodectl.selection.linear.machines import Machines, whole_devices
from nodectl.selection.linear.occupancy import JobHolding, Occupancy
from nodectl.selection.linear.runs import NodeWish, choose
from nodectl.selection.records import JobRecord, JobResources
from nodectl.selection.slurmctld import Parameters

_ONE = bitarray("1")
_SUSPENDED = (0, 4, None)  # so many suspended jobs on a node; None for any number
_SINGLY = 16  # victims are looked for one by one, and then by ever more
_MOST_MATES = 256
_NEVER_ENDS = 365 * 86_400.0


@dataclass(slots=True)
class Found:
    """The chosen nodes, the time of the start, and the jobs to be preempted first."""

    nodes: bitarray
    start: float = 0.0
    preempted: list[JobRecord] = field(default_factory=list)
    occupancy: Occupancy | None = None


class Chooser:
    """A choice for a job: call `offer` first, then `ever`, `at_once` or `some_day`."""

    def __init__(self, machines: Machines, given: Parameters, job: JobRecord) -> None:
        self._machines = machines
        self._job = job
        self._given = given
        self._alone = given.sharers(job) <= 1
        self._most = given.sharers(job)

    def offer(self, offered: bitarray, counts: tuple[int, int, int], excluded: bitarray | None) -> None:
        """Set the bounds: the nodes of a bitmap; min_nodes, max_nodes and req_nodes; excluded cores. Raises Refused."""
        details = self._job.details
        useful, self._amounts = self._machines.useful(details)
        self._avail: bitarray = offered & useful
        if excluded is not None and excluded.any():
            self._machines.without_cores_of(self._avail, excluded)
        cpus = 0 if details.overcommit or details.whole else details.min_cpus
        required = details.req_node_bitmap
        self._wish = NodeWish(*counts, cpus, required, details.contiguous)
        self._memory = [self._given.memory_of(self._job, cpus) for cpus in self._machines.by_kind()]

    def ever(self) -> Found | None:
        """Choose on an empty machine."""
        return self._on(Occupancy(0), self._avail, self._machines.with_memory(self._counted(), {}))

    def at_once(self, occupancy: Occupancy, candidates: Sequence[JobRecord]) -> Found | None:
        """Choose with the present jobs, or after preempting some of the candidates."""
        found = self._now(occupancy)
        if found is not None or not candidates:
            return found
        gone, found = self._without(occupancy, [one for one in candidates if one in occupancy.jobs])
        if found is None:
            return None
        chosen = found.nodes
        gone.sort(key=lambda one: -sum(chosen[node] for node in occupancy.jobs[one].nodes))
        fewer, again = self._without(occupancy, gone)
        if again is not None and len(fewer) <= len(gone):
            gone, found = fewer, again
        found.preempted = [one for one in gone if any(found.nodes[node] for node in occupancy.jobs[one].nodes)]
        return found

    def some_day(self, occupancy: Occupancy, candidates: Sequence[JobRecord], now: float) -> Found | None:
        """Choose for the earliest time, as far as the ends of running jobs are known."""
        found = self.at_once(occupancy, candidates)
        if found is not None:
            found.start = now
            return found
        ends = sorted(((one.end_time or now + _NEVER_ENDS, one) for one in occupancy.jobs), key=lambda end: end[0])
        left, low = occupancy.copy(), 0  # it is known that the job does not fit when `low` have gone
        high, best = len(ends) + 1, None
        while high - low > 1:
            middle = (low + high) // 2
            tried = left.copy()
            for _, one in ends[low:middle]:
                tried.remove(one)
            fits = self._now(tried)
            if fits is None:
                left, low = tried, middle
            else:
                high, best = middle, fits
        if best is not None:
            best.start = max(ends[high - 1][0], now + 1)
        return best

    def resources(self, found: Found) -> JobResources:
        """Return all CPUs of the chosen nodes, the job's memory there, and free devices."""
        chosen = list(found.nodes.search(_ONE))
        machines = self._machines
        cpus = {node: machines.cpus(node) for node in chosen}
        memory = {node: self._given.memory_of(self._job, count) for node, count in cpus.items()}
        tasks = {chosen[0]: self._job.details.num_tasks} if len(chosen) == 1 else {}
        gres = {node: keys for node in chosen if (keys := self._devices(node, found.occupancy))}
        return JobResources(found.nodes.copy(), machines.cores(found.nodes), cpus, memory, tasks, gres)

    def _counted(self) -> list[int]:
        return self._memory if self._given.tracks_memory else []

    def _without(self, occupancy: Occupancy, victims: Sequence[JobRecord]) -> tuple[list[JobRecord], Found | None]:
        """Remove the victims in this order until the job fits. Return the removed victims and the choice, or None."""
        left = occupancy.copy()
        gone: list[JobRecord] = []
        at, step = 0, 1
        while at < len(victims):
            for one in victims[at : at + step]:
                left.remove(one)
                gone.append(one)
            at += step
            step = 1 if at < _SINGLY else step * 2
            found = self._now(left)
            if found is not None:
                return gone, found
        return gone, None

    def _now(self, occupancy: Occupancy) -> Found | None:
        """Choose among the nodes with room: with as few running jobs on each as possible, then few suspended jobs."""
        avail = self._avail & occupancy.exclusive.at_most(0)
        fits = self._machines.with_memory(self._counted(), occupancy.memory)
        used = {*occupancy.devices, *self._machines.nodes.devices_away}
        busy = [node for node in used if self._job.details.gres and avail[node]]
        for node in busy:
            if self._devices(node, occupancy) is None:
                avail[node] = 0
        levels = [level for level in occupancy.running.levels() if level < self._most]
        for level in levels:
            free = avail & occupancy.running.at_most(level)
            for suspended in _SUSPENDED if level == levels[-1] else _SUSPENDED[:-1]:
                nodes = free if suspended is None else free & occupancy.total.at_most(level + suspended)
                if level and (mate := self._mate(occupancy, nodes, fits)):
                    return mate
                found = self._on(occupancy, nodes, fits)
                if found is not None:
                    return found
        return None

    def _mate(self, occupancy: Occupancy, nodes: bitarray, fits: bitarray | None) -> Found | None:
        """Choose all nodes of a running job, if they are as many as wanted and the CPUs suffice."""
        usable = nodes if fits is None else nodes & fits
        wish = self._wish
        for share in list(occupancy.jobs.values())[:_MOST_MATES]:
            count = len(share.nodes)
            if share.stopped or share.alone or count != max(wish.req_nodes, wish.min_nodes) or count > wish.max_nodes:
                continue
            if all(usable[node] for node in share.nodes) and self._suits(share, wish):
                found = self._machines.nodes.bitmap(share.nodes)
                return Found(found, occupancy=occupancy)
        return None

    def _suits(self, share: JobHolding, wish: NodeWish) -> bool:
        nodes = share.nodes
        if wish.contiguous and nodes[-1] - nodes[0] >= len(nodes):
            return False
        if wish.required is not None and wish.required.count() != sum(wish.required[node] for node in nodes):
            return False
        return sum(self._amounts.of(node) for node in nodes) >= wish.cpus

    def _on(self, occupancy: Occupancy, nodes: bitarray, fits: bitarray | None) -> Found | None:
        """Choose the best of the nodes, the lightest first."""
        usable = nodes if fits is None else nodes & fits
        weights = self._machines.weights
        for weight in weights:
            offered = usable if len(weights) == 1 else usable & self._machines.lightest(weight)
            chosen = choose(offered, self._amounts, self._wish)
            if chosen is not None:
                return Found(chosen, occupancy=occupancy)
        return None

    def _devices(self, node: int, occupancy: Occupancy | None) -> tuple[str, ...] | None:
        """Return the keys of free devices of a node for the job, the lowest numbers first; None for too few devices."""
        there = self._machines.nodes[node]
        taken: tuple[str, ...] = ()
        if occupancy is not None and occupancy.size:  # else of an empty machine
            taken = (*occupancy.devices.get(node, ()), *self._machines.nodes.devices_away.get(node, ()))
        return whole_devices(there, self._job.details.gres, taken)
