"""The use of nodes. Nodes of equal shape and equal use share a `Use`, which keeps the offers found for all such nodes.

Where jobs share cores, `levels` are the rows of Slurm's cons_tres, sorted at all times: level n has the cores on which
more than n jobs are. They depend on which jobs are there and not on which came and went before.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from nodectl.model.device_part import ANYONE, FREE, DevicePart, Load
from nodectl.selection.tres.shape import Shape

Parts = tuple[tuple[int, DevicePart], ...]
"""Places of devices, and the part that a job holds of each."""
Loads = tuple[tuple[int, Load], ...]
"""Places of shared devices in ascending order, and what all jobs hold of each."""


class Share:
    """The resources of a job on a node.

    Cores as a set, memory in MiB, whole devices by their places, `parts` of devices; `cpus` counted. `alone`: no other
    job may be on its cores. `user`: the job's uid.
    """

    __slots__ = ("alone", "cores", "cpus", "gres", "memory", "parts", "user")

    def __init__(  # a value
        self, cores: int, memory: int, gres: int, cpus: int, *, alone: bool, parts: Parts = (), user: int = ANYONE
    ) -> None:  # fmt: skip
        self.cores = cores
        self.memory = memory
        self.gres = gres
        self.cpus = cpus
        self.alone = alone
        self.parts = parts
        self.user = user

    def at_rest(self) -> Share:
        """Return the share of the suspended job: memory and devices."""
        return Share(0, self.memory, self.gres, 0, alone=self.alone, parts=self.parts, user=self.user)


class Use:
    """The use of a node of this shape.

    `alone`: cores closed to further jobs. `levels`: all cores in use. `memory` in MiB. `gres`: the devices that are
    given whole, `loads` what is given of those that jobs share. Made by `Pool`, so that equal ones are the same.
    """

    __slots__ = ("__weakref__", "alone", "gres", "levels", "loads", "memory", "offers", "shape")

    def __init__(  # a value
        self, shape: Shape, alone: int, levels: tuple[int, ...], memory: int, gres: int, loads: Loads
    ) -> None:  # fmt: skip
        self.shape = shape
        self.alone = alone
        self.levels = levels
        self.memory = memory
        self.gres = gres
        self.loads = loads
        self.offers: dict[object, Any] = {}  # as `offer.offer_of` keeps them

    @property
    def busy(self) -> int:
        """The cores with jobs."""
        return self.levels[0] if self.levels else 0

    @property
    def shared(self) -> int:
        """The places of devices that jobs share, as bits."""
        bits = 0
        for place, _ in self.loads:
            bits |= 1 << place
        return bits

    def taken(self, row: int, *, sharing: bool) -> int:
        """Return the cores closed to a job.

        With `sharing`: cores of jobs without sharing, and cores with more than `row` jobs. Otherwise all cores with
        jobs.
        """
        if not sharing:
            return self.levels[0] if self.levels else 0
        return self.alone | self.levels[row] if row < len(self.levels) else self.alone


_Key = tuple[Shape, int, tuple[int, ...], int, int, Loads]


class Pool:
    """The distinct uses of nodes."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[_Key, Use] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._known)

    def of(  # a value's
        self, shape: Shape, alone: int = 0, levels: tuple[int, ...] = (), memory: int = 0, gres: int = 0,
        loads: Loads = (),
    ) -> Use:  # fmt: skip
        """Return the use with these values, the same object each time."""
        key = (shape, alone, levels, memory, gres, loads)
        use = self._known.get(key)
        if use is None:
            use = self._known[key] = Use(*key)
        return use

    def plus(self, use: Use, share: Share) -> Use:
        """Return the use with another job."""
        levels = raised(use.levels, share.cores)
        alone = use.alone | share.cores if share.alone else use.alone
        loads = _changed(use, share, 1) if share.parts else use.loads
        return self.of(use.shape, alone, levels, use.memory + share.memory, use.gres | share.gres, loads)

    def minus(self, use: Use, share: Share) -> Use:
        """Return the use without a job.

        Several jobs may have a core that each should have alone, after a change of configuration while they run. The
        core then stays alone until the last of these jobs has left.
        """
        levels = lowered(use.levels, share.cores)
        alone = use.alone
        if alone and share.alone:
            shared = use.levels[1] if len(use.levels) > 1 else 0
            alone = alone & (~share.cores | shared) & (levels[0] if levels else 0)
        loads = _changed(use, share, -1) if share.parts else use.loads
        return self.of(use.shape, alone, levels, max(use.memory - share.memory, 0), use.gres & ~share.gres, loads)

    def without_cores(self, use: Use, cores: int) -> Use:
        """Return the use with these cores taken."""
        base = use.levels[0] if use.levels else 0
        if not cores & ~(base & use.alone):
            return use
        return self.of(use.shape, use.alone | cores, (base | cores, *use.levels[1:]), use.memory, use.gres, use.loads)

    def without_devices(self, use: Use, gres: int) -> Use:
        """Return the use with these devices taken."""
        return self.of(use.shape, use.alone, use.levels, use.memory, use.gres | gres, use.loads)


def _changed(use: Use, share: Share, sign: int) -> Loads:
    loads = dict(use.loads)
    for place, part in share.parts:
        load = loads.get(place, FREE)
        user = share.user if use.shape.devices[place].one_user else ANYONE
        load = load.plus(part, user) if sign > 0 else load.minus(part)
        if load.is_shared:
            loads[place] = load
        else:
            loads.pop(place, None)
    return tuple(sorted(loads.items()))


def raised(levels: tuple[int, ...], cores: int) -> tuple[int, ...]:
    """Return the levels with another job on these cores."""
    if not cores:
        return levels
    if not levels:
        return (cores,)
    if not levels[0] & cores:
        return (levels[0] | cores, *levels[1:])
    made = list(levels)
    for number, level in enumerate(levels):
        made[number] = level | cores
        cores &= level
        if not cores:
            return tuple(made)
    return (*made, cores)


def lowered(levels: tuple[int, ...], cores: int) -> tuple[int, ...]:
    """Return the levels with a job less on these cores."""
    made = list(levels)
    for number in range(len(made) - 1, -1, -1):
        hit = made[number] & cores
        made[number] ^= hit
        cores ^= hit
        if not cores:
            break
    while made and not made[-1]:
        made.pop()
    return tuple(made)
