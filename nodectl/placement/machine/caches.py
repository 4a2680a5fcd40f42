"""The caches of a machine, read from sysfs.

Pure reading under a root directory, in any process and as any user.
"""

from __future__ import annotations

from collections.abc import Iterable

from nodectl.model.cpu_list import lowest, mask_of_list
from nodectl.model.value_class import dataclass
from nodectl.placement.machine import sysfs

# From this level on caches are shared by cores, and few.
SHARED_LEVEL = 3
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache: `kind` is Data, Instruction or Unified, `size` in bytes, 0 for unknown."""

    level: int
    kind: str
    size: int
    mask: int


def order(cache: Cache) -> tuple[int, str, int]:
    """Return the sort key of a machine's caches: largest level first, then kind, then lowest CPU."""
    return (-cache.level, cache.kind, lowest(cache.mask))


def read_shared(directory: str, packages: Iterable[int], online: int) -> tuple[Cache, ...]:
    """Read the caches of level 3 and above below `.../system/cpu`: a listing per package, four files per cache.

    `packages` are CPU masks. The first CPU of a package tells the indices of its caches: usually the last index, the
    same everywhere. A package whose first CPU has none counts as a package without shared caches.
    """
    caches = []
    for package in packages:
        first = lowest(package)
        for index in reversed(sysfs.entries(f"{directory}/cpu{first}/cache", "index")):
            highest = _cache(directory, first, index, online)
            if highest is None or highest.level < SHARED_LEVEL:
                break
            left = package
            while left:
                cpu = lowest(left)
                cache = _cache(directory, cpu, index, online)
                if cache is not None and cache.level >= SHARED_LEVEL:
                    caches.append(cache)
                    left &= ~cache.mask
                # On hybrid chips the small cores may stand outside of the cache.
                left &= ~(1 << cpu)
    return tuple(sorted(caches, key=order))


def read_every(directory: str, cores: Iterable[int], online: int) -> tuple[Cache, ...]:
    """Read all caches, from the first thread of each core (`cores`: CPU masks): no cache is smaller than a core."""
    caches: dict[tuple[int, str, int], Cache] = {}
    for core in cores:
        cpu = lowest(core)
        for index in sysfs.entries(f"{directory}/cpu{cpu}/cache", "index"):
            cache = _cache(directory, cpu, index, online)
            if cache is not None:
                caches.setdefault((cache.level, cache.kind, cache.mask), cache)
    return tuple(sorted(caches.values(), key=order))


def _cache(directory: str, cpu: int, index: int, online: int) -> Cache | None:
    """Read cache `index` of `cpu`; None if the level is unknown."""
    place = f"{directory}/cpu{cpu}/cache/index{index}"
    level = sysfs.number(place + "/level", 0)
    if level <= 0:
        return None
    shared = sysfs.text(place + "/shared_cpu_list")
    mask = (mask_of_list(shared) & online if shared else 0) | 1 << cpu
    return Cache(level, sysfs.text(place + "/type") or "Unified", _size(sysfs.text(place + "/size")), mask)


def _size(text: str | None) -> int:
    """Return the bytes of a cache's size, written as `32768K`; 0 for an unknown size."""
    if not text:
        return 0
    unit = _UNITS.get(text[-1], 1)
    return sysfs.integer(text[:-1] if unit > 1 else text, 0) * unit
