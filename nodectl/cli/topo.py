"""`nodectl topo`: the machine as a picture or as JSON.

Reads the hardware itself, without a daemon, as the user who asks; what may be used is the affinity
of this very process, so that inside a step it shows the step's own CPUs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence

from nodectl.caches import Cache
from nodectl.cpu_list import cpus_of, format_cpulist
from nodectl.topology import Core, Node, Socket, Topology, read

WIDTH = 100
_KIND = {"Data": "d", "Instruction": "i"}
# From this level on a cache is a group of cores in the picture, below it a line of text.
_GROUP_LEVEL = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl topo` to its parser."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--root",
        default="/",
        metavar="DIR",
        help="read the sys and proc trees under DIR, as copied from another machine",
    )


def main(args: argparse.Namespace) -> int:
    """Print the machine; 0, or 1 with one line on stderr where it cannot be read."""
    root: str = args.root
    try:
        topology = read(root, every_cache=True)
    except (OSError, ValueError) as problem:
        print(f"nodectl topo: {problem}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(as_json(topology), indent=2))
    else:
        print("\n".join(draw(topology)))
    return 0


def as_json(topology: Topology) -> dict[str, object]:
    """Return all that is known as JSON values; CPU sets in list format, sizes in bytes."""
    return {
        "online": _cpus(topology.online),
        "usable": _cpus(topology.usable),
        "offline": _cpus(topology.offline),
        "sockets": [
            {
                "socket": socket.number,
                "package": socket.package,
                "cpus": _cpus(socket.mask),
                "cores": [{"core": core.number, "cpus": list(core.cpus)} for core in socket.cores],
            }
            for socket in topology.sockets
        ],
        "nodes": [{"node": node.number, "cpus": _cpus(node.mask), "memory": node.memory} for node in topology.nodes],
        "caches": [
            {
                "level": cache.level,
                "type": cache.kind,
                "size": cache.size,
                "cpus": _cpus(cache.mask),
            }
            for cache in topology.caches
        ],
        "cpus": list(_cpu_rows(topology)),
    }


def draw(topology: Topology, width: int = WIDTH) -> list[str]:
    """Return the picture, line by line, none longer than `width` unless one core is."""
    lines = [_headline(topology), *_private_caches(topology)]
    boxes = [
        (f"socket {socket.number}", list(_socket_lines(topology, socket, width - 4))) for socket in topology.sockets
    ]
    wide = max(len(line) for _, inside in boxes for line in inside)
    for title, inside in boxes:
        lines += _box(title, inside, max(wide, len(title) + 4))
    for node in topology.nodes:
        if not node.mask:
            lines.append(f"NUMA node {node.number}, {_bytes(node.memory)}, no CPUs")
    lines.append("[ ] is a core with its CPUs")
    unusable = topology.online & ~topology.usable
    if unusable:
        lines[-1] += f", * a CPU that may not be used from here: {_cpus(unusable)}"
    if topology.offline:
        lines.append(f"offline: {_cpus(topology.offline)}")
    return lines


def _cpus(mask: int) -> str:
    return format_cpulist(cpus_of(mask))


def _cpu_rows(topology: Topology) -> Iterator[dict[str, object]]:
    node_of = {cpu: node.number for node in topology.nodes for cpu in cpus_of(node.mask)}
    for socket in topology.sockets:
        for core in socket.cores:
            for cpu in core.cpus:
                yield {
                    "cpu": cpu,
                    "abstract": topology.abstract_of[cpu],
                    "core": core.number,
                    "socket": socket.number,
                    "node": node_of.get(cpu),
                    "usable": bool(topology.usable >> cpu & 1),
                }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _bytes(size: int) -> str:
    """Return a size for people; memory is rarely a round number, caches are."""
    if not size:
        return "size unknown"
    for shift, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >> shift:
            return f"{size / (1 << shift):.1f}".removesuffix(".0") + f" {unit}"
    return f"{size} B"


def _headline(topology: Topology) -> str:
    return "machine: " + ", ".join(
        (
            _count(len(topology.sockets), "socket"),
            _count(len(topology.cores), "core"),
            _count(len(topology.machine_of), "CPU"),
            _count(len(topology.nodes), "NUMA node"),
            _bytes(sum(node.memory for node in topology.nodes)),
        )
    )


def _cache_name(cache: Cache) -> str:
    return f"L{cache.level}{_KIND.get(cache.kind, '')} {_bytes(cache.size)}"


def _private_caches(topology: Topology) -> list[str]:
    """Return a line on the caches too small to be drawn, of every kind of core."""
    texts: dict[str, None] = {}
    for cache in topology.caches:
        if cache.level < _GROUP_LEVEL:
            sharing = sum(1 for core in topology.cores if core.mask & cache.mask)
            whose = "a core" if sharing == 1 else f"for {sharing} cores"
            texts[f"{_cache_name(cache)} {whose}"] = None
    return ["caches: " + ", ".join(texts)] if texts else []


def _socket_lines(topology: Topology, socket: Socket, width: int) -> Iterator[str]:
    """Yield a socket's inside: its cores by NUMA node, in a node by large cache."""
    left = socket.mask
    for node in topology.nodes:
        if node.mask & left:
            yield _node_name(node, socket.mask)
            yield from _node_lines(topology, node.mask & left, socket.cores, width)
            left &= ~node.mask
    if left:
        yield from _node_lines(topology, left, socket.cores, width)


def _node_name(node: Node, socket_mask: int) -> str:
    # Memory of a node over several sockets must not read as if each had it.
    shared = " in all" if node.mask & ~socket_mask else ""
    return f"NUMA node {node.number}, {_bytes(node.memory)}{shared}"


def _node_lines(topology: Topology, mask: int, cores: Sequence[Core], width: int) -> Iterator[str]:
    left = mask
    for cache in topology.caches:
        if cache.level >= _GROUP_LEVEL and cache.mask & left:
            inside = cache.mask & left
            yield f"  {_cache_name(cache)}"
            yield from _core_rows(topology, [c for c in cores if c.mask & inside], width, "    ")
            left &= ~cache.mask
    if left:
        yield from _core_rows(topology, [c for c in cores if c.mask & left], width, "  ")


def _core_rows(topology: Topology, cores: Iterable[Core], width: int, indent: str) -> Iterator[str]:
    """Yield rows of cores, all cells of the machine equally wide so that they stand in columns."""
    digits = len(str(topology.width - 1))
    marked = bool(topology.online & ~topology.usable)
    row = ""
    for core in cores:
        names = [
            f"{cpu:{digits}d}" + ("" if not marked else " " if topology.usable >> cpu & 1 else "*") for cpu in core.cpus
        ]
        cell = "[" + " ".join(names) + "]"
        if row and len(indent) + len(row) + 1 + len(cell) > width:
            yield indent + row
            row = ""
        row += (" " if row else "") + cell
    if row:
        yield indent + row


def _box(title: str, inside: Sequence[str], width: int) -> list[str]:
    top = f"+- {title} ".ljust(width + 3, "-") + "+"
    return [top, *(f"| {line:{width}} |" for line in inside), "+" + "-" * (width + 2) + "+"]
