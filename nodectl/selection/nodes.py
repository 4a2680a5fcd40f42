"""Tables of nodes: this machine, and described ones for planning and tests.

Pure functions of values; in the daemon and in commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from nodectl.binding import hostlist
from nodectl.binding.devices import MOST as MOST_DEVICES
from nodectl.binding.devices import Device
from nodectl.binding.job import specialised
from nodectl.binding.refused import Refused
from nodectl.binding.request import Settings
from nodectl.machine.spec import from_spec
from nodectl.machine.topology import Topology
from nodectl.model.number import whole
from nodectl.selection.records import NodeRecord, NodeTable

MOST_NODES = 200_000
_MOST_CORES = 1 << 23
_GEOMETRY = re.compile(r"([0-9]{1,5})x([0-9]{1,5})(?:x([0-9]{1,3}))?")
_MEMORY = re.compile(r"([0-9]{1,12})([MGT])")  # 2t are threads
_MIB = {"M": 1, "G": 1 << 10, "T": 1 << 20}
_DEVICES = re.compile(r"([a-z][a-z0-9_]{0,30})(?:/([A-Za-z0-9_.-]{1,30}))?=([0-9]{1,5})")
_RANGE = re.compile(r"([^\[\]]*)\[([0-9]{1,7})-([0-9]{1,7})\]([^\[\]]*)")


def this_node(
    name: str, machine: Topology, settings: Settings, devices: Sequence[Device], memory: int, spec_memory: int = 0
) -> NodeTable:
    """The table of this machine alone. `memory` and, of it, `spec_memory` kept for the system: MiB."""
    return NodeTable(
        [
            NodeRecord(
                name,
                machine,
                real_memory=memory,
                mem_spec_limit=spec_memory,
                reserved_cpus=specialised(machine, settings),
                devices=tuple(devices),
            )
        ]
    )


def described(spec: str) -> NodeTable:
    """The table of nodes that a text describes, a word for those that are alike: `n[1-16]:2x8x2:64G:gpu=4 big:4s:16c`.

    After the names: sockets x cores x threads, or parts as of `nodectl bind --machine`; memory as 64G;
    NAME[/TYPE]=COUNT devices, spread over the sockets; `weight=N`; `features=a+b`. Raises ValueError, one line.
    """
    nodes: list[NodeRecord] = []
    seen: set[str] = set()
    cores = 0
    for word in spec.replace(";", " ").split():
        made = _described(word)
        for node in made:
            cores += node.cores
            if node.name in seen:
                raise ValueError(f"nodes {word[:60]!r}: {node.name} is there twice")
            if len(nodes) == MOST_NODES or cores > _MOST_CORES:
                raise ValueError(f"nodes {word[:60]!r}: more than {MOST_NODES} nodes or {_MOST_CORES} cores in all")
            seen.add(node.name)
            nodes.append(node)
    if not nodes:
        raise ValueError("nodes: none is described, as by n[1-4]:2x8x2:64G:gpu=2")
    return NodeTable(nodes)


def _described(word: str) -> Iterator[NodeRecord]:
    names, *parts = word.split(":")
    shown = repr(word[:60])
    geometry, memory, weight = "", 0, 1
    features: tuple[str, ...] = ()
    devices: list[tuple[str, str, int]] = []
    for part in parts:
        if match := _GEOMETRY.fullmatch(part):
            geometry += f":{match[1]}s:{match[2]}c:{match[3] or 1}t"
        elif match := _MEMORY.fullmatch(part):
            memory = int(match[1]) * _MIB[match[2]]
        elif part.startswith("weight=") and whole(part[7:], 1 << 31) is not None:
            weight = int(part[7:])
        elif part.startswith("features="):
            features = tuple(filter(None, part[9:].split("+")))
        elif (match := _DEVICES.fullmatch(part)) and int(match[3]) <= MOST_DEVICES:
            devices.append((match[1], match[2] or "", int(match[3])))
        else:
            geometry += f":{part}"
    if not geometry:
        raise ValueError(f"nodes {shown}: says no machine, as in {names[:30]}:2x8x2")
    try:
        machine = from_spec(geometry.removeprefix(":"))
    except ValueError as error:
        raise ValueError(f"nodes {shown}: {str(error).removeprefix('machine ')}") from None
    found = tuple(_devices(machine, devices))
    for name in _names(names, shown):
        yield NodeRecord(name, machine, memory, devices=found, features=features, weight=weight)


def _devices(machine: Topology, wanted: Iterable[tuple[str, str, int]]) -> Iterator[Device]:
    """Numbered by name, those of one name spread over the sockets in order."""
    counted: dict[str, int] = {}
    for name, kind, count in wanted:
        for place in range(count):
            socket = machine.sockets[place * len(machine.sockets) // count]
            number = counted.get(name, 0)
            counted[name] = number + 1
            yield Device(name, number, kind, cores=tuple(core.number for core in socket.cores))


def _names(text: str, shown: str) -> Iterator[str]:
    match = _RANGE.fullmatch(text)
    if match:  # a list of any length, where `hostlist` bounds what users type for a job
        first, last = int(match[2]), int(match[3])
        if not 0 <= last - first < MOST_NODES:
            raise ValueError(f"nodes {shown}: {match[2]}-{match[3]} runs backwards or is too long")
        width = len(match[2])
        yield from (f"{match[1]}{number:0{width}}{match[4]}" for number in range(first, last + 1))
        return
    try:
        yield from hostlist.expand(text)
    except Refused as error:
        raise ValueError(f"nodes {shown}: {error}") from None
