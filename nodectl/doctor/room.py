"""What is left on this machine for a service and its steps, and who holds its place: findings of `nodectl doctor`."""

import os
from collections.abc import Iterable, Iterator

import psutil

from nodectl.config import Config
from nodectl.doctor.check import OK, WARN, Check

_MIB = 1 << 20
_LITTLE_MEMORY = 0.05  # of what there is
_LITTLE_DISK = 64 * _MIB
_GONE_WITH_A_BOOT = ("tmpfs", "ramfs")
_FORKSERVER = "nodectl-fork"


def all_checks(config: Config) -> Iterator[Check]:
    """Every finding about room."""
    memory_now = psutil.virtual_memory()
    yield memory(memory_now.available, memory_now.total)
    for name, path in (("runtime_dir", config.runtime_dir), ("state_dir", config.state_dir)):
        yield disk(name, path)
    yield from lock(f"{config.runtime_dir}/lock")


def memory(available: int, total: int) -> Check:
    """What steps can have without anything being killed."""
    found = f"{available // _MIB} of {total // _MIB} MiB are available"
    if available >= total * _LITTLE_MEMORY:
        return Check(OK, "memory", found)
    return Check(WARN, "memory", found, "end what uses it, or the kernel kills in steps that do not")


def disk(name: str, path: str) -> Check:
    """The room where the service writes, and whether it outlives the machine."""
    place = os.path.abspath(path)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    free = psutil.disk_usage(place).free
    kind = _file_system(place)
    found = f"{path}: {free // _MIB} MiB are free ({kind})"
    if free < _LITTLE_DISK:
        return Check(WARN, name, found, "make room: what cannot be written down waits, and a launch is refused")
    if name == "state_dir" and kind in _GONE_WITH_A_BOOT:
        return Check(WARN, name, found, "set it to a directory on a disk: the history goes with this one")
    return Check(OK, name, found)


def _file_system(place: str) -> str:
    """The type of the one that a directory lies in: of the mounts above it the nearest, of two there the later."""
    mounts = [
        (len(part.mountpoint), number, part.fstype)
        for number, part in enumerate(psutil.disk_partitions(all=True))
        if os.path.commonpath((part.mountpoint, place)) == part.mountpoint
    ]
    return max(mounts)[2] if mounts else "unknown"


def lock(path: str) -> Iterator[Check]:
    """Who keeps other daemons out; a forkserver without its daemon is one too many, after a moment."""
    who = sorted(holders(path))
    if not who:
        return
    found = f"{path} is held by " + ", ".join(f"{name} ({pid})" for pid, name in who)
    if all(name == _FORKSERVER for _, name in who):
        yield Check(WARN, "lock", f"{found}, whose daemon has gone: no service starts", f"end process {who[0][0]}")
    else:
        yield Check(OK, "lock", found)


def holders(path: str) -> Iterable[tuple[int, str]]:
    """Pid and name of each process that has the file open, as far as the caller may look."""
    for process in psutil.process_iter():
        try:
            if any(file.path == path for file in process.open_files()):
                yield process.pid, process.name()
        except (psutil.Error, OSError):
            continue  # it has ended, or is somebody else's
