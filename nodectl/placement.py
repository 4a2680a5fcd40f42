"""Which CPUs each task of a step gets: a function of values.

Owns: the rules of binding. Runs in the daemon before any process of the step exists, so that a
request that cannot be met is refused while refusing is free. Pure: no logging, no files, no exit;
the same question gives the same answer.

The rules are those of Slurm's task/affinity. In short: an explicit list is taken as it is or
refused; without a unit, one is found where the step's CPUs are exactly the sockets, cores or
threads of the allocation; with a unit, tasks are dealt out over the sockets in turn and their masks
are then widened to that unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nodectl.cpu_bind import CpuBind, Unit, format_mask
from nodectl.topology import Core, Topology


class NoFit(Exception):
    """The request cannot be placed; `reason` is one line for its user."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Request:
    """What a step asks of one node: tasks, CPUs for each of them, and the way to bind them."""

    ntasks: int
    cpus_per_task: int = 1
    bind: CpuBind = field(default_factory=CpuBind)

    def __post_init__(self) -> None:
        if self.ntasks < 1 or self.cpus_per_task < 1:
            raise ValueError(f"{self.ntasks} tasks of {self.cpus_per_task} CPUs: below 1")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the tasks go.

    `masks`: machine CPUs, one mask a task in the order of their local numbers; 0 is not bound, to
    inherit. `unit`: what the masks were made for; AUTO where no unit fitted and everybody has the
    whole allocation. `rule`: the rule that was used, in words.
    """

    masks: tuple[int, ...]
    unit: Unit
    rule: str


def bind(topology: Topology, allocation: int, request: Request) -> Placement:
    """Place the tasks of `request` on the CPUs of `allocation`, a machine mask.

    Only CPUs that are online and usable count. More tasks than CPUs share them. NoFit if the
    allocation has no CPU, has fewer than one task needs, or does not hold a CPU the user named.
    """
    available = allocation & topology.usable
    if not available:
        raise NoFit("the allocation holds no CPU that is online and usable by the service")
    if request.cpus_per_task > available.bit_count():
        raise NoFit(
            f"{_count(request.cpus_per_task, 'CPU')} a task of the {available.bit_count()} "
            f"in the allocation (mask {format_mask(available, topology.width)})"
        )
    unit = request.bind.unit
    if unit is Unit.NONE:
        return _unbound(topology, available, request.ntasks)
    if unit in (Unit.MAP, Unit.MASK):
        return _listed(topology, available, request)
    if unit is Unit.AUTO:
        return _automatic(topology, available, request)
    masks = _by_unit(topology, available, request, unit)
    return Placement(masks, unit, f"bound to {unit.value}, as asked")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _unbound(topology: Topology, available: int, ntasks: int) -> Placement:
    if available == topology.usable:
        return Placement((0,) * ntasks, Unit.NONE, "not bound, as asked")
    # Others own the rest of the machine: free means free within the allocation.
    rule = "not bound, as asked, but kept to the allocation, which is a part of the machine"
    return Placement((available,) * ntasks, Unit.NONE, rule)


def _listed(topology: Topology, available: int, request: Request) -> Placement:
    """Hand out an explicit list in turn; all of it must be allocated, also what no task gets."""
    asked = request.bind
    word = f"--cpu-bind={asked.unit.value}"
    # An empty mask cannot be set; Slurm reads it as the allocation.
    masks = [1 << cpu for cpu in asked.ids] if asked.unit is Unit.MAP else asked.masks
    wanted: Sequence[int] = [mask or available for mask in masks]
    for mask in wanted:
        outside = mask & ~available
        if outside:
            cpu = (outside & -outside).bit_length() - 1
            where = "not on this machine" if not topology.online >> cpu & 1 else "not allocated"
            raise NoFit(f"{word}: CPU {cpu} is {where}; allocated CPUs are: {format_mask(available, topology.width)}")
    masks = tuple(wanted[task % len(wanted)] for task in range(request.ntasks))
    return Placement(masks, asked.unit, f"bound by the list of {asked.unit.value}, as asked")


def _whole(parts: Sequence[int], available: int, usable: int) -> tuple[int, bool]:
    """Count the parts that `available` holds whole; say whether it also holds a piece of one."""
    whole = 0
    partial = False
    for part in parts:
        got = part & available
        if got and got == part & usable:
            whole += 1
        elif got:
            partial = True
    return whole, partial


def _automatic(topology: Topology, available: int, request: Request) -> Placement:
    """Find the unit of which the step fills all that are allocated; without, share them all."""
    need = request.ntasks * request.cpus_per_task
    candidates = (
        (Unit.SOCKETS, [socket.mask for socket in topology.sockets]),
        (Unit.CORES, [core.mask for core in topology.cores]),
        (Unit.THREADS, [1 << cpu for cpu in topology.machine_of]),
    )
    wants = f"{_count(request.ntasks, 'task')} of {_count(request.cpus_per_task, 'CPU')}"
    for unit, parts in candidates:
        whole, partial = _whole(parts, available, topology.usable)
        if whole == need and not partial:
            noun = unit.value.removesuffix("s")
            rule = f"bound to {unit.value}: {wants} for {_count(whole, noun)}"
            return Placement(_by_unit(topology, available, request, unit), unit, rule)
    rule = f"bound to the whole allocation: {wants} are not its number of sockets, cores or threads"
    return Placement((available,) * request.ntasks, Unit.AUTO, rule)


def _by_unit(topology: Topology, available: int, request: Request, unit: Unit) -> tuple[int, ...]:
    # Too few CPUs for all: tasks get smaller, down to one CPU each, and then share.
    size = min(request.cpus_per_task, max(1, available.bit_count() // request.ntasks))
    dealt = _deal(topology, available, request.ntasks, size, skip_core=unit is Unit.CORES)
    if unit is Unit.THREADS:
        return dealt
    if unit is Unit.CORES:
        parts = [core.mask for core in topology.cores]
    else:
        parts = [socket.mask for socket in topology.sockets]
    # Tasks that share are many and alike: each mask is widened once.
    wide = {mask: _widen(mask, parts) & available for mask in set(dealt)}
    return tuple(wide[mask] for mask in dealt)


def _widen(mask: int, parts: Sequence[int]) -> int:
    wide = 0
    for part in parts:
        if part & mask:
            wide |= part
    return wide


class _Cursor:
    """The threads of one socket in abstract order, and the next one to look at."""

    __slots__ = ("next", "threads")

    def __init__(self, cores: Sequence[Core]) -> None:
        self.threads = [(cpu, len(core.cpus)) for core in cores for cpu in core.cpus]
        self.next = 0

    @property
    def spent(self) -> bool:
        return self.next >= len(self.threads)

    def take(self, free: int) -> tuple[int, int] | None:
        """Go to the next thread in `free`; return its CPU and its core's threads, or None."""
        while not self.spent:
            cpu, siblings = self.threads[self.next]
            self.next += 1
            if free >> cpu & 1:
                return cpu, siblings
        return None


def _deal(topology: Topology, available: int, ntasks: int, size: int, *, skip_core: bool) -> tuple[int, ...]:
    """Deal tasks of `size` CPUs over the sockets in turn; `size` is at most what is available.

    A task fills up in its socket and overflows into the next. When every socket is used up, all
    begin anew: from there on CPUs are shared. `skip_core`: leave the rest of a task's last core to
    nobody.
    """
    cursors = [_Cursor(socket.cores) for socket in topology.sockets]
    masks = []
    turn = 0
    for _ in range(ntasks):
        mask = 0
        for _ in range(size):
            cpu, siblings, turn = _next_thread(cursors, turn, available & ~mask)
            mask |= 1 << cpu
        if skip_core:
            # Slurm's arithmetic, also where a task is larger than a core and this is not what it
            # leaves over.
            cursors[turn].next += siblings - size if size < siblings else size % siblings
        masks.append(mask)
        turn = (turn + 1) % len(cursors)
    return tuple(masks)


def _next_thread(cursors: Sequence[_Cursor], turn: int, free: int) -> tuple[int, int, int]:
    """Return the next CPU in `free` from `turn` on, its core's threads, and its socket."""
    while True:
        turns = ((turn + step) % len(cursors) for step in range(len(cursors)))
        unspent = next((index for index in turns if not cursors[index].spent), None)
        if unspent is None:
            # Slurm begins anew at the socket it looked through last, not at the first.
            for cursor in cursors:
                cursor.next = 0
        else:
            turn = unspent
        found = cursors[turn].take(free)
        if found is not None:
            return (*found, turn)
