"""The devices open to a job and the job's steps: devices of the node which only other jobs may hold are denied.

A set of rules is what `_kernel.constrain_devices` takes. Of the node's devices (`machine/detected_devices.py`) those
count that have a file. A step may open all other devices or, with the key `allowed_devices`, only those that it names
and the ones that every program expects. Runs in the daemon; paths are the configuration's, and looked up at each
launch, because drivers make their files late.
"""

import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence

from nodectl.model.device_part import device_of
from nodectl.model.node_device import NodeDevice

BLOCK, CHARACTER = 1, 2  # BPF_DEVCG_DEV_*
_ANY = -1
_ALLOWED, _DENIED = 1, 0
_ALL_OTHERS = [0, _ANY, _ANY, _DENIED]
_KINDS = {"block": BLOCK, "char": CHARACTER}
# null, zero, full, random, urandom; tty, ptmx; pts: the kernel's devices.txt.
_EVERYBODYS = (*((CHARACTER, 1, minor) for minor in (3, 5, 7, 8, 9)), (CHARACTER, 5, 0), (CHARACTER, 5, 2))
_TERMINALS = range(136, 144)

Rules = list[list[int]]
_Node = tuple[int, int, int]  # kind, major, minor


def of_job(devices: Iterable[NodeDevice], held: Sequence[str]) -> Rules:
    """Return the rules of a job with the devices named `held` (gpu:0): deny all further devices of the node.

    A part of a device opens the device: the kernel knows no parts.
    """
    devices, names = tuple(devices), set(map(device_of, held))
    ours = {*_EVERYBODYS, *_nodes(device for device in devices if device.key in names)}
    others = _nodes(device for device in devices if device.key not in names)
    return [[*node, _DENIED] for node in dict.fromkeys(others) if node not in ours]


def of_step(devices: Sequence[NodeDevice], held: Sequence[str], allowed: Sequence[str]) -> Rules:
    """Return the rules of the step's tasks. `allowed` is the key's value; if empty, no further devices are denied."""
    rules = of_job(devices, held)
    if not allowed:
        return rules
    nodes = [*_EVERYBODYS, *((CHARACTER, major, _ANY) for major in _TERMINALS)]
    names = set(map(device_of, held))
    nodes += _nodes(device for device in devices if device.key in names)
    nodes += (node for word in allowed for node in _named(word))
    return [*rules, *([*node, _ALLOWED] for node in dict.fromkeys(nodes)), _ALL_OTHERS]


def keys_by_node(devices: Iterable[NodeDevice]) -> dict[_Node, list[str]]:
    """Return the keys of the devices (gpu:0) by kind, major and minor of their files; none of what every program opens.

    Several devices may have a file in common.
    """
    found: dict[_Node, list[str]] = {}
    for device in devices:
        for node in _nodes([device]):
            if node not in _EVERYBODYS:
                found.setdefault(node, []).append(device.key)
    return found


def _nodes(devices: Iterable[NodeDevice]) -> Iterator[_Node]:
    for device in devices:
        yield from (node for path in (device.file, *device.also) if (node := _node(path)) is not None)


def _node(path: str) -> _Node | None:
    """Return kind, major and minor of a device's path; None without a device, or before the driver makes the file."""
    try:
        status = os.stat(path) if path else None
    except OSError:
        return None
    kinds = {stat.S_IFBLK: BLOCK, stat.S_IFCHR: CHARACTER}
    if status is None or stat.S_IFMT(status.st_mode) not in kinds:
        return None
    return kinds[stat.S_IFMT(status.st_mode)], os.major(status.st_rdev), os.minor(status.st_rdev)


def _named(word: str) -> Iterator[_Node]:
    """Yield the devices of a word of allowed_devices: a pattern of paths, or char-NAME or block-NAME.

    The names are those of /proc/devices.
    """
    if word.startswith("/"):
        yield from (node for path in glob.glob(word) if (node := _node(path)) is not None)
        return
    kind, _, name = word.partition("-")
    found = ""
    with open("/proc/devices", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            major, _, driver = line.strip().partition(" ")
            if driver == "devices:":
                found = "char" if major == "Character" else "block"
            elif found == kind and driver == name:
                yield _KINDS[kind], int(major), _ANY
