"""What jobs hold of a device: all of it, or a part of it, counted in shards and in MiB of the device's memory.

The text of what is held, its *key*, stands in the records of jobs and steps: `gpu:0` is a whole device,
`gpu:0/shard:2/mem:16384M` are two shards of the device, and 16 GiB of its memory. A device that is given whole is not
given in parts, and the other way round. Shards and memory are one account: shards have their share of the memory, so
that a job that asks for memory and a job that asks for shards can share a device, and neither is promised twice.

Pure functions of values, in the daemon and in commands. Amounts of memory are MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nodectl.model.node_device import NodeDevice
from nodectl.model.number import whole

SHARD, MEMORY = "shard", "gpumem"
"""The names under which a job's request counts shards, and MiB of memory, of a device that it shares."""
ANYONE, SEVERAL = -1, -2
MOST_SHARDS = 1024  # of one device
MOST_MEMORY = 1 << 30  # MiB of one device
_SHARD, _MEM = "/shard:", "/mem:"


class DevicePart(NamedTuple):
    """A part of a device, or its capacity in parts."""

    shards: int = 0
    memory: int = 0

    def __str__(self) -> str:
        shards = f"{_SHARD}{self.shards}" if self.shards else ""
        return f"{shards}{_MEM}{self.memory}M" if self.memory else shards


class Load(NamedTuple):
    """What all jobs together hold of a device. `user`: the holder of all parts, or ANYONE, or SEVERAL."""

    wholes: int = 0
    shards: int = 0
    memory: int = 0
    user: int = ANYONE

    @property
    def part(self) -> DevicePart:
        """The parts that are given, together."""
        return DevicePart(self.shards, self.memory)

    @property
    def is_shared(self) -> bool:
        """True where a job holds a part."""
        return bool(self.shards or self.memory)

    def plus(self, part: DevicePart | None, user: int = ANYONE) -> Load:
        """Return the load with another holding; a part of None is the whole device."""
        if part is None:
            return self._replace(wholes=self.wholes + 1)
        owner = user if not self.is_shared or self.user == user else SEVERAL
        return Load(self.wholes, self.shards + part.shards, self.memory + part.memory, owner)

    def minus(self, part: DevicePart | None) -> Load:
        """Return the load without a holding."""
        if part is None:
            return self._replace(wholes=max(self.wholes - 1, 0))
        left = Load(self.wholes, max(self.shards - part.shards, 0), max(self.memory - part.memory, 0), self.user)
        return left if left.is_shared else left._replace(user=ANYONE)


FREE, WHOLE = Load(), Load(1)


def device_of(key: str) -> str:
    """Return the device of a key: gpu:0."""
    return key.partition("/")[0]


def part_of(key: str) -> DevicePart | None:
    """Return the part of a key; None for a whole device, and for a malformed key, so that it gives away too little."""
    _, slash, rest = key.partition("/")
    if not slash:
        return None
    shards, memory = 0, 0
    for word in rest.split("/"):
        name, _, text = word.partition(":")
        if name == "shard":
            shards = whole(text, MOST_SHARDS) or 0
        elif name == "mem" and text.endswith("M"):
            memory = whole(text[:-1], MOST_MEMORY) or 0
    part = DevicePart(shards, memory)
    return part if str(part) == slash + rest else None


def is_key(key: str) -> bool:
    """True for a key as this module writes it."""
    part = part_of(key)
    return key == device_of(key) + (str(part) if part else "")


def loads_of(held: Iterable[tuple[str, int]]) -> dict[str, Load]:
    """Return the load of each device. `held`: the keys held, each with the uid of its holder."""
    loads: dict[str, Load] = {}
    for key, user in held:
        device = device_of(key)
        loads[device] = loads.get(device, FREE).plus(part_of(key), user)
    return loads


def capacity(device: NodeDevice) -> DevicePart:
    """Return all the parts of a device; an empty DevicePart where the device is only given whole."""
    return DevicePart(device.shards, device.memory)


def part_for(device: NodeDevice, shards: int, memory: int) -> DevicePart | None:
    """Return the part of the device for a request; None where the device has not so much.

    Shards without an amount of memory have their share of it, rounded down, so that all of them fit.
    """
    if shards > device.shards or memory > device.memory:
        return None
    return DevicePart(shards, memory or (shards * device.memory // device.shards if shards else 0))


def conflict(device: NodeDevice, load: Load, part: DevicePart | None, user: int) -> str:
    """Return what prevents that `user` is given the part, or for None the whole device, beside the load; "": nothing.

    The words follow the name of the device.
    """
    if load.wholes:
        return "is another job's"
    if part is None:
        return "is shared by other jobs" if load.is_shared else ""
    if device.one_user and load.user not in (ANYONE, user):
        return "is shared by another user's jobs"
    if part.shards > device.shards - load.shards:
        return f"has {max(device.shards - load.shards, 0)} shards free, and not {part.shards}"
    if part.memory > device.memory - load.memory:
        return f"has {max(device.memory - load.memory, 0)} MiB of its memory free, and not {part.memory}"
    return ""


def clash(devices: Iterable[NodeDevice], loads: Mapping[str, Load], keys: Iterable[str], user: int) -> str:
    """Return why these keys cannot be held beside the loads of a node's devices, from the device on; "" if they can."""
    named: dict[str, NodeDevice] | None = None
    for key in keys:
        name = device_of(key)
        load, part = loads.get(name, FREE), part_of(key)
        if load == FREE and part is None:
            continue
        named = {device.key: device for device in devices} if named is None else named
        known = named.get(name)
        why = "is another job's" if known is None else conflict(known, load, part, user)
        if why:
            return f"{name} {why}"
    return ""


def counted(gres: Mapping[str, int]) -> int:
    """Return the number of devices of a request on a node. A share of a device counts as one device."""
    whole_ones, share = 0, 0
    for name, count in gres.items():
        if name.partition(":")[0] in (SHARD, MEMORY):
            share = 1
        else:
            whole_ones += count
    return whole_ones + share


def as_tres(keys: Iterable[str]) -> dict[str, str]:
    """Return what keys hold as Slurm counts it: whole devices by name, shards, and memory of shared devices."""
    found: dict[str, int] = {}
    for key in keys:
        part = part_of(key)
        parts = {key.partition(":")[0]: 1} if part is None else {SHARD: part.shards, MEMORY: part.memory}
        for name, count in parts.items():
            found[name] = found.get(name, 0) + count
    return {name: f"{count}M" if name == MEMORY else str(count) for name, count in found.items() if count}
