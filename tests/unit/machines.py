"""Machines for tests: sysfs trees as the kernel writes them, built under a directory.

A machine is named `2s:4c:2t`: sockets, cores a socket, threads a core.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from nodectl.model.cpu_list import format_cpulist
from nodectl.placement.machine.topology import Topology, read

MIB = 1 << 20


@dataclass(frozen=True)
class Machine:
    """What to build.

    `siblings`: `adjacent` numbers the threads of a core 0,1; `last` numbers all first threads
    first, as most servers do. `nodes_per_socket` 0: no NUMA directory; `l3_per_socket` 0: no cache
    of level 3. `old`: only the file names kernels had before 5.0.
    """

    shape: str
    siblings: str = "adjacent"
    offline: tuple[int, ...] = ()
    nodes_per_socket: int = 1
    l3_per_socket: int = 1
    caches: bool = True
    topology: bool = True
    old: bool = False
    node_mib: int = 1024

    @property
    def counts(self) -> tuple[int, int, int]:
        sockets, cores, threads = (int(part[:-1]) for part in self.shape.split(":"))
        return sockets, cores, threads

    def cpu(self, socket: int, core: int, thread: int) -> int:
        sockets, cores, threads = self.counts
        number = socket * cores + core
        if self.siblings == "adjacent":
            return number * threads + thread
        return thread * sockets * cores + number

    def core(self, socket: int, core: int) -> list[int]:
        cpus = [self.cpu(socket, core, thread) for thread in range(self.counts[2])]
        return [cpu for cpu in cpus if cpu not in self.offline]

    def cores(self, socket: int, indices: Iterable[int]) -> list[int]:
        return [cpu for core in indices for cpu in self.core(socket, core)]


def build(root: Path, machine: Machine) -> Path:
    """Write the tree of `machine` under `root` and return `root`."""
    sockets, cores, threads = machine.counts
    everything = range(sockets * cores * threads)
    online = [cpu for cpu in everything if cpu not in machine.offline]
    system = root / "sys/devices/system"
    _write(system / "cpu/online", format_cpulist(online))
    _write(system / "cpu/present", format_cpulist(everything))
    _write(system / "cpu/possible", format_cpulist(everything))
    for cpu in everything:
        (system / f"cpu/cpu{cpu}").mkdir()
    for socket in range(sockets):
        for core in range(cores):
            for cpu in machine.core(socket, core):
                if machine.topology:
                    _topology(system / f"cpu/cpu{cpu}/topology", machine, socket, core)
                if machine.caches:
                    _caches(system / f"cpu/cpu{cpu}/cache", machine, socket, core)
    _nodes(system / "node", machine)
    _write(root / "proc/meminfo", f"MemTotal:  {sockets * machine.node_mib * 1024} kB")
    return root


@functools.cache
def topology_of(machine: Machine, allowed: frozenset[int] | None = None) -> Topology:
    """Return `machine` as read back from a tree that is gone again."""
    with tempfile.TemporaryDirectory() as directory:
        return read(str(build(Path(directory), machine)), allowed)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="ascii")


def _topology(place: Path, machine: Machine, socket: int, core: int) -> None:
    package = format_cpulist(machine.cores(socket, range(machine.counts[1])))
    threads = format_cpulist(machine.core(socket, core))
    _write(place / "physical_package_id", str(socket))
    # Firmware leaves holes in these.
    _write(place / "core_id", str(core * 2))
    _write(place / "core_siblings_list", package)
    _write(place / "thread_siblings_list", threads)
    if not machine.old:
        _write(place / "package_cpus_list", package)
        _write(place / "core_cpus_list", threads)


def _share(machine: Machine, socket: int, core: int, parts: int) -> list[int]:
    """Return the CPUs of the part that holds `core`, of a socket cut into `parts`."""
    size = machine.counts[1] // parts
    first = core // size * size
    return machine.cores(socket, range(first, first + size))


def _caches(place: Path, machine: Machine, socket: int, core: int) -> None:
    own = machine.core(socket, core)
    rows: list[tuple[int, str, str, Collection[int]]] = [
        (1, "Data", "32K", own),
        (1, "Instruction", "32K", own),
        (2, "Unified", "1024K", own),
    ]
    if machine.l3_per_socket:
        rows.append((3, "Unified", "32768K", _share(machine, socket, core, machine.l3_per_socket)))
    for index, (level, kind, size, cpus) in enumerate(rows):
        _write(place / f"index{index}/level", str(level))
        _write(place / f"index{index}/type", kind)
        _write(place / f"index{index}/size", size)
        _write(place / f"index{index}/shared_cpu_list", format_cpulist(cpus))


def _nodes(place: Path, machine: Machine) -> None:
    sockets, cores, _ = machine.counts
    number = 0
    for socket in range(sockets):
        for part in range(machine.nodes_per_socket):
            first = part * (cores // machine.nodes_per_socket)
            cpus = _share(machine, socket, first, machine.nodes_per_socket)
            _write(place / f"node{number}/cpulist", format_cpulist(cpus))
            total = f"Node {number} MemTotal:  {machine.node_mib * 1024} kB"
            _write(place / f"node{number}/meminfo", total + f"\nNode {number} MemFree:  4 kB")
            number += 1
