"""The devices of this node: devices declared in the configuration, and GPUs found in sysfs.

Reads sysfs under a root directory, as any user; no state. `binding/devices.py` decides which devices a task gets.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from nodectl.model.value_class import replace
from nodectl.placement.binding.devices import GPU, Device, declared
from nodectl.placement.machine import pci, sysfs

_NVIDIA = "10de"
_MINOR = "Device Minor:"


def of(lines: Iterable[str], root: str = "/") -> tuple[Device, ...]:
    """Return the devices for the lines of the key `gres`. Raises ValueError for a meaningless line."""
    devices, detect = declared(lines)
    if not detect:
        return devices
    files = {device.file for device in devices if device.file}
    first = sum(device.name == GPU for device in devices)
    found = [device for device in _found(root) if device.file not in files]
    return (*devices, *(_numbered(device, first + place) for place, device in enumerate(found)))


def _numbered(device: Device, number: int) -> Device:
    own = device.number if device.number >= 0 else number
    return replace(device, number=own)


def _found(root: str) -> Iterable[Device]:
    """Yield the GPUs with a device file for programs, by PCI address."""
    for device in pci.read(root):
        if device.kind not in ("display", "accelerator", "co-processor"):
            continue
        minor = _minor(root, device.address) if device.vendor == _NVIDIA else -1
        render = next((name for name in device.names if name.startswith("renderD")), "")
        # A GPU with neither file only drives displays.
        if minor >= 0 or render:
            file = f"/dev/nvidia{minor}" if minor >= 0 else f"/dev/dri/{render}"
            also = (f"/dev/dri/{name}" for name in device.names if name.startswith(("card", "renderD")))
            yield Device(GPU, minor, "", file, None, device.mask, tuple(path for path in also if path != file))


def _minor(root: str, address: str) -> int:
    """Return the number of NVIDIA's device file, -1 if NVIDIA's driver does not run."""
    text = sysfs.text(os.path.join(root, "proc/driver/nvidia/gpus", address, "information")) or ""
    for line in text.splitlines():
        if line.startswith(_MINOR):
            number = line.removeprefix(_MINOR).strip()
            return int(number) if number.isdecimal() else -1
    return -1
