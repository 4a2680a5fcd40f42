"""The devices of this node: devices declared in the configuration, and GPUs found in sysfs.

Reads sysfs under a root directory, and asks nvidia-smi there for the memory of GPUs, as any user; no state.
`binding/devices.py` decides which devices a task gets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from nodectl.kernel import trust
from nodectl.model.value_class import replace
from nodectl.placement.machine import cdi, pci, sysfs
from nodectl.placement.machine.declared_devices import CDI, GPU, Device, declared, divided

_NVIDIA = "10de"
_MINOR = "Device Minor:"
ALL, ONE_USER, NOT = "all", "user", "no"
_ASK = ("--query-gpu=pci.bus_id,memory.total", "--format=csv,noheader,nounits")
_ANSWER = re.compile(r"^0000([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]), *([0-9]{1,9})\s*$", re.MULTILINE)
_PATIENCE = 10.0  # seconds; the driver of a machine that has just booted is slow


def of(lines: Iterable[str], root: str = "/", *, sharing: str = ALL) -> tuple[Device, ...]:
    """Return the devices for the lines of the key `gres`. `sharing` is the value of the key `gpu_sharing`.

    Raises ValueError for a meaningless line.
    """
    lines = tuple(lines)
    devices, detect = declared(lines)
    if detect:
        files = {device.file for device in devices if device.file}
        first = sum(device.name == GPU for device in devices)
        there = cdi.devices(cdi.read(root)) if detect == CDI else _found(root)
        found = [device for device in there if device.file not in files]
        devices = divided((*devices, *(_numbered(one, first + place) for place, one in enumerate(found))), lines)
    if sharing == NOT:
        return tuple(replace(device, shards=0, memory=0) for device in devices)
    return tuple(replace(device, one_user=True) for device in devices) if sharing == ONE_USER else devices


def _numbered(device: Device, number: int) -> Device:
    own = device.number if device.number >= 0 else number
    return replace(device, number=own)


def _found(root: str) -> Iterable[Device]:
    """Yield the GPUs with a device file for programs, by PCI address."""
    nvidia = _nvidia_memory(root)
    for device in pci.read(root):
        if device.kind not in ("display", "accelerator", "co-processor"):
            continue
        minor = _minor(root, device.address) if device.vendor == _NVIDIA else -1
        render = next((name for name in device.names if name.startswith("renderD")), "")
        # A GPU with neither file only drives displays.
        if minor >= 0 or render:
            file = f"/dev/nvidia{minor}" if minor >= 0 else f"/dev/dri/{render}"
            paths = (f"/dev/dri/{name}" for name in device.names if name.startswith(("card", "renderD")))
            also = tuple(path for path in paths if path != file)
            # amdgpu has it in a file, in bytes.
            memory = sysfs.number(os.path.join(root, "sys/bus/pci/devices", device.address, "mem_info_vram_total"), 0)
            memory = memory >> 20 or nvidia.get(device.address, 0)
            yield Device(GPU, minor, "", file, None, device.mask, also, memory=memory)


def _nvidia_memory(root: str) -> dict[str, int]:
    """Return the MiB of memory of NVIDIA's GPUs by PCI address, as nvidia-smi has it from NVML; empty without it."""
    if not os.path.isdir(os.path.join(root, "proc/driver/nvidia/gpus")):
        return {}
    places = (os.path.join(root, place, "nvidia-smi") for place in ("usr/bin", "usr/local/bin"))
    program = next((path for path in places if os.access(path, os.X_OK)), "")
    if not program or (root == "/" and not trust.is_trusted(program)):
        return {}
    import subprocess  # only where NVIDIA's driver is

    try:
        done = subprocess.run(
            [program, *_ASK], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return {}
    # As 00000000:3B:00.0, 81559; the domain of sysfs has four digits.
    return {address.lower(): int(mib) for address, mib in _ANSWER.findall(done.stdout)}


def _minor(root: str, address: str) -> int:
    """Return the number of NVIDIA's device file, -1 if NVIDIA's driver does not run."""
    text = sysfs.text(os.path.join(root, "proc/driver/nvidia/gpus", address, "information")) or ""
    for line in text.splitlines():
        if line.startswith(_MINOR):
            number = line.removeprefix(_MINOR).strip()
            return int(number) if number.isdecimal() else -1
    return -1
