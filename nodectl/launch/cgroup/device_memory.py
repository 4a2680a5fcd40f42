"""A job's limit on the memory of devices that it shares: lines of `dmem.max`, of Linux 6.14 on.

Drivers count the memory of their devices in the dmem controller by regions: amdgpu and xe as `drm/0000:03:00.0/vram0`,
NVIDIA's from release 615 on as `nvidia/0000:3b:00.0/vidmem`. A region is a device's if its name has the PCI address of
the device. Where there is none, programs under NVIDIA's Multi-Process Service are limited by a variable
(`placement/binding/devices.py`). Runs in the daemon.
"""

import contextlib
import glob
import os
from collections.abc import Iterable, Iterator, Sequence

from nodectl.model.device_part import device_of, part_of
from nodectl.model.node_device import NodeDevice

CONTROLLER, FILE, CAPACITY = "dmem", "dmem.max", "dmem.capacity"


def limits(
    devices: Iterable[NodeDevice], held: Sequence[str], regions: Iterable[str], root: str = "/"
) -> dict[str, list[str]]:
    """Return the lines of dmem.max for a job that holds these keys, by the device of each part of memory.

    Nothing limits the part of a device without lines: it has no region. `regions`: lines of dmem.capacity.
    """
    parts = {device_of(key): part.memory for key in held if (part := part_of(key)) is not None and part.memory}
    if not parts:
        return {}
    names = [line.split()[0] for line in regions if line.strip()]
    of_device = {device.key: device for device in devices}
    lines: dict[str, list[str]] = {}
    for key, memory in parts.items():
        addresses = list(_addresses(of_device[key], root)) if key in of_device else []
        of_it = [name for name in names if any(_is_of(name.lower(), address) for address in addresses)]
        lines[key] = [f"{name} {memory << 20}" for name in of_it]
    return lines


def _is_of(region: str, address: str) -> bool:
    driver, _, rest = region.partition("/")
    place, _, kind = rest.partition("/")
    return bool(driver) and place.endswith(address) and kind.startswith(("vram", "vidmem"))


def _addresses(device: NodeDevice, root: str) -> Iterator[str]:
    """Yield the PCI addresses of a device's files.

    /sys/dev/char/226:128/device is a link to the device; NVIDIA's driver has no such link, but a file for each address.
    """
    for path in filter(None, (device.file, *device.also)):
        try:
            number = os.stat(path).st_rdev
        except OSError:
            continue
        place = os.path.join(root, f"sys/dev/char/{os.major(number)}:{os.minor(number)}/device")
        if number and os.path.islink(place):
            yield os.path.basename(os.path.realpath(place))
        tail = path.removeprefix("/dev/nvidia")
        if tail != path and tail.isdecimal():
            yield from _nvidias(tail, os.path.join(root, "proc/driver/nvidia/gpus"))


def _nvidias(minor: str, place: str) -> Iterator[str]:
    for information in glob.glob(f"{glob.escape(place)}/*/information"):
        with contextlib.suppress(OSError), open(information, encoding="utf-8", errors="replace") as lines:
            if any(line.startswith("Device Minor:") and line.split(":")[1].strip() == minor for line in lines):
                yield os.path.basename(os.path.dirname(information)).lower()
