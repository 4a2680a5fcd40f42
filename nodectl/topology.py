"""The hardware of one machine, read from sysfs into values.

Owns: the words socket, core, thread, NUMA node, cache; the two numberings of CPUs; CPU lists and
CPU masks. Pure reading under a root directory, in any process and as anyone: no logging, no exit,
no state kept.

A CPU *mask* is an int whose bit n stands for machine CPU n, the number the kernel uses. The
*abstract* number counts online CPUs socket by socket, in a socket core by core, in a core thread by
thread, without holes. Sockets, cores and threads are ordered by their lowest machine CPU.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from nodectl.cpu_list import cpus_of, mask_of, mask_of_list

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_PACKAGE_LISTS = ("package_cpus_list", "core_siblings_list")
_CORE_LISTS = ("core_cpus_list", "thread_siblings_list")
_SHARED_LEVEL = 3


@dataclass(frozen=True, slots=True)
class Core:
    """One core: `number` is dense over the machine, `cpus` its online threads, ascending."""

    number: int
    cpus: tuple[int, ...]
    mask: int


@dataclass(frozen=True, slots=True)
class Socket:
    """One package: `number` is dense, `package` the firmware's id, -1 where it gives none."""

    number: int
    package: int
    mask: int
    cores: tuple[Core, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One NUMA node; `mask` is 0 for memory alone, `memory` is bytes, 0 for unknown."""

    number: int
    mask: int
    memory: int


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache: `kind` is Data, Instruction or Unified, `size` bytes, 0 for unknown."""

    level: int
    kind: str
    size: int
    mask: int


@dataclass(frozen=True, slots=True)
class Topology:
    """One machine as it was when read.

    `usable` is the online CPUs the reader said it may use, `offline` those present but switched
    off. `machine_of[abstract]` is a machine CPU; `abstract_of[machine]` an abstract one, -1 for a
    CPU that is not online. `caches` holds those of level 3 and above, or all of them if they were
    asked for.
    """

    sockets: tuple[Socket, ...]
    nodes: tuple[Node, ...]
    caches: tuple[Cache, ...]
    online: int
    usable: int
    offline: int
    machine_of: tuple[int, ...]
    abstract_of: tuple[int, ...]

    @property
    def cores(self) -> tuple[Core, ...]:
        """All cores, in abstract order."""
        return tuple(core for socket in self.sockets for core in socket.cores)

    @property
    def width(self) -> int:
        """Bits of a mask of this machine: its highest CPU number, offline ones too, plus one."""
        return (self.online | self.offline).bit_length()

    @property
    def threads_per_core(self) -> int:
        """Online threads of the core that has most."""
        return max(len(core.cpus) for core in self.cores)

    def to_machine(self, abstract: int) -> int:
        """Turn a mask of abstract numbers into a machine mask; IndexError for one too high."""
        return mask_of(self.machine_of[number] for number in cpus_of(abstract))

    def to_abstract(self, machine: int) -> int:
        """Turn a machine mask into one of abstract numbers; CPUs not online fall out."""
        return mask_of(self.abstract_of[cpu] for cpu in cpus_of(machine & self.online))


def read(root: str = "/", allowed: Collection[int] | None = None, *, every_cache: bool = False) -> Topology:
    """Read the machine whose sysfs and proc are under `root`.

    `allowed`: the machine CPUs the caller may use (its affinity or cpuset), None for all that are
    online. `every_cache`: also the caches of level 1 and 2, some ten files more for each core. What
    is missing, as in containers and small virtual machines, is made up plainly: no list of CPUs,
    those in `allowed`; no topology, each CPU its own core in one socket; no NUMA, one node; no
    caches, none. FileNotFoundError where not even the CPUs can be known; ValueError where a file
    holds nonsense.
    """
    directory = os.path.join(root, "sys/devices/system/cpu")
    online, present = _known_cpus(directory, allowed)
    sockets = _read_sockets(directory, online)
    return assemble(
        sockets,
        nodes=_read_nodes(root, online),
        caches=_read_every_cache(directory, sockets, online)
        if every_cache
        else _read_shared_caches(directory, sockets, online),
        usable=online if allowed is None else online & mask_of(allowed),
        offline=present & ~online,
    )


def assemble(
    sockets: tuple[Socket, ...], *, nodes: tuple[Node, ...], caches: tuple[Cache, ...], usable: int, offline: int
) -> Topology:
    """Make a machine of its parts; both numberings follow from the order of `sockets` and of what is in them."""
    machine_of = tuple(cpu for socket in sockets for core in socket.cores for cpu in core.cpus)
    online = mask_of(machine_of)
    abstract_of = [-1] * online.bit_length()
    for abstract, cpu in enumerate(machine_of):
        abstract_of[cpu] = abstract
    return Topology(sockets, nodes, caches, online, usable, offline, machine_of, tuple(abstract_of))


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _file(path: str) -> str | None:
    """Return a small file's text, None if it cannot be read: sysfs hides what is not there.

    Plain descriptors: a quarter of the cost of open(), and a large machine has thousands of these
    files.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = b""
        # A long CPU list comes a page at a time.
        while part := os.read(descriptor, 65_536):
            data += part
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data.decode("ascii", "replace").strip()


def _first_file(directory: str, names: Iterable[str]) -> str | None:
    for name in names:
        text = _file(f"{directory}/{name}")
        if text:
            return text
    return None


def _entries(directory: str, prefix: str) -> list[int]:
    """Return the numbers of the entries `<prefix><number>`, ascending; none for no directory."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    tails = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(tail) for tail in tails if tail.isascii() and tail.isdecimal())


def _known_cpus(directory: str, allowed: Collection[int] | None) -> tuple[int, int]:
    """Return the masks of the online and of the present CPUs."""
    text = _file(directory + "/online")
    present = _file(directory + "/present")
    if text:
        online = mask_of_list(text)
    else:
        online = mask_of(_entries(directory, "cpu")) or (mask_of_list(present) if present else 0)
    if not online and allowed:
        online = mask_of(allowed)
    if not online:
        path = directory + "/online"
        raise FileNotFoundError(2, "list the machine's CPUs: no such file and no CPU named", path)
    # "possible" counts empty sockets for hot-plug: of no interest where "present" can be had.
    return online, online | (mask_of_list(present) if present else 0)


def _groups(directory: str, cpus: int, lists: Iterable[str], identity: str, *, alone: bool) -> list[int]:
    """Cut `cpus` into the groups that the kernel's lists name, lowest CPU first.

    One list is read for a group, not for a CPU. Without lists, CPUs with equal `identity` files
    belong together; without these too, each is `alone` or all are together.
    """
    groups = []
    by_identity: dict[str, int] = {}
    left = cpus
    while left:
        cpu = _lowest(left)
        topology = f"{directory}/cpu{cpu}/topology"
        text = _first_file(topology, lists)
        if text:
            group = (mask_of_list(text) & left) | 1 << cpu
            groups.append(group)
        else:
            group = 1 << cpu
            key = _file(f"{topology}/{identity}") or (f"cpu{cpu}" if alone else "")
            by_identity[key] = by_identity.get(key, 0) | group
        left &= ~group
    return sorted([*groups, *by_identity.values()], key=_lowest)


def _read_sockets(directory: str, online: int) -> tuple[Socket, ...]:
    sockets: list[Socket] = []
    first_core = 0
    packages = _groups(directory, online, _PACKAGE_LISTS, "physical_package_id", alone=False)
    for number, package_mask in enumerate(packages):
        masks = _groups(directory, package_mask, _CORE_LISTS, "core_id", alone=True)
        cores = tuple(Core(first_core + index, cpus_of(mask), mask) for index, mask in enumerate(masks))
        first_core += len(cores)
        package = _file(f"{directory}/cpu{_lowest(package_mask)}/topology/physical_package_id")
        sockets.append(Socket(number, _integer(package, -1), package_mask, cores))
    return tuple(sockets)


def _integer(text: str | None, missing: int) -> int:
    try:
        return int(text or "")
    except ValueError:
        return missing


def _read_nodes(root: str, online: int) -> tuple[Node, ...]:
    directory = os.path.join(root, "sys/devices/system/node")
    nodes = []
    for number in _entries(directory, "node"):
        cpus = _file(f"{directory}/node{number}/cpulist")
        if cpus is None:
            continue
        memory = _memory(_file(f"{directory}/node{number}/meminfo"))
        nodes.append(Node(number, mask_of_list(cpus) & online, memory))
    if not any(node.mask for node in nodes):
        return (Node(0, online, _memory(_file(os.path.join(root, "proc/meminfo")))),)
    return tuple(nodes)


def _memory(meminfo: str | None) -> int:
    """Return MemTotal in bytes from /proc/meminfo or a node's meminfo; 0 if it does not say."""
    for line in (meminfo or "").splitlines():
        _, found, rest = line.partition("MemTotal:")
        if found:
            return _integer(rest.split()[0] if rest.split() else None, 0) * 1024
    return 0


def _size(text: str | None) -> int:
    """Return the bytes of a cache's size, written as `32768K`; 0 if it does not say."""
    if not text:
        return 0
    unit = _UNITS.get(text[-1], 1)
    return _integer(text[:-1] if unit > 1 else text, 0) * unit


def _cache(directory: str, cpu: int, index: int, online: int) -> Cache | None:
    """Read cache `index` of `cpu`; None if its level is not told."""
    place = f"{directory}/cpu{cpu}/cache/index{index}"
    level = _integer(_file(place + "/level"), 0)
    if level <= 0:
        return None
    shared = _file(place + "/shared_cpu_list")
    mask = (mask_of_list(shared) & online if shared else 0) | 1 << cpu
    return Cache(level, _file(place + "/type") or "Unified", _size(_file(place + "/size")), mask)


def _cache_order(cache: Cache) -> tuple[int, str, int]:
    return (-cache.level, cache.kind, _lowest(cache.mask))


def _read_shared_caches(directory: str, sockets: Iterable[Socket], online: int) -> tuple[Cache, ...]:
    """Read the caches of level 3 and above: one listing a socket, four files a cache.

    The first CPU of a socket tells which indices these are: usually the last one, and the same
    everywhere. A socket whose first CPU has none is taken to have none.
    """
    caches = []
    for socket in sockets:
        first = _lowest(socket.mask)
        for index in reversed(_entries(f"{directory}/cpu{first}/cache", "index")):
            highest = _cache(directory, first, index, online)
            if highest is None or highest.level < _SHARED_LEVEL:
                break
            left = socket.mask
            while left:
                cpu = _lowest(left)
                cache = _cache(directory, cpu, index, online)
                if cache is not None and cache.level >= _SHARED_LEVEL:
                    caches.append(cache)
                    left &= ~cache.mask
                # On hybrid chips the small cores may stand outside of the cache.
                left &= ~(1 << cpu)
    return tuple(sorted(caches, key=_cache_order))


def _read_every_cache(directory: str, sockets: Iterable[Socket], online: int) -> tuple[Cache, ...]:
    """Read all caches, from the first thread of each core: no cache is smaller than a core."""
    caches: dict[tuple[int, str, int], Cache] = {}
    for socket in sockets:
        for core in socket.cores:
            cpu = core.cpus[0]
            for index in _entries(f"{directory}/cpu{cpu}/cache", "index"):
                cache = _cache(directory, cpu, index, online)
                if cache is not None:
                    caches.setdefault((cache.level, cache.kind, cache.mask), cache)
    return tuple(sorted(caches.values(), key=_cache_order))
