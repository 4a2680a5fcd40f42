"""The hardware of a machine, read from sysfs and procfs into values.

Owns: the words board, socket, core, thread, NUMA node, kind of core; the two numberings of CPUs. Pure reading under a
root directory, so that trees copied from other machines can be read; in any process and as any user: no logging, no
exit, no state kept.

A CPU *mask* is an int whose bit n stands for machine CPU n, the number the kernel uses. The *abstract* number counts
online CPUs socket by socket, in a socket core by core, in a core thread by thread, without holes. All are ordered by
their lowest machine CPU, except that cores which share a NUMA node or an L3 cache stay together, and so do sockets
which share a board or a NUMA node. This is hwloc's order, and so Slurm's.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence

from nodectl.model.cpu_list import cpus_of, lowest, mask_of, mask_of_list
from nodectl.model.value_class import dataclass
from nodectl.placement.machine import caches as cache_files
from nodectl.placement.machine import sysfs
from nodectl.placement.machine.caches import SHARED_LEVEL, Cache

_PACKAGE_LISTS = ("package_cpus_list", "core_siblings_list")
_CORE_LISTS = ("core_cpus_list", "thread_siblings_list")
# The groups of packages: mainframes' books. Other machines do not report their boards.
_BOARD_LISTS = ("book_cpus_list", "book_siblings_list")
# The kernel's names of a hybrid processor's counting units, one for each kind of core.
_KINDS = {"cpu_core": "performance", "cpu_atom": "efficiency", "cpu_lowpower": "low power"}


@dataclass(frozen=True, slots=True)
class Core:
    """A core: `number` is dense over the machine, `cpus` the core's online threads, ascending."""

    number: int
    cpus: tuple[int, ...]
    mask: int


@dataclass(frozen=True, slots=True)
class Socket:
    """A package: `number` is dense, `package` the firmware's id, -1 for none."""

    number: int
    package: int
    mask: int
    cores: tuple[Core, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """A group of whole sockets; `number` is dense."""

    number: int
    mask: int


@dataclass(frozen=True, slots=True)
class NumaNode:
    """A NUMA node; `mask` is 0 for memory alone, `memory` in bytes, 0 for unknown."""

    number: int
    mask: int
    memory: int


@dataclass(frozen=True, slots=True)
class CoreKind:
    """The cores of a kind in a hybrid processor: `performance`, `efficiency`, or `capacity 446` of 1024."""

    name: str
    mask: int


@dataclass(frozen=True, slots=True)
class Topology:
    """A machine at the moment of reading.

    `usable` is the online CPUs the reader said it may use, `usable_nodes` a mask of the NUMA nodes whose memory it may
    use, `offline` the CPUs present but switched off, `isolated` the CPUs left alone by the kernel's scheduler.
    `machine_of[abstract]` is a machine CPU; `abstract_of[machine]` an abstract CPU, -1 for a CPU that is not online.
    `caches` holds the caches of level 3 and above, or all caches on request. `kinds` is empty if all cores are alike.
    There is at least one board, socket and node.
    """

    sockets: tuple[Socket, ...]
    nodes: tuple[NumaNode, ...]
    caches: tuple[Cache, ...]
    online: int
    usable: int
    offline: int
    machine_of: tuple[int, ...]
    abstract_of: tuple[int, ...]
    boards: tuple[Board, ...]
    kinds: tuple[CoreKind, ...]
    isolated: int
    usable_nodes: int

    @property
    def cores(self) -> tuple[Core, ...]:
        """All cores, in abstract order."""
        return tuple(core for socket in self.sockets for core in socket.cores)

    @property
    def width(self) -> int:
        """The bits of a mask of this machine: the highest CPU number, also of offline CPUs, plus 1."""
        return (self.online | self.offline).bit_length()

    @property
    def threads_per_core(self) -> int:
        """The largest number of online threads of a core."""
        return max(len(core.cpus) for core in self.cores)

    def to_machine(self, abstract: int) -> int:
        """Convert a mask of abstract numbers into a machine mask; IndexError for a number too high."""
        return mask_of(self.machine_of[number] for number in cpus_of(abstract))


# The firmware's id, and the threads of each core, ascending.
Package = tuple[int, Sequence[tuple[int, ...]]]


def read(root: str = "/", allowed: Collection[int] | None = None, *, every_cache: bool = False) -> Topology:
    """Read the machine whose sysfs and proc are under `root`.

    `allowed`: the machine CPUs the caller may use (its affinity or cpuset); None for the list in proc/self/status, all
    online CPUs without such a list. `every_cache`: also the caches of level 1 and 2, some ten files more for each core.
    Missing files, as in containers and small virtual machines, have plain replacements: no list of CPUs, the CPUs in
    `allowed`; no topology, each CPU its own core in one socket; no NUMA, one node; no caches, none. FileNotFoundError
    if not even the CPUs can be known; ValueError for a malformed file.
    """
    devices = os.path.join(root, "sys/devices")
    directory = devices + "/system/cpu"
    own_cpus, own_nodes = _own_share(root)
    usable = own_cpus if allowed is None else mask_of(allowed)
    online, present = _known_cpus(directory, usable or 0)
    packages = _groups(directory, online, _PACKAGE_LISTS, "physical_package_id", alone=False)
    cores = [_groups(directory, package, _CORE_LISTS, "core_id", alone=True) for package in packages]
    ids = [sysfs.number(f"{directory}/cpu{lowest(mask)}/topology/physical_package_id", -1) for mask in packages]
    nodes = _read_nodes(root, online)
    boards = _read_boards(directory, online)
    if every_cache:
        caches = cache_files.read_every(directory, (core for inside in cores for core in inside), online)
    else:
        caches = cache_files.read_shared(directory, packages, online)
    every_node = mask_of(node.number for node in nodes)
    found = [(number, [cpus_of(core) for core in inside]) for number, inside in zip(ids, cores, strict=True)]
    return assemble(
        in_order(found, nodes, caches, boards),
        nodes=nodes,
        caches=caches,
        boards=boards,
        kinds=_read_kinds(devices, online, (core for inside in cores for core in inside)),
        usable=online if usable is None else online & usable,
        usable_nodes=every_node if own_nodes is None else every_node & own_nodes,
        offline=present & ~online,
        isolated=_isolated(root) & (online | present),
    )


def assemble(
    packages: Iterable[Package],
    *,
    nodes: Sequence[NumaNode],
    caches: Sequence[Cache],
    boards: Sequence[Board] = (),
    kinds: Sequence[CoreKind] = (),
    usable: int | None = None,
    usable_nodes: int | None = None,
    offline: int = 0,
    isolated: int = 0,
) -> Topology:
    """Build a machine from parts; both numberings follow from the order of `packages` and the cores there.

    `packages`: the firmware's id and the threads of each core. Without `boards` there is one; without `usable` and
    `usable_nodes` all may be used.
    """
    sockets: list[Socket] = []
    machine_of: list[int] = []
    number = 0
    for package, cores in packages:
        made = []
        for cpus in cores:
            made.append(Core(number, cpus, mask_of(cpus)))
            machine_of += cpus
            number += 1
        sockets.append(Socket(len(sockets), package, mask_of(cpu for core in made for cpu in core.cpus), tuple(made)))
    online = mask_of(machine_of)
    abstract_of = [-1] * online.bit_length()
    for abstract, cpu in enumerate(machine_of):
        abstract_of[cpu] = abstract
    return Topology(
        sockets=tuple(sockets),
        nodes=tuple(nodes),
        caches=tuple(caches),
        online=online,
        usable=online if usable is None else usable,
        offline=offline,
        machine_of=tuple(machine_of),
        abstract_of=tuple(abstract_of),
        boards=tuple(boards) or (Board(0, online),),
        kinds=tuple(kinds),
        isolated=isolated,
        usable_nodes=mask_of(node.number for node in nodes) if usable_nodes is None else usable_nodes,
    )


def in_order(
    packages: Iterable[Package], nodes: Iterable[NumaNode], caches: Iterable[Cache], boards: Iterable[Board] = ()
) -> list[Package]:
    """Sort packages and cores by lowest CPU, but keep cores with a common board, NUMA node or large cache together."""
    enclosing: dict[int, list[int]] = {}
    groups = [board.mask for board in boards] + [node.mask for node in nodes]
    for mask in (*groups, *(cache.mask for cache in caches if cache.level >= SHARED_LEVEL)):
        for cpu in cpus_of(mask):
            enclosing.setdefault(cpu, []).append(lowest(mask))

    def key(cpus: tuple[int, ...]) -> tuple[int, ...]:
        # Such groups lie within one another, and what encloses another has the lower lowest CPU.
        return (*sorted(enclosing.get(cpus[0], ())), *cpus)

    made = [(number, sorted(cores, key=key)) for number, cores in packages]
    return sorted(made, key=lambda package: key(min(package[1])))


def _own_share(root: str) -> tuple[int | None, int | None]:
    """Return the CPUs and NUMA nodes allowed to this process, None for unknown."""
    fields = {}
    for line in (sysfs.text(os.path.join(root, "proc/self/status")) or "").splitlines():
        name, _, value = line.partition(":")
        fields[name] = value
    cpus, nodes = (fields.get(name) for name in ("Cpus_allowed_list", "Mems_allowed_list"))
    return None if cpus is None else mask_of_list(cpus), None if nodes is None else mask_of_list(nodes)


def _known_cpus(directory: str, usable: int) -> tuple[int, int]:
    """Return the masks of the online and of the present CPUs."""
    # "possible" counts empty sockets for hot-plug: of no interest where "present" can be had.
    present = sysfs.cpus(directory + "/present")
    online = sysfs.cpus(directory + "/online") or mask_of(sysfs.entries(directory, "cpu")) or present or usable
    if not online:
        path = directory + "/online"
        raise FileNotFoundError(2, "list the machine's CPUs: no such file and no CPU named", path)
    return online, online | present


def _isolated(root: str) -> int:
    """Return the CPUs removed from the scheduler at boot, or by a cgroup's isolated partition."""
    at_boot = sysfs.cpus(os.path.join(root, "sys/devices/system/cpu/isolated"))
    return at_boot | sysfs.cpus(os.path.join(root, "sys/fs/cgroup/cpuset.cpus.isolated"))


def _groups(directory: str, cpus: int, lists: Iterable[str], identity: str, *, alone: bool) -> list[int]:
    """Split `cpus` into the groups of the kernel's lists, lowest CPU first.

    One list is read for a group, not for a CPU. Without lists, CPUs with equal `identity` files belong together;
    without these files too, each is `alone` or all are together.
    """
    groups = []
    by_identity: dict[str, int] = {}
    left = cpus
    while left:
        cpu = lowest(left)
        topology = f"{directory}/cpu{cpu}/topology"
        text = sysfs.first_text(topology, lists)
        if text:
            group = (mask_of_list(text) & left) | 1 << cpu
            groups.append(group)
        else:
            group = 1 << cpu
            key = sysfs.text(f"{topology}/{identity}") or (f"cpu{cpu}" if alone else "")
            by_identity[key] = by_identity.get(key, 0) | group
        left &= ~group
    return sorted([*groups, *by_identity.values()], key=lowest)


def _read_boards(directory: str, online: int) -> list[Board]:
    if not sysfs.first_text(f"{directory}/cpu{lowest(online)}/topology", _BOARD_LISTS):
        return []
    masks = _groups(directory, online, _BOARD_LISTS, "book_id", alone=False)
    return [Board(number, mask) for number, mask in enumerate(masks)]


def _read_kinds(devices: str, online: int, cores: Iterable[int]) -> list[CoreKind]:
    """Read the kinds of cores: x86's list of kinds, else the CPUs' capacities on further processors."""
    kinds = [CoreKind(word, sysfs.cpus(f"{devices}/{name}/cpus") & online) for name, word in _KINDS.items()]
    kinds = [kind for kind in kinds if kind.mask]
    if not kinds and sysfs.text(f"{devices}/system/cpu/cpu{lowest(online)}/cpu_capacity"):
        capacities: dict[int, int] = {}
        for core in cores:
            capacity = sysfs.number(f"{devices}/system/cpu/cpu{lowest(core)}/cpu_capacity", 0)
            capacities[capacity] = capacities.get(capacity, 0) | core
        kinds = [
            CoreKind(f"capacity {capacity}", capacities[capacity]) for capacity in sorted(capacities, reverse=True)
        ]
    return kinds if len(kinds) > 1 else []


def _read_nodes(root: str, online: int) -> list[NumaNode]:
    directory = os.path.join(root, "sys/devices/system/node")
    nodes = []
    for number in sysfs.entries(directory, "node"):
        cpus = sysfs.text(f"{directory}/node{number}/cpulist")
        if cpus is None:
            continue
        memory = _memory(sysfs.text(f"{directory}/node{number}/meminfo"))
        nodes.append(NumaNode(number, mask_of_list(cpus) & online, memory))
    if not any(node.mask for node in nodes):
        return [NumaNode(0, online, _memory(sysfs.text(os.path.join(root, "proc/meminfo"))))]
    return nodes


def _memory(meminfo: str | None) -> int:
    """Return MemTotal in bytes from /proc/meminfo or a node's meminfo; 0 for unknown."""
    for line in (meminfo or "").splitlines():
        _, found, rest = line.partition("MemTotal:")
        if found:
            return sysfs.integer(rest.split()[0] if rest.split() else None, 0) * 1024
    return 0
