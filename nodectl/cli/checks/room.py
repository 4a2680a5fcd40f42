"""The free memory and disk space for a service and the steps, and the lock's holder: findings of `nodectl doctor`."""

import os
from collections.abc import Iterable, Iterator

import psutil

from nodectl.cli.checks.check import OK, WARN, Check
from nodectl.model.config import Config

_MIB = 1 << 20
_LITTLE_MEMORY = 0.05  # of all memory
_LITTLE_DISK = 64 * _MIB
_GONE_WITH_A_BOOT = ("tmpfs", "ramfs")
_FORKSERVER = "nodectl-fork"


def all_checks(config: Config) -> Iterator[Check]:
    """Yield every finding about room."""
    memory_now = psutil.virtual_memory()
    yield memory(memory_now.available, memory_now.total)
    for name, path in (("runtime_dir", config.runtime_dir), ("state_dir", config.state_dir)):
        yield disk(name, path)
    yield from lock(f"{config.runtime_dir}/lock")


def memory(available: int, total: int) -> Check:
    """Check the memory available to steps before the kernel kills processes."""
    found = f"{available // _MIB} of {total // _MIB} MiB are available"
    if available >= total * _LITTLE_MEMORY:
        return Check(OK, "memory", found)
    return Check(WARN, "memory", found, "end what uses it, or the kernel kills in steps that do not")


def disk(name: str, path: str) -> Check:
    """Check the free space of a directory of the service, and whether the directory survives a boot."""
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
    """Return the type of a directory's file system.

    Of the mounts above the directory the nearest counts, of two mounts there the later.
    """
    mounts = [
        (len(part.mountpoint), number, part.fstype)
        for number, part in enumerate(psutil.disk_partitions(all=True))
        if os.path.commonpath((part.mountpoint, place)) == part.mountpoint
    ]
    return max(mounts)[2] if mounts else "unknown"


def lock(path: str) -> Iterator[Check]:
    """Report the processes with the service's lock; warn about a forkserver without a daemon."""
    who = sorted(holders(path))
    if not who:
        return
    found = f"{path} is held by " + ", ".join(f"{name} ({pid})" for pid, name in who)
    if all(name == _FORKSERVER for _, name in who):
        yield Check(WARN, "lock", f"{found}, whose daemon has gone: no service starts", f"end process {who[0][0]}")
    else:
        yield Check(OK, "lock", found)


def holders(path: str) -> Iterable[tuple[int, str]]:
    """Yield pid and name of each process with the open file, as far as the caller may look."""
    for process in psutil.process_iter():
        try:
            if any(file.path == path for file in process.open_files()):
                yield process.pid, process.name()
        except (psutil.Error, OSError):
            continue  # it has ended, or belongs to another user
