"""Simulated nodes: the table of nodes described by `--nodes SPEC`.

Groups are separated by semicolons: `[COUNT*]MACHINE[,WORD]...`. MACHINE is as for `nodectl bind --machine`: 2s:16c:2t,
or a file that holds lscpu's table. The words: `mem=SIZE` (64G; without it memory is unknown and not counted), `NAME=N`
or `NAME=N:TYPE` for N devices (gpu=4, gpu=2:a100; one word for each type), `shard=N` shards of all GPUs together,
`gpumem=SIZE` of memory of each GPU, `feature=NAME`, `weight=N`, `name=PREFIX` (without it the names are n1, n2, ...
over all groups).
"""

from __future__ import annotations

import re
from collections import Counter

from nodectl.model.device_part import MEMORY, MOST_SHARDS, SHARD
from nodectl.model.number import whole
from nodectl.model.value_class import replace
from nodectl.placement.machine import spec
from nodectl.placement.machine.declared_devices import GPU, MOST, Device, divided
from nodectl.placement.machine.topology import Topology
from nodectl.selection.records import NodeRecord, NodeTable

_MOST_NODES = 200_000
_MOST_CORES = 1 << 23  # in all: each is a bit of each bitmap
_SETTINGS = ("mem", "feature", "weight", "name", SHARD, MEMORY)
_LARGEST_MIB = 1 << 50
_SIZE = re.compile(r"([0-9]{1,15})([KMGTP]?)", re.IGNORECASE)
_UNITS = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")


def nodes_of(text: str) -> NodeTable:
    """Return the table of the described nodes.

    Raises ValueError with a line of reason, OSError for a machine's file.
    """
    nodes: list[NodeRecord] = []
    for group in filter(None, (word.strip() for word in text.split(";"))):
        nodes += _group(group, len(nodes))
        if len(nodes) > _MOST_NODES or sum(node.cores for node in nodes) > _MOST_CORES:
            raise ValueError(f"--nodes: more than {_MOST_NODES} nodes, or {_MOST_CORES} cores in all")
    if not nodes:
        raise ValueError("--nodes: describes no node; one is described like 2s:16c:2t,mem=64G,gpu=4")
    if len({node.name for node in nodes}) < len(nodes):
        raise ValueError("--nodes: two nodes have one name")
    return NodeTable(nodes)


def _group(text: str, before: int) -> list[NodeRecord]:
    machine, *words = text.split(",")
    count, star, named = machine.partition("*")
    number = whole(count, _MOST_NODES) if star else 1
    if not number:
        raise ValueError(f"--nodes {text[:60]!r}: {count[:20]!r} is no count of nodes")
    topology = spec.named(named if star else machine)  # one for all nodes of the group, which are alike
    values = _words(text, words)
    prefix, first = str(values.get("name", "n")), 0 if "name" in values else before
    return [
        NodeRecord(
            f"{prefix}{place}",
            topology,
            real_memory=_memory(text, values.get("mem", "")),
            devices=tuple(_devices(text, values, topology)),
            features=tuple(values["feature"].split("+")) if "feature" in values else (),
            weight=_number(text, "weight", values.get("weight", "1"), 1 << 31),
        )
        for place in range(first + 1, first + number + 1)
    ]


def _words(text: str, words: list[str]) -> dict[str, str]:
    """Return the values by name; a device's name has the type, as in gpu:a100, or "gpu:" without a type."""
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if name not in _SETTINGS:  # a device: once for each type
            name = f"{name}:{value.partition(':')[2]}"
        if not equals or not _NAME.fullmatch(name.partition(":")[0]) or not value or name in values:
            raise ValueError(f"--nodes {text[:60]!r}: {word[:30]!r} is no NAME=VALUE, or there twice")
        values[name] = value
    if "name" in values and not _NAME.fullmatch(values["name"]):
        raise ValueError(f"--nodes {text[:60]!r}: {values['name'][:30]!r} is no name")
    return values


def _devices(text: str, values: dict[str, str], topology: Topology) -> list[Device]:
    """Return the devices, spread over the sockets as on real boards: the first of four at the first of two sockets."""
    found = []
    counted: Counter[str] = Counter()  # by name, over all types
    for word, value in values.items():
        if word in _SETTINGS:
            continue
        name, _, kind = word.partition(":")
        number = _number(text, name, value.partition(":")[0], MOST)
        sockets = topology.sockets
        for place in range(number):
            near = sockets[place * len(sockets) // number]
            cores = tuple(core.number for core in near.cores) if len(sockets) > 1 else None
            found.append(Device(name, counted[name], kind, "", cores))
            counted[name] += 1
    memory = _memory(text, values.get(MEMORY, ""))
    if memory:
        found = [replace(one, memory=memory) if one.name == GPU else one for one in found]
    if SHARD in values:
        shards = _number(text, SHARD, values[SHARD], MOST * MOST_SHARDS)
        found = list(divided(found, [f"Name={SHARD} Count={shards}"]))
    return found


def _number(text: str, name: str, value: str, most: int) -> int:
    number = whole(value, most)
    if number is None:
        raise ValueError(f"--nodes {text[:60]!r}: {name}={value[:20]!r} is no number up to {most}")
    return number


def _memory(text: str, value: str) -> int:
    if not value:
        return 0
    size = _SIZE.fullmatch(value)
    mib = int(int(size[1]) * _UNITS[size[2].upper()]) if size else 0
    if not 1 <= mib <= _LARGEST_MIB:
        raise ValueError(f"--nodes {text[:60]!r}: mem={value[:20]!r} is no size such as 512M or 64G")
    return mib
