"""Container Device Interface: the site's descriptions of devices for containers, and a step's own of its devices.

`/etc/cdi` and `/run/cdi` say which device files, mounts, variables and hooks a container needs for a device; of a
device in both, `/run/cdi` counts. Only files in JSON are read: Python has no parser of YAML. The description of a step
has the same for the step's devices and no others. It is help and no wall: the wall is the device program of the step's
cgroup. Reads under a root directory, in the daemon and in `nodectl bind`.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nodectl.model.wire import lean_json
from nodectl.placement.machine.declared_devices import GPU, MOST, Device

KIND = "nodectl.org/gpu"
DIRECTORY = "NODECTL_CDI_DIR"
_PLACES = ("etc/cdi", "run/cdi")
_VERSION = "0.6.0"
_LARGEST = 1 << 20  # bytes of a file
_LISTS = ("env", "deviceNodes", "mounts", "hooks")  # of containerEdits

Edits = Mapping[str, list[Any]]


class Described(NamedTuple):
    """A device of a site's file: `kind` as nvidia.com/gpu, its edits, and those for all devices of the file."""

    kind: str
    name: str
    edits: Edits
    common: Edits

    @property
    def files(self) -> list[str]:
        """The paths of the device's files on the machine."""
        nodes = (node for node in self.edits["deviceNodes"] if isinstance(node, Mapping))
        return [str(node.get("hostPath") or node.get("path") or "") for node in nodes]


class Site:
    """The site's files, read anew only where a directory or a file has changed: each step with GPUs asks for them."""

    def __init__(self, root: str = "/") -> None:
        self._places = [os.path.join(root, place) for place in _PLACES]
        self._files: list[str] = []
        self._stamps: list[tuple[int, ...]] = []
        self._found: list[Described] = []

    def read(self) -> list[Described]:
        """Return the devices of the files; a file that is not root's, or is malformed, has none."""
        if not self._stamps or self._stamps != self._now():
            self._files = [path for place in self._places for path in sorted(glob.glob(os.path.join(place, "*.json")))]
            self._stamps = self._now()  # before the files are read: a change meanwhile is seen the next time
            found = {(one.kind, one.name): one for path in self._files for one in _described(_content(path))}
            self._found = list(found.values())
        return self._found

    def _now(self) -> list[tuple[int, ...]]:
        return [_stamp(path) for path in (*self._places, *self._files)]


def _stamp(path: str) -> tuple[int, ...]:
    """Return what changes with a file's content, owner or mode; empty for a missing file."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_ctime_ns, status.st_size


def read(root: str = "/") -> list[Described]:
    """Return the devices of the site's files, once."""
    return Site(root).read()


def _content(path: str) -> Mapping[str, Any]:
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022 or status.st_size > _LARGEST:
                return {}
            return lean_json.load_object(file.read())
    except (OSError, ValueError, RecursionError):
        return {}


def _described(spec: Mapping[str, Any]) -> Iterator[Described]:
    devices = spec.get("devices")
    for one in devices if isinstance(devices, list) else ():
        if isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(spec.get("kind"), str):
            yield Described(spec["kind"], one["name"], _edits(one), _edits(spec))


def _edits(one: Mapping[str, Any]) -> Edits:
    edits = one.get("containerEdits")
    given = edits if isinstance(edits, dict) else {}
    return {name: value if isinstance(value := given.get(name), list) else [] for name in _LISTS}


def devices(described: Iterable[Described]) -> list[Device]:
    """Return the GPUs of the site's files: those of a class gpu with files of their own, each once."""
    found: dict[str, Device] = {}
    for one in described:
        first, *also = one.files or [""]
        if not one.kind.endswith(f"/{GPU}") or one.name == "all" or not first or first in found:
            continue
        tail = first.rpartition("/")[2].removeprefix("nvidia")
        number = int(tail) if tail.isdecimal() and len(tail) < 5 else -1
        found[first] = Device(GPU, number, file=first, also=tuple(also))
    return list(found.values())[:MOST]


def spec_of(held: Sequence[Device], described: Sequence[Described]) -> dict[str, Any]:
    """Return the description of a step's devices, by their numbers and together as `all`."""
    common: list[Edits] = []
    every: list[Edits] = []
    rows = []
    for device in held:
        files = {device.file, *device.also}  # an instance of MIG shares the first one with its GPU and other instances
        known = [one for one in described if files.issubset(one.files)]
        if known:
            best = min(known, key=lambda one: len(one.files))  # and not the site's `all`
            edits = best.edits
            common.append(best.common)
        else:
            edits = {"deviceNodes": [{"path": path} for path in (device.file, *device.also)]}
        every.append(edits)
        rows.append({"name": str(device.number), "containerEdits": _together([edits])})
    rows.append({"name": "all", "containerEdits": _together(every)})
    return {"cdiVersion": _VERSION, "kind": KIND, "devices": rows, "containerEdits": _together(common)}


def _together(edits: Iterable[Edits]) -> dict[str, list[Any]]:
    """Return the sum of edits, each once; without empty lists, which the interface does not want."""
    found: dict[str, list[Any]] = {}
    for one in edits:
        for name, values in one.items():
            there = found.setdefault(name, [])
            there += (value for value in values if value not in there)
    return {name: values for name, values in found.items() if values}
