"""What of a node is taken. Nodes of one shape of which the same is taken share one `Use`: what a job could have of it
is found once for all of them, and kept with it.

Where jobs share cores, `levels` are the rows of Slurm's cons_tres, sorted at all times: level n has the cores on which
more than n jobs are. They depend on who is there and not on who came and went before.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from nodectl.selection.tres.shape import Shape


class Share:
    """What a job takes of one node: cores as a set, memory in MiB, devices by their places; `cpus` counted. `alone`:
    nobody else is to be on its cores.
    """

    __slots__ = ("alone", "cores", "cpus", "gres", "memory")

    def __init__(self, cores: int, memory: int, gres: int, cpus: int, *, alone: bool) -> None:
        self.cores = cores
        self.memory = memory
        self.gres = gres
        self.cpus = cpus
        self.alone = alone

    def at_rest(self) -> Share:
        """What a suspended job keeps of it: memory and devices."""
        return Share(0, self.memory, self.gres, 0, alone=self.alone)


class Use:
    """What is taken of a node of this shape: `alone` are the cores that nobody else may have, `levels` all that are
    taken, `memory` in MiB, `gres` the devices. Made by `Pool`, so that equal ones are the same.
    """

    __slots__ = ("__weakref__", "alone", "gres", "levels", "memory", "offers", "shape")

    def __init__(self, shape: Shape, alone: int, levels: tuple[int, ...], memory: int, gres: int) -> None:
        self.shape = shape
        self.alone = alone
        self.levels = levels
        self.memory = memory
        self.gres = gres
        self.offers: dict[object, Any] = {}  # as `offer.offer_of` keeps them

    @property
    def busy(self) -> int:
        """The cores that somebody is on."""
        return self.levels[0] if self.levels else 0

    def taken(self, row: int, *, sharing: bool) -> int:
        """The cores that a job may not have: if it shares, those of jobs that do not, and those with more than `row`
        jobs; otherwise all that somebody is on.
        """
        if not sharing:
            return self.levels[0] if self.levels else 0
        return self.alone | self.levels[row] if row < len(self.levels) else self.alone


_Key = tuple[Shape, int, tuple[int, ...], int, int]


class Pool:
    """All that differs of the use of nodes."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[_Key, Use] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, shape: Shape, alone: int = 0, levels: tuple[int, ...] = (), memory: int = 0, gres: int = 0) -> Use:
        """The one of these values."""
        key = (shape, alone, levels, memory, gres)
        use = self._known.get(key)
        if use is None:
            use = self._known[key] = Use(*key)
        return use

    def plus(self, use: Use, share: Share) -> Use:
        """With a job more."""
        levels = raised(use.levels, share.cores)
        alone = use.alone | share.cores if share.alone else use.alone
        return self.of(use.shape, alone, levels, use.memory + share.memory, use.gres | share.gres)

    def minus(self, use: Use, share: Share) -> Use:
        """Without that job. Where several have a core that each should have alone, which a changed configuration can
        make of jobs that run, it stays alone until the last has left.
        """
        levels = lowered(use.levels, share.cores)
        alone = use.alone
        if alone and share.alone:
            shared = use.levels[1] if len(use.levels) > 1 else 0
            alone = alone & (~share.cores | shared) & (levels[0] if levels else 0)
        return self.of(use.shape, alone, levels, max(use.memory - share.memory, 0), use.gres & ~share.gres)

    def without_cores(self, use: Use, cores: int) -> Use:
        """As if these cores were somebody's."""
        base = use.levels[0] if use.levels else 0
        if not cores & ~(base & use.alone):
            return use
        return self.of(use.shape, use.alone | cores, (base | cores, *use.levels[1:]), use.memory, use.gres)


def raised(levels: tuple[int, ...], cores: int) -> tuple[int, ...]:
    """The levels with a job more on these cores."""
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
    """The levels with a job less on these cores."""
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
