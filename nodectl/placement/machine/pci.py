"""PCI devices useful to tasks, and the CPUs and NUMA nodes near the devices: read from sysfs.

Pure reading under a root directory, in any process and as any user.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from nodectl.model.value_class import dataclass
from nodectl.placement.machine import sysfs

# By the device's class: its first byte, or its first two where the others of that byte are of no interest.
_KINDS = {
    "01": "storage",
    "02": "network",
    "03": "display",
    "0b40": "co-processor",
    "0c06": "InfiniBand",
    "12": "accelerator",
}
# The folders with the kernel's own names of a device.
_SUBSYSTEMS = ("net", "infiniband", "drm", "nvme", "block", "accel")
_CLASS_DIGITS = 6


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A PCI device: `address` as `0000:3b:00.0`, `names` as `eth0`, `card1`.

    `node` is its NUMA node, -1 if the firmware does not tell; `mask` the CPUs near it, 0 if unknown.
    """

    address: str
    kind: str
    vendor: str
    model: str
    names: tuple[str, ...]
    node: int
    mask: int


def read(root: str = "/") -> tuple[PciDevice, ...]:
    """Return storage, network, display, InfiniBand and accelerator devices by address; none without PCI.

    `vendor` and `model` are the four hex digits that lspci shows, `kind` is a word of _KINDS.
    """
    directory = os.path.join(root, "sys/bus/pci/devices")
    try:
        addresses = sorted(os.listdir(directory))
    except OSError:
        return ()
    return tuple(found for address in addresses if (found := _device(f"{directory}/{address}", address)) is not None)


def _device(place: str, address: str) -> PciDevice | None:
    # As 0x020000: class, sub-class, programming interface.
    digits = (sysfs.text(place + "/class") or "").removeprefix("0x").zfill(_CLASS_DIGITS)
    kind = _KINDS.get(digits[:2]) or _KINDS.get(digits[:4])
    if kind is None:
        return None
    return PciDevice(
        address=address,
        kind=kind,
        vendor=(sysfs.text(place + "/vendor") or "").removeprefix("0x"),
        model=(sysfs.text(place + "/device") or "").removeprefix("0x"),
        names=tuple(_names(place)),
        node=sysfs.number(place + "/numa_node", -1),
        mask=sysfs.cpus(place + "/local_cpulist"),
    )


def _names(place: str) -> Iterator[str]:
    """Yield the kernel's names of a device; a virtual device has the names a level deeper."""
    places = [place, *(f"{place}/virtio{number}" for number in sysfs.entries(place, "virtio"))]
    for directory in (f"{holder}/{subsystem}" for subsystem in _SUBSYSTEMS for holder in places):
        if os.path.isdir(directory):
            yield from sorted(os.listdir(directory))
