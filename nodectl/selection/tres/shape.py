"""The shapes of nodes: cores, memory and devices in a form suited to fitting jobs.

A set of a node's cores is an int whose bit n stands for core n of its machine; those of one socket are consecutive.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from nodectl.model.device_part import DevicePart, device_of, part_of
from nodectl.placement.binding.devices import near
from nodectl.placement.binding.job import specialised
from nodectl.placement.binding.request import Settings
from nodectl.placement.machine.declared_devices import Device
from nodectl.placement.machine.topology import Topology
from nodectl.selection.records import NodeRecord

UNLIMITED = 1 << 60
"""Memory of a node that does not say how much it has."""


def lowest(cores: int, count: int) -> int:
    """Return the `count` lowest cores of a set, all where there are fewer."""
    more = cores.bit_count() - count
    if more <= 0:
        return cores
    if more < count:
        for _ in range(more):
            cores ^= 1 << cores.bit_length() - 1
        return cores
    left = cores
    for _ in range(count):
        left &= left - 1
    return cores ^ left


class Grid:
    """The cores of a machine for a job using a fixed number of threads of each.

    `width`: CPUs of every core, 0 where they differ; `unit`: CPUs of the widest; `threads`: threads used of a core at
    most.
    """

    __slots__ = ("boards", "sockets", "threads", "unit", "width", "widths")

    def __init__(self, shape: Shape, threads: int) -> None:
        self.threads = threads
        self.sockets = shape.sockets
        self.boards = shape.boards
        self.widths = tuple(min(width, threads) for width in shape.widths)
        there = {width for width in self.widths if width}
        self.width = there.pop() if len(there) == 1 else 0
        self.unit = max(self.widths, default=1)

    def cpus(self, cores: int) -> int:
        """Return the number of CPUs on a set of cores."""
        if self.width:
            return cores.bit_count() * self.width
        total = 0
        while cores:
            core = cores & -cores
            total += self.widths[core.bit_length() - 1]
            cores ^= core
        return total

    def first(self, cores: int, cpus: int) -> int:
        """Return the first cores of a set for `cpus` CPUs, all cores if too few."""
        if self.width:
            return lowest(cores, -(-cpus // self.width))
        left = cores
        while cpus > 0 and left:
            core = left & -left
            cpus -= self.widths[core.bit_length() - 1]
            left ^= core
        return cores ^ left


class Shape:
    """The equal properties of nodes.

    `cores`: all of them; `usable`: the cores available to jobs; `widths`: usable CPUs of each; `sockets` as sets of
    cores, `boards` as numbers of sockets; `memory` in MiB.
    """

    __slots__ = (
        "_fitting", "_grids", "_near", "bits", "boards", "cores", "devices", "features", "machine", "memory", "served",
        "sockets", "threads", "usable", "weight", "widths",
    )  # fmt: skip

    def __init__(self, node: NodeRecord) -> None:
        machine: Topology = node.config
        every = machine.cores
        self.machine = machine
        self.threads = machine.threads_per_core
        self.cores = (1 << len(every)) - 1
        self.usable = 0
        for number, core in enumerate(every):
            if core.mask & machine.usable and not core.mask & node.reserved_cpus:
                self.usable |= 1 << number
        self.widths = tuple(
            (core.mask & machine.usable).bit_count() if self.usable >> number & 1 else 0
            for number, core in enumerate(every)
        )
        sockets, at = [], 0
        for socket in machine.sockets:
            sockets.append(((1 << len(socket.cores)) - 1) << at)
            at += len(socket.cores)
        self.sockets = tuple(sockets)
        self.boards = tuple(
            tuple(number for number, socket in enumerate(machine.sockets) if socket.mask & board.mask)
            for board in machine.boards
        )
        self.memory = max(node.real_memory - node.mem_spec_limit, 0) if node.real_memory else UNLIMITED
        self.devices = node.devices
        self.bits = {device.key: 1 << number for number, device in enumerate(node.devices)}
        self.features = frozenset(node.features)
        self.weight = node.weight
        self._grids: dict[int, Grid] = {}
        self.served: dict[object, tuple[Grid, int] | None] = {}  # by wish, written by `offer.py`
        self._near: dict[int, int] = {}
        self._fitting: dict[tuple[str, str], int] = {}

    def grid(self, threads: int) -> Grid:
        """Return the cores for a job using `threads` threads of each."""
        grid = self._grids.get(threads)
        if grid is None:
            grid = self._grids[threads] = Grid(self, threads)
        return grid

    def fitting(self, name: str, kind: str) -> int:
        """Return the devices of this name, and of this type where given, as bits by place."""
        found = self._fitting.get((name, kind))
        if found is None:
            found = 0
            for number, device in enumerate(self.devices):
                if device.name == name and kind in ("", device.type):
                    found |= 1 << number
            if found:  # users may ask for anything: missing devices are not kept
                self._fitting[name, kind] = found
        return found

    def near(self, number: int) -> int:
        """Return the cores near a device."""
        cores = self._near.get(number)
        if cores is None:
            cores = self._near[number] = self.cores_of(near(self.devices[number], self.machine))
        return cores

    def cores_of(self, mask: int) -> int:
        """Return the cores with a CPU in a machine mask."""
        cores = 0
        for number, core in enumerate(self.machine.cores):
            if core.mask & mask:
                cores |= 1 << number
        return cores

    def cpu_mask(self, cores: int) -> int:
        """Return the machine mask of the usable CPUs of a set of cores."""
        mask = 0
        for number, core in enumerate(self.machine.cores):
            if cores >> number & 1:
                mask |= core.mask
        return mask & self.machine.usable

    def devices_of(self, bits: int) -> tuple[Device, ...]:
        """Return the devices at the places of the bits."""
        return tuple(device for number, device in enumerate(self.devices) if bits >> number & 1)

    def bits_of(self, keys: Iterable[str]) -> int:
        """Return the places of the devices that the keys give whole, as bits; missing devices have none."""
        bits = 0
        for key in keys:
            bits |= self.bits.get(key, 0)
        return bits

    def parts_of(self, keys: tuple[str, ...]) -> tuple[tuple[int, DevicePart], ...]:
        """Return the places and parts of the devices that the keys give in parts; missing devices have none."""
        found = []
        for key in keys:
            part, bit = part_of(key), self.bits.get(device_of(key), 0)
            if part is not None and bit:
                found.append((bit.bit_length() - 1, part))
        return tuple(found)

    def left_to_system(self, count: int) -> int:
        """Return the cores left to the system by a job with `count` specialised cores."""
        return self.cores_of(specialised(self.machine, _leaving(count))) if count else 0


@functools.lru_cache(maxsize=64)
def _leaving(count: int) -> Settings:
    return Settings(core_spec_count=count)
