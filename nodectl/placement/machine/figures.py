"""The whole machine now: load, memory, swap space, file systems, users' sessions, boot time, temperatures.

psutil reads them with the caller's rights; nothing needs root. Only commands and the daemon import this module: psutil
costs as much as all of the client.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system of a disk and the mount point. Bytes; `free` is the space left for users."""

    device: str
    mount: str
    type: str
    total: int
    used: int
    free: int


@dataclass(frozen=True, slots=True)
class Login:
    """A login: user, terminal, remote host and start."""

    user: str
    terminal: str
    host: str
    began: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Bytes; seconds since the epoch; degrees Celsius by the sensor's name. `load` is of 1, 5 and 15 minutes."""

    cpus: int
    load: tuple[float, float, float]
    memory: int
    memory_available: int
    swap: int
    swap_used: int
    booted: float
    disks: tuple[Disk, ...]
    sessions: tuple[Login, ...]
    temperatures: dict[str, float]

    def as_json(self) -> dict[str, object]:
        """Return all figures as values for JSON."""
        return asdict(self)


def read() -> Figures:
    """Read the machine now. Unreadable values are 0 or left out."""
    memory = psutil.virtual_memory()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a container may hide /proc/vmstat, of which nothing is used here
        swap = psutil.swap_memory()
    return Figures(
        cpus=psutil.cpu_count() or 0,
        load=psutil.getloadavg(),
        memory=memory.total,
        memory_available=memory.available,
        swap=swap.total,
        swap_used=swap.used,
        booted=psutil.boot_time(),
        disks=tuple(_disks()),
        sessions=tuple(_sessions()),
        temperatures=dict(_temperatures()),
    )


def _disks() -> Iterable[Disk]:
    """Yield each device once, because job containers mount parts of a device again. Skip network file systems.

    A network file system whose server is gone would block the caller.
    """
    rows: dict[str, tuple[str, str]] = {}
    first: dict[str, str] = {}
    for one in sorted(psutil.disk_partitions(), key=lambda part: len(part.mountpoint)):
        if first.setdefault(one.device, one.mountpoint) == one.mountpoint:
            rows[one.mountpoint] = (one.device, one.fstype)
    rows.setdefault("/", ("", ""))  # an overlay, where this is a container
    for mount in sorted(rows):
        device, kind = rows[mount]
        with contextlib.suppress(OSError):
            usage = psutil.disk_usage(mount)
            yield Disk(device, mount, kind, usage.total, usage.used, usage.free)


def _sessions() -> Iterable[Login]:
    with contextlib.suppress(OSError):
        for one in psutil.users():
            yield Login(one.name, one.terminal or "", one.host or "", one.started)


def _temperatures() -> Iterable[tuple[str, float]]:
    """Return the hottest sensor of each chip."""
    chips: dict[str, list[float]] = {}
    if os.path.isdir("/sys/class/hwmon"):
        with contextlib.suppress(OSError, ValueError):
            for chip, sensors in psutil.sensors_temperatures().items():
                chips[chip] = [sensor.current for sensor in sensors]
    return ((chip, max(values)) for chip, values in sorted(chips.items()) if values)
