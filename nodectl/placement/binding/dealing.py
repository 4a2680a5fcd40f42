"""Dealing CPUs to the tasks of a node: the work of task/affinity for `threads`, `cores`, `sockets` and `ldoms`.

Works on a socket-major list of threads. The rules are Slurm's; comments mark the surprising rules.
"""

from __future__ import annotations

from nodectl.model.value_class import dataclass
from nodectl.placement.binding.cpu_bind import CORES, LDOMS, SOCKETS
from nodectl.placement.machine.topology import Topology


class DoesNotFit(Exception):
    """The tasks cannot be dealt; the caller gives each task the whole allocation or refuses the request."""


@dataclass(frozen=True, slots=True)
class Deal:
    """A request to deal: tasks of `size` CPUs out of the machine mask `available`. 0 stands for no limit."""

    ntasks: int
    size: int
    available: int
    unit: str
    threads_limit: int = 0
    per_core: int = 0
    per_socket: int = 0


class _Grid:
    """A machine's threads in socket-major order: the CPU and the core of each position; the threads of each core."""

    __slots__ = ("core", "cores", "cpu", "sockets")

    def __init__(self, machine: Topology) -> None:
        self.cores: list[int] = []
        self.cpu: list[int] = []
        self.core: list[int] = []
        self.sockets: list[tuple[int, int]] = []  # first position, end
        for socket in machine.sockets:
            first = len(self.cpu)
            for core in socket.cores:
                self.cpu += core.cpus
                self.core += [len(self.cores)] * len(core.cpus)
                self.cores.append(len(core.cpus))
            self.sockets.append((first, len(self.cpu)))


def deal(machine: Topology, order: Deal, *, block: bool, full_cyclic: bool) -> tuple[int, ...]:
    """Return the masks of the tasks, in the order of local task numbers. Raises DoesNotFit."""
    size = _size(machine, order)
    grid = _Grid(machine)
    skip = [0] * len(grid.cores)
    if order.unit == CORES or order.per_core == 1:
        # Slurm's arithmetic, even for a task larger than a core, where this is not the number of its idle threads.
        skip = [threads - size if size < threads else size % threads for threads in grid.cores]
    masks = _block(grid, order, size, skip) if block else _cyclic(grid, order, size, skip, full_cyclic=full_cyclic)
    return _widened(machine, order, masks)


def _size(machine: Topology, order: Deal) -> int:
    """Return the CPUs for each task: the requested size, or fewer if there are too few CPUs for all tasks."""
    there = order.available.bit_count()
    threads = machine.threads_per_core
    limit = order.threads_limit if order.threads_limit <= threads else 0
    if there < order.ntasks or (limit and there < order.size * (threads // limit)):
        raise DoesNotFit
    return min(order.size, there // order.ntasks)


class _Used:
    """The counts of a round through the machine: threads and tasks of each core, tasks of each socket."""

    __slots__ = ("_order", "_tasks", "_tasks_on_socket", "_threads")

    def __init__(self, order: Deal) -> None:
        self._order = order
        self._threads: dict[int, int] = {}
        self._tasks: dict[int, int] = {}
        self._tasks_on_socket: dict[int, int] = {}

    def take(self, cpu: int, core: int) -> bool:
        """Take this thread if the limits allow. Return True if the thread was taken."""
        order = self._order
        if not order.available >> cpu & 1 or (order.per_core and self._tasks.get(core, 0) >= order.per_core):
            return False
        threads = self._threads.get(core, 0)
        if order.threads_limit and threads >= order.threads_limit:
            return False
        self._threads[core] = threads + 1
        return True

    def full(self, socket: int) -> bool:
        """Return True if a socket has the most tasks allowed."""
        return bool(self._order.per_socket) and self._tasks_on_socket.get(socket, 0) >= self._order.per_socket

    def complete(self, core: int, socket: int) -> None:
        """Count a task at the core and the socket of the task's last CPU."""
        self._tasks[core] = self._tasks.get(core, 0) + 1
        self._tasks_on_socket[socket] = self._tasks_on_socket.get(socket, 0) + 1


class _Hand:
    """The masks of the tasks during the deal."""

    __slots__ = ("_mask", "_size", "_taken", "masks")

    def __init__(self, size: int) -> None:
        self.masks: list[int] = []
        self._size = size
        self._mask = self._taken = 0

    def add(self, cpu: int) -> bool:
        """Give a CPU to the current task. Return True if the task is complete."""
        self._mask |= 1 << cpu
        self._taken += 1
        if self._taken < self._size:
            return False
        self.masks.append(self._mask)
        self._mask = self._taken = 0
        return True


def _block(grid: _Grid, order: Deal, size: int, skip: list[int]) -> list[int]:
    """Deal the CPUs task by task along the machine. Start again at the end of the machine: tasks then share CPUs."""
    hand = _Hand(size)
    socket_of = [number for number, (first, end) in enumerate(grid.sockets) for _ in range(first, end)]
    while len(hand.masks) < order.ntasks:
        before = len(hand.masks)
        used = _Used(order)
        at = 0
        while at < len(grid.cpu) and len(hand.masks) < order.ntasks:
            here = at
            at += 1
            cpu, core = grid.cpu[here], grid.core[here]
            if not used.full(socket_of[here]) and used.take(cpu, core) and hand.add(cpu):
                used.complete(core, socket_of[here])
                at += skip[core]
        if len(hand.masks) == before:
            raise DoesNotFit
    return hand.masks


def _cyclic(grid: _Grid, order: Deal, size: int, skip: list[int], *, full_cyclic: bool) -> list[int]:
    """Deal the next task, or with `full_cyclic` the next CPU, from the next socket; start again after the last CPU."""
    hand, used = _Hand(size), _Used(order)
    count = len(grid.sockets)
    starts = [first for first, _ in grid.sockets]
    ends = [end for _, end in grid.sockets]
    cursor = list(starts)
    left = count  # sockets that are not used up
    socket = idle = 0
    while len(hand.masks) < order.ntasks:
        while left and cursor[socket] >= ends[socket]:
            socket = (socket + 1) % count
        if not left:
            # CPUs are shared from here on; the socket looked at last is the first one again.
            cursor, left, used = list(starts), count, _Used(order)
        here = cursor[socket]
        left -= _advance(cursor, ends, socket, 1)
        idle += 1
        if used.take(grid.cpu[here], grid.core[here]):
            complete = hand.add(grid.cpu[here])
            if full_cyclic:
                socket = (socket + 1) % count
            if complete:
                used.complete(grid.core[here], socket)
                left -= _advance(cursor, ends, socket, skip[grid.core[here]])
                socket = socket if full_cyclic else (socket + 1) % count
                idle = 0
        if idle > 2 * len(grid.cpu):
            raise DoesNotFit
    return hand.masks


def _advance(cursor: list[int], ends: list[int], socket: int, steps: int) -> bool:
    """Move a socket's cursor. Return True if this move used the socket up."""
    before = cursor[socket]
    cursor[socket] += steps
    return before < ends[socket] <= cursor[socket]


def _widened(machine: Topology, order: Deal, masks: list[int]) -> tuple[int, ...]:
    """Fill the masks up to the unit: cores and sockets with all available CPUs, NUMA nodes whole."""
    if order.unit == CORES:
        parts = [core.mask for core in machine.cores]
    elif order.unit == SOCKETS:
        parts = [socket.mask for socket in machine.sockets]
    elif order.unit == LDOMS:
        parts = [node.mask for node in machine.nodes]
    else:
        return tuple(masks)
    within = machine.online if order.unit == LDOMS else order.available
    part_of = {}
    for part in parts:
        rest = part
        while rest:
            low = rest & -rest
            part_of[low] = part & within
            rest ^= low
    # Tasks that share are many and alike: each mask is widened once.
    wide: dict[int, int] = {}
    for mask in set(masks):
        rest, whole = mask, 0
        while rest:
            part = part_of.get(rest & -rest, 0) | (rest & -rest)
            whole |= part
            rest &= ~part
        wide[mask] = whole
    return tuple(wide[mask] for mask in masks)
