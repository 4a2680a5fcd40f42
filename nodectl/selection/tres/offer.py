"""The offer of a node to a job: the number of CPUs, and for each number the cores and devices.

Found once for all nodes that are alike in shape and use, and kept with the use.
"""

from __future__ import annotations

from collections.abc import Sequence

from bitarray import bitarray

from nodectl.model.device_part import FREE, WHOLE, conflict, device_of, part_for
from nodectl.model.value_class import dataclass
from nodectl.placement.binding import devices
from nodectl.placement.binding.geometry import sockets_used, threads_used
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.selection.tres.cores import block, cyclic
from nodectl.selection.tres.shape import Grid, Shape
from nodectl.selection.tres.use import Loads, Use
from nodectl.selection.tres.wish import CPU, SOCKET, Wish

_MOST_KEPT = 128  # answers of one use


@dataclass(frozen=True, slots=True)
class Grant:
    """The resources of a node granted to a job.

    Cores as a set and as bits of the core bitmap; the CPUs with which the job is charged; memory in MiB; the keys of
    its devices.
    """

    cores: int
    bits: bitarray
    cpus: int
    memory: int
    gres: tuple[str, ...]


class NodeOffer:
    """The free resources of a node of this use for this wish.

    `cpus`: in all, out of the free cores of each socket. `room`: the CPUs usable by whole tasks. `near`: cores near
    enough free devices, 0 where none are requested.
    """

    __slots__ = (
        "_free_memory", "_grants", "_gres", "_loads", "_near", "_shape", "_sockets", "cpus", "grid", "room", "wish",
    )  # fmt: skip

    def __init__(self, use: Use, wish: Wish, grid: Grid, sockets: Sequence[int], near: int, cpus: int) -> None:
        # And not the use, which keeps this: it is to go when no node is used so any more.
        self._shape = use.shape
        self._free_memory = use.shape.memory - use.memory
        self._gres, self._loads = use.gres, use.loads
        self.wish = wish
        self.grid = grid
        self._sockets = sockets
        self._near = near
        self.cpus = cpus
        tasks = cpus // wish.size
        self.room = (min(tasks, wish.limit) if wish.limit else tasks) * wish.size
        self._grants: dict[int, Grant | None] = {}

    def grant(self, cpus: int) -> Grant | None:
        """Return the cores and devices for `cpus` CPUs; None where memory or devices are missing."""
        if cpus not in self._grants:
            self._grants[cpus] = self._granted(cpus)
        return self._grants[cpus]

    def _granted(self, cpus: int) -> Grant | None:
        wish, grid = self.wish, self.grid
        if wish.whole:
            return self._with_the_rest(sum(self._sockets), cpus)  # sockets have no core in common
        sockets = self._sockets
        if self._near:
            closer = [free & self._near for free in sockets]
            sockets = closer if sum(map(grid.cpus, closer)) >= cpus else sockets
        if wish.block:
            cores = block(grid, sockets, cpus)
        else:
            cores = cyclic(grid, sockets, cpus, cpus_per_task=wish.size, per_socket=wish.per_socket)
        # From fewer sockets less may go with them: of memory for each CPU, where whole sockets are given.
        return self._with_the_rest(cores, cpus) or self._with_the_rest(block(grid, sockets, cpus), cpus)

    def _with_the_rest(self, cores: int, cpus: int) -> Grant | None:
        """Add memory and devices to the cores; None where too few are free."""
        wish, shape = self.wish, self._shape
        if wish.unit == SOCKET and not wish.whole:
            cores = sum(free for free in self._sockets if free & cores)
        charged = cpus if wish.unit == CPU and not wish.whole else self.grid.cpus(cores)
        memory = wish.memory or wish.per_cpu * charged
        free = self._free_memory
        if memory > free and wish.whole:
            memory = max(wish.memory or wish.per_cpu * cpus, free)  # all free memory, if the tasks need no more
        if memory > free:
            return None
        keys: tuple[str, ...] = ()
        if wish.gres:
            try:
                keys = _devices_held(shape, wish, self._gres, self._loads, cores)
            except NoLayout:
                return None
        bits = bitarray(endian="little")
        bits.frombytes(cores.to_bytes(len(shape.widths) // 8 + 1, "little"))
        return Grant(cores, bits[: len(shape.widths)], charged, memory, keys)


def offer_of(use: Use, wish: Wish, row: int = 0) -> NodeOffer | None:
    """Return the offer of a node of this use, with up to `row` jobs already on each core; None for nothing."""
    key = (wish, row) if row else wish
    try:
        found: NodeOffer | None = use.offers[key]
        return found
    except KeyError:
        if len(use.offers) >= _MOST_KEPT:
            use.offers.clear()
        offer = use.offers[key] = _offer(use, wish, row)
        return offer


def _offer(use: Use, wish: Wish, row: int) -> NodeOffer | None:
    shape = use.shape
    served = shape.served[wish] if wish in shape.served else _served(shape, wish)
    if served is None or (wish.whole and use.levels):
        return None
    grid, free = served
    taken = use.taken(row, sharing=wish.sharers > 1)
    free &= ~taken
    cpus = _with_memory(grid.cpus(free), use, wish, grid)
    if cpus < wish.least:
        return None
    near = 0
    if wish.gres:
        found = _cores_near(use, wish, free)
        if found is None:
            return None
        near = found
        free = free & near if wish.enforce else free
    useful = sockets = [free & socket for socket in shape.sockets]
    if wish.picky:
        found_sockets = _sockets(use, wish, sockets, taken)
        if found_sockets is None:
            return None
        useful = sockets = found_sockets
        if wish.per_socket:
            useful = [grid.first(free, wish.per_socket * wish.size) for free in sockets]
        cpus = _with_memory(sum(map(grid.cpus, useful)), use, wish, grid)
        if cpus < wish.least:
            return None
    return NodeOffer(use, wish, grid, sockets if wish.whole else useful, near, cpus)


def _served(shape: Shape, wish: Wish) -> tuple[Grid, int] | None:
    """Return the usable threads of each core and the usable cores of empty nodes of a shape; None if unsuitable."""
    if len(shape.served) >= _MOST_KEPT:
        shape.served.clear()
    threads = threads_used(shape.threads, wish.request, wish.per_core)
    serves = threads and wish.features <= shape.features
    usable = shape.usable & ~shape.left_to_system(wish.system)
    found = shape.served[wish] = (shape.grid(threads), usable) if serves else None
    return found


def _sockets(use: Use, wish: Wish, sockets: Sequence[int], taken: int) -> list[int] | None:
    """Return the free cores of each suitable socket; None where too few are free."""
    if wish.unit == SOCKET and taken:
        sockets = [0 if socket & taken else free for socket, free in zip(use.shape.sockets, sockets, strict=True)]
    serve = sockets_used([free.bit_count() for free in sockets], wish.request)
    if serve is None:
        return None
    return [free if serves else 0 for free, serves in zip(sockets, serve, strict=True)]


def _with_memory(cpus: int, use: Use, wish: Wish, grid: Grid) -> int:
    """Return the number of CPUs, at most `cpus`, for which there is memory."""
    free = use.shape.memory - use.memory
    if wish.memory > free:
        return 0
    if not wish.per_cpu or wish.per_cpu * cpus <= free:
        return cpus
    most = max(free, 0) // wish.per_cpu
    return most if wish.unit == CPU or wish.whole else most - most % grid.unit


def _cores_near(use: Use, wish: Wish, free: int) -> int | None:
    """Return the cores near the free devices with the most free cores around; None where there are too few devices."""
    shape = use.shape
    picked = near = 0
    for asked in wish.gres:
        left = _with_room(use, asked, wish.user) & ~picked
        if left.bit_count() < asked.count:
            return None
        numbers = [number for number in range(left.bit_length()) if left >> number & 1]
        if not asked.is_share:
            numbers.sort(key=lambda number: -(shape.near(number) & free).bit_count())
            numbers = numbers[: asked.count]
        for number in numbers:  # any of them may be the one that is shared
            picked |= 0 if asked.is_share else 1 << number
            near |= shape.near(number)
    return near


def _with_room(use: Use, asked: devices.Wanted, user: int) -> int:
    """Return the devices of which there is as much free as asked for, by their places as bits."""
    shape = use.shape
    fitting = shape.fitting(asked.name, asked.type) & ~use.gres
    if not asked.is_share:
        return fitting & ~use.shared
    loads, found = dict(use.loads), 0
    for number in range(fitting.bit_length()):
        if fitting >> number & 1:
            device = shape.devices[number]
            part = part_for(device, asked.shards, asked.memory)
            if part is not None and not conflict(device, loads.get(number, FREE), part, user):
                found |= 1 << number
    return found


def _devices_held(shape: Shape, wish: Wish, taken: int, shared: Loads, cores: int) -> tuple[str, ...]:
    """Return the keys of the devices for a job on these cores, near devices first. Raises NoLayout for too few."""
    cpus = shape.cpu_mask(cores)
    loads = {shape.devices[place].key: load for place, load in shared}
    loads |= {device.key: WHOLE for device in shape.devices_of(taken)}  # also one with parts, used outside of jobs
    keys: list[str] = []
    for asked in wish.gres:
        found = devices.hold(shape.devices, asked, loads, cpus, shape.machine, user=wish.user)
        loads |= {device_of(device.key): WHOLE for device in found}
        keys += [device.key for device in found]
    return tuple(keys)
