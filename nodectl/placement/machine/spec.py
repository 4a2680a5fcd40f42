"""Descriptions of machines elsewhere: from a short spec, or from lscpu's table.

Pure functions except `named`, in any process and as any user. `nodectl bind --machine` passes the user's spec or file;
everything that works on a `Topology` then works on these machines as on the real machine.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence

from nodectl.model.cpu_list import MAX_CPU, mask_of
from nodectl.model.number import whole
from nodectl.placement.machine.caches import Cache
from nodectl.placement.machine.caches import order as cache_order
from nodectl.placement.machine.topology import Board, NumaNode, Topology, assemble, in_order

# Linux's maximum; more would be a typing error.
MAX_CPUS = 8192
# Bytes of a file: lscpu's table of 8,192 CPUs has 1 MB.
_LARGEST = 16 << 20
_LARGEST_NUMBER = 2**31 - 1

_PART = r"([0-9]{1,5})([sctndb])"  # compiled when it is wanted
_CACHE_COLUMN = r"l([0-9])([di]?)"
_CACHE_KIND = {"d": "Data", "i": "Instruction", "": "Unified"}
# lscpu's mark for "not known", as of an offline CPU's core.
_UNKNOWN = (None, "", "-")


def named(text: str) -> Topology:
    """Make a machine from a spec, or from a file with lscpu's table, if there is a file of this name.

    OSError for a file that cannot be read, ValueError for a malformed spec or table.
    """
    looks_like_a_file = "/" in text or (":" not in text and "." in text)
    if not looks_like_a_file and not os.path.exists(text):
        return from_spec(text)
    with open(text, "rb") as file:
        return from_lscpu(file.read(_LARGEST))


def from_spec(spec: str) -> Topology:
    """Make the machine of a spec such as `2s:4c:2t:2n`, or `2s:8c:2t:4n:2d:i`.

    Parts in any order: `s` sockets (1 where not given), `c` cores per socket (must be given), `t`
    threads per core (1), `n` NUMA nodes in all (1), `d` dies per socket (1), each with an L3 cache
    of its own, `b` boards in all (1). `i` at the end numbers the first threads of all cores first, their siblings after
    them (0,8), as most servers do; without it the threads of a core are neighbours (0,1). Memory
    and cache sizes are unknown. ValueError says what is wrong, in one line.
    """
    shown = spec[:60]
    *parts, last = spec.lower().split(":")
    siblings_last = last == "i"
    counts: dict[str, int] = {}
    for part in parts if siblings_last else [*parts, last]:
        match = re.fullmatch(_PART, part)
        if match is None or int(match[1]) == 0 or match[2] in counts:
            raise ValueError(f"machine {shown!r}: {part[:60]!r} is no COUNT and s, c, t, n, d or b as in 2s:4c:2t:2n")
        counts[match[2]] = int(match[1])
    if "c" not in counts:
        raise ValueError(f"machine {shown!r}: says no cores per socket, as in 2s:4c:2t:2n")
    sockets, cores, threads, nodes, dies, boards = (counts.get(letter, 1) for letter in "sctndb")
    if sockets * cores * threads > MAX_CPUS:
        raise ValueError(f"machine {shown!r}: more than {MAX_CPUS} CPUs")
    if cores % dies:
        raise ValueError(f"machine {shown!r}: {cores} cores cannot be shared by {dies} dies")
    if sockets * cores % nodes or (sockets % nodes and nodes % sockets):
        raise ValueError(f"machine {shown!r}: its cores cannot be shared by {nodes} NUMA nodes")
    if sockets % boards:
        raise ValueError(f"machine {shown!r}: {sockets} sockets cannot be shared by {boards} boards")
    every = sockets * cores
    threads_of = [
        tuple(thread * every + core if siblings_last else core * threads + thread for thread in range(threads))
        for core in range(every)
    ]
    return assemble(
        [(number, threads_of[number * cores : (number + 1) * cores]) for number in range(sockets)],
        nodes=[NumaNode(number, mask, 0) for number, mask in enumerate(_shares(threads_of, nodes))],
        caches=[Cache(3, "Unified", 0, mask) for mask in _shares(threads_of, sockets * dies)],
        boards=[Board(number, mask) for number, mask in enumerate(_shares(threads_of, boards))],
    )


def from_lscpu(data: bytes) -> Topology:
    """Make the machine of which `lscpu -J -e=CPU,NODE,SOCKET,CORE,CACHE` printed `data`.

    Only CPU is needed; a machine without SOCKET is one socket, without CORE each CPU its own core,
    without NODE one NUMA node. CPUs that are not online have no core there and count as offline.
    Memory and cache sizes are unknown. ValueError for what is not such a table, in one line.
    """
    cpus: dict[int, dict[str, object]] = {}
    offline = 0
    for row in _rows(data):
        cpu = _number(row, "cpu")
        if cpu is None or cpu in cpus or cpu > MAX_CPU:
            raise ValueError(f"lscpu's table: CPU {row.get('cpu')!r} is none, or there twice")
        if row.get("online") is False or row.get("online") == "no" or ("core" in row and row["core"] in _UNKNOWN):
            offline |= 1 << cpu
        else:
            cpus[cpu] = row
    if not cpus:
        raise ValueError("lscpu's table: no CPU is online")
    online = sorted(cpus)
    masks: dict[int, int] = {}
    for cpu in online:
        number = _number(cpus[cpu], "node", 0) or 0
        if number > MAX_CPU:
            raise ValueError(f"lscpu's table: NUMA node {number} is above {MAX_CPU}")
        masks[number] = masks.get(number, 0) | 1 << cpu
    nodes = [NumaNode(number, masks[number], 0) for number in sorted(masks)]
    caches = _lscpu_caches(cpus)
    packages = [
        (number, _group(package, lambda cpu: _number(cpus[cpu], "core", cpu)))
        for number, package in enumerate(_group(online, lambda cpu: _number(cpus[cpu], "socket")))
    ]
    return assemble(in_order(packages, nodes, caches), nodes=nodes, caches=caches, offline=offline)


def _shares(cores: Sequence[tuple[int, ...]], parts: int) -> list[int]:
    """Cut the cores into equal runs and return the mask of each."""
    size = len(cores) // parts
    return [mask_of(cpu for core in cores[at : at + size] for cpu in core) for at in range(0, len(cores), size)]


def _group(cpus: Iterable[int], key: Callable[[int], int | None]) -> list[tuple[int, ...]]:
    """Put CPUs with equal keys together; order the groups by first CPU."""
    groups: dict[int | None, list[int]] = {}
    for cpu in cpus:
        groups.setdefault(key(cpu), []).append(cpu)
    return [tuple(group) for group in groups.values()]


def _rows(data: bytes) -> list[dict[str, object]]:
    """Return the rows of lscpu's table, column names in lower case."""
    try:
        # int() has a limit and words of its own, and so have the codecs that json tries.
        table = json.loads(data.decode("utf-8", "replace"), parse_int=str)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"lscpu's table: not JSON: {problem}") from None
    rows = table.get("cpus") if isinstance(table, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError('lscpu\'s table: no "cpus" in it, as lscpu -J -e=CPU,NODE,SOCKET,CORE,CACHE prints them')
    return [{str(name).lower(): value for name, value in row.items()} for row in rows]


def _number(row: dict[str, object], column: str, missing: int | None = None) -> int | None:
    """Return a column's number, which older releases of lscpu print as text."""
    value = row.get(column)
    if value in _UNKNOWN:
        return missing
    number = whole(str(value), _LARGEST_NUMBER)
    if number is None:
        raise ValueError(f"lscpu's table: {column} {str(value)[:60]!r} is no number")
    return number


def _lscpu_caches(cpus: dict[int, dict[str, object]]) -> list[Cache]:
    """Return the caches numbered in the column `l1d:l1i:l2:l3`, largest first."""
    members: dict[tuple[int, str, str], list[int]] = {}
    for cpu, row in cpus.items():
        for names, numbers in row.items():
            found = [re.fullmatch(_CACHE_COLUMN, name) for name in names.split(":")]
            if not all(found) or numbers in _UNKNOWN:
                continue
            for match, number in zip(found, str(numbers).split(":"), strict=False):
                if match is not None and number not in _UNKNOWN:
                    members.setdefault((-int(match[1]), _CACHE_KIND[match[2]], number), []).append(cpu)
    caches = [Cache(-level, kind, 0, mask_of(group)) for (level, kind, _), group in members.items()]
    return sorted(caches, key=cache_order)
