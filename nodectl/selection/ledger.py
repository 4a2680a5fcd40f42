"""The host's own account of cores, memory and devices held by jobs, apart from the plugin's.

Each active job is in it from its beginning to its real end, when its processes are gone. Each choice of a plugin is
compared with it, so that a faulty plugin gives nothing twice. Pure; an operation costs as much as the range of the
job's own nodes, and not of the table's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bitarray import bitarray

from nodectl.model import device_part
from nodectl.model.device_part import DevicePart, Load
from nodectl.model.value_class import dataclass
from nodectl.selection.records import JobRecord, JobResources, NodeTable
from nodectl.selection.slurmctld import Parameters

_ONE = bitarray("1")
_PLENTY = 1 << 62
_FEW = 8


@dataclass(slots=True)
class _Held:
    """The ledger's own copy of a job's resources, changed only by the ledger. `cores`: the cores from `low` on."""

    low: int
    cores: bitarray
    memory: dict[int, int]
    gres: dict[int, tuple[str, ...]]
    user: int
    sharing: bool = False
    stopped: bool = False

    @property
    def high(self) -> int:
        return self.low + len(self.cores)


class Ledger:
    """The account of the resources held by jobs.

    `busy`: cores that a job holds; `alone`: cores whose job does not share them. A suspended job's cores are in
    neither, but its memory and devices are still held. `changes` counts changes: while the number is the same, so is
    the account.
    """

    def __init__(self, nodes: NodeTable, parameters: Parameters) -> None:
        self.nodes = nodes
        self.parameters = parameters
        self.busy = bitarray(nodes.core_count)
        self.alone = bitarray(nodes.core_count)
        self.changes = 0
        self._held: dict[JobRecord, _Held] = {}
        self._more: dict[int, int] = {}  # by core: jobs beyond the first
        self._memory: dict[int, int] = {}  # MiB by node
        self._devices: dict[
            int, dict[str, dict[JobRecord, DevicePart | None]]
        ] = {}  # by node and device: what each holds

    @property
    def jobs(self) -> list[JobRecord]:
        """The jobs with resources."""
        return list(self._held)

    def __contains__(self, job: object) -> bool:
        return job in self._held

    def is_empty(self) -> bool:
        """True when no job holds anything."""
        return not self._held

    def picture(self) -> tuple[object, ...] | None:
        """Return all values with which a choice is compared; equal pictures mean equal accounts.

        None where the picture would be long, or a job is suspended.
        """
        if len(self._held) > _FEW or any(held.stopped for held in self._held.values()):
            return None
        devices = tuple((node, tuple(self.loads(node).items())) for node in self._devices)
        more, memory = tuple(self._more.items()), tuple(self._memory.items())
        return self.busy.tobytes(), self.alone.tobytes(), more, memory, devices

    def memory_used(self, node: int) -> int:
        """Return the MiB of a node held by jobs."""
        return self._memory.get(node, 0)

    def memory_free(self, node: int) -> int:
        """Return the free MiB of a node; without bound where the node's memory is unknown, or is not counted."""
        record = self.nodes[node]
        if not record.real_memory or not self.parameters.tracks_memory:
            return _PLENTY
        return int(record.real_memory - record.mem_spec_limit - self._memory.get(node, 0))

    @property
    def with_devices(self) -> list[int]:
        """The nodes with a device held by a job."""
        return list(self._devices)

    def loads(self, node: int, without: Collection[JobRecord] = ()) -> dict[str, Load]:
        """Return what jobs, but those in `without`, hold of the node's devices, by the device's key."""
        loads = {}
        for key, holders in self._devices.get(node, {}).items():
            load = device_part.FREE
            for job, part in holders.items():
                load = load if job in without else load.plus(part, self._held[job].user)
            loads[key] = load
        return loads

    def devices_used(self, node: int) -> dict[str, JobRecord]:
        """Return a holding job by key of the device, with the parts of it that all jobs together hold."""
        holders = self._devices.get(node, {})
        used = {}
        for key, load in self.loads(node).items():
            used[key if load.wholes else f"{key}{load.part}"] = next(iter(holders[key]))
        return used

    def cpus_used(self, node: int) -> int:
        """Return the mask of the node's CPUs on cores held by jobs."""
        return self.nodes.cpu_mask(self.nodes[node], self.busy)

    def take(self, job: JobRecord) -> None:
        """Enter the job's `job_resrcs` as held."""
        if job in self._held or job.job_resrcs is None:
            return
        held = self._of(job, job.job_resrcs)
        held.sharing = self.parameters.sharers(job) > 1
        self._put(job, held)

    def _put(self, job: JobRecord, held: _Held) -> None:
        self.changes += 1
        self._held[job] = held
        if not held.stopped:
            self._take_cores(held)
        for node, memory in held.memory.items():
            self._memory[node] = self._memory.get(node, 0) + memory
        for node, keys in held.gres.items():
            there = self._devices.setdefault(node, {})
            for key in keys:
                there.setdefault(device_part.device_of(key), {})[job] = device_part.part_of(key)

    def give(self, job: JobRecord) -> _Held | None:
        """Remove the job, whatever the job's record says now. Returns what the job held, None for nothing."""
        held = self._held.pop(job, None)
        if held is None:
            return None
        self.changes += 1
        if not held.stopped:
            self._give_cores(held)
        for node, memory in held.memory.items():
            left = self._memory.pop(node, 0) - memory  # several jobs may hold nothing of it
            if left:
                self._memory[node] = left
        for node, keys in held.gres.items():
            there = self._devices[node]
            for name in map(device_part.device_of, keys):
                holders = there.get(name, {})
                holders.pop(job, None)
                if not holders:
                    there.pop(name, None)
            if not there:
                del self._devices[node]
        return held

    def stop(self, job: JobRecord) -> None:
        """Free the cores of a suspended job, but not the job's memory and devices."""
        held = self._held.get(job)
        if held is not None and not held.stopped:
            held.stopped = True
            self._give_cores(held)

    def go_on(self, job: JobRecord) -> None:
        """Enter the job's cores again."""
        held = self._held.get(job)
        if held is not None and held.stopped:
            held.stopped = False
            self.changes += 1
            self._take_cores(held)

    def is_stopped(self, job: JobRecord) -> bool:
        """True for a suspended job, whose cores are free."""
        held = self._held.get(job)
        return held is not None and held.stopped

    def conflicts(
        self, job: JobRecord, resources: JobResources | None = None, without: Iterable[JobRecord] = ()
    ) -> str:
        """Return the reason against `resources`, or else the job's own, beside all resources held; "" for none.

        What the job itself holds is not counted, nor what the jobs in `without` hold.
        """
        wanted = resources or job.job_resrcs
        if wanted is None:
            return "nothing is given to it"
        lifted = {one: held for one in (job, *without) if (held := self.give(one)) is not None}
        try:
            found = self._of(job, wanted)
            return self._core_conflict(job, found) or self._rest_conflict(found)
        finally:
            for one, held in lifted.items():
                self._put(one, held)

    def _of(self, job: JobRecord, resources: JobResources) -> _Held:
        nodes = resources.node_bitmap
        first, last = nodes.find(1), nodes.find(1, right=True)
        low = high = 0
        if first >= 0:
            low, high = self.nodes[first].core_offset, self.nodes[last].core_offset + self.nodes[last].cores
        memory = {node: mib for node, mib in resources.memory.items() if mib}
        return _Held(low, resources.core_bitmap[low:high], memory, dict(resources.gres), job.user_id)

    def _core_conflict(self, job: JobRecord, wanted: _Held) -> str:
        most = self.parameters.sharers(job)
        taken = wanted.cores & (self.busy if most <= 1 else self.alone)[wanted.low : wanted.high]
        if taken.any():
            return f"{self._core(wanted.low + taken.find(1))} is another job's"
        if most > 1 and self._more:
            for core in (wanted.cores & self.busy[wanted.low : wanted.high]).search(_ONE):
                if self._more.get(wanted.low + core, 0) + 2 > most:
                    return f"{self._core(wanted.low + core)} has {most} jobs already"
        return ""

    def _rest_conflict(self, wanted: _Held) -> str:
        for node, memory in wanted.memory.items():
            free = self.memory_free(node)
            if memory > free:
                return f"node {self.nodes[node].name} has {max(free, 0)} MiB free, and not {memory}"
        for node, keys in wanted.gres.items():
            if taken := device_part.clash(self.nodes[node].devices, self.loads(node), keys, wanted.user):
                name, _, why = taken.partition(" ")
                holders = self._devices.get(node, {}).get(name, {})
                if None in holders.values():
                    why = f"is job {next(iter(holders)).job_id}'s"
                return f"{name} of node {self.nodes[node].name} {why}"
        return ""

    def _core(self, number: int) -> str:
        """Return the name of a core for people."""
        low, high = 0, len(self.nodes) - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.nodes[middle].core_offset <= number else (low, middle - 1)
        node = self.nodes[low]
        return f"core {number - node.core_offset} of node {node.name}"

    def _take_cores(self, held: _Held) -> None:
        both = held.cores & self.busy[held.low : held.high]
        for core in both.search(_ONE) if both.any() else ():
            self._more[held.low + core] = self._more.get(held.low + core, 0) + 1
        self.busy[held.low : held.high] |= held.cores
        if not held.sharing:
            self.alone[held.low : held.high] |= held.cores

    def _give_cores(self, held: _Held) -> None:
        if not held.sharing:
            self.alone[held.low : held.high] &= ~held.cores
        left = held.cores.copy()
        both = list(left.search(_ONE)) if self._more else ()
        for core in both:
            others = self._more.get(held.low + core, 0)
            if others:
                left[core] = 0
                if others > 1:
                    self._more[held.low + core] = others - 1
                else:
                    del self._more[held.low + core]
        self.busy[held.low : held.high] &= ~left
