"""What a task or step used and what befell it, from its cgroup's files, read at its end; and whom the kernel killed for
want of memory, from its log.

Files: kernel cgroup-v2, "Memory", "PID", "CPU", "IO", and psi.rst. Of a controller that is not there nothing is known,
and nothing is said. Runs in the stepd, as root.
"""

import os

from nodectl.kernel import pseudo_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nodectl.cgroup.tree import Group

LOG = "/dev/kmsg"
LONGEST_LINE = 8192
_PRESSURES = ("cpu", "memory", "io")
_MICROSECONDS = 1e6


class Befallen:
    """What the kernel did to the processes of one cgroup and all below it: how many it killed for want of memory, None
    where nobody counts, and how many forks it refused.
    """

    __slots__ = ("forks_refused", "oom_kills")

    def __init__(self, group: "Group") -> None:
        self.oom_kills = _table(_read(f"{group.full_path}/memory.events")).get("oom_kill")
        self.forks_refused = _table(_read(f"{group.full_path}/pids.events")).get("max")


def figures(group: "Group", befallen: Befallen, limits: "Mapping[str, str]") -> dict[str, object]:
    """A cgroup's part of the step's record. `limits` are the step's: of what has none some figures are left out."""
    found: dict[str, object] = {}
    if befallen.oom_kills is not None:
        found["peak_memory"] = _number(_read(f"{group.full_path}/memory.peak"))
        found["oom_kills"] = befallen.oom_kills
    if "memory.swap.max" in limits:
        found["peak_swap"] = _number(_read(f"{group.full_path}/memory.swap.peak"))  # Linux 6.5
    if befallen.forks_refused is not None:
        found["peak_processes"] = _number(_read(f"{group.full_path}/pids.peak"))
        found["forks_refused"] = befallen.forks_refused
    if limits.keys() & {"cpu.max", "io.max"}:
        found.update(_rates(group))
    found["pressure"] = _pressure(group)
    return found


def _rates(group: "Group") -> dict[str, object]:
    """What a limit of CPU time, input and output leaves to be told: seconds for which nothing might run, bytes of all
    disks.
    """
    throttled = _table(_read(f"{group.full_path}/cpu.stat")).get("throttled_usec")
    found: dict[str, object] = {} if throttled is None else {"throttled_seconds": throttled / _MICROSECONDS}
    words = _read(f"{group.full_path}/io.stat").split()
    for key, beginning in (("read_bytes", b"rbytes="), ("written_bytes", b"wbytes=")):
        if words:
            found[key] = sum(int(word.removeprefix(beginning)) for word in words if word.startswith(beginning))
    return found


def _pressure(group: "Group") -> dict[str, list[float]]:
    """For each resource the seconds for which some of the processes, and all of them, waited for it."""
    found = {}
    for resource in _PRESSURES:
        lines = _read(f"{group.full_path}/{resource}.pressure").splitlines()
        if lines:
            found[resource] = [int(line.rpartition(b"=")[2]) / _MICROSECONDS for line in lines]
    return found


def _read(path: str) -> bytes:
    try:
        return pseudo_file.read(path)
    except OSError:
        return b""  # no such controller, or the kernel was told not to account


def _table(data: bytes) -> dict[str, int]:
    return {name.decode(): int(value) for name, _, value in (line.partition(b" ") for line in data.splitlines())}


def _number(data: bytes) -> int | None:
    return int(data) if data else None  # Linux before 5.19 has no peak


class Victim:
    """A process that the kernel killed for want of memory. `place` is its cgroup, `limit_of` the one whose limit it
    was, "" where the machine had no more.
    """

    __slots__ = ("limit_of", "name", "pid", "place")

    def __init__(self, pid: int, name: str, place: str, limit_of: str) -> None:
        self.pid = pid
        self.name = name
        self.place = place
        self.limit_of = limit_of


def victims(since: float) -> "Iterator[Victim]":
    """Whom the kernel's log names, from a time of the monotonic clock on. It does not name all: it is rate limited."""
    for line in _log(since):
        one = victim_of(line)
        if one is not None:
            yield one


def victim_of(line: str) -> Victim | None:
    """Whom a line of the kernel's log names; None where it tells something else."""
    place = limit_of = ""
    if line.startswith("oom-kill:"):
        facts, _, rest = line.partition(",task=")
        place = facts.rpartition(",task_memcg=")[2]
        limit_of = facts.partition(",oom_memcg=")[2].partition(",")[0]
        name, _, numbers = rest.rpartition(",pid=")  # the name is the user's choice, what follows it is not
        pid = numbers.partition(",")[0]
    elif line.lower().startswith(("memory cgroup out of memory: killed process ", "out of memory: killed process ")):
        pid, _, rest = line.partition("Killed process ")[2].partition(" (")
        name = rest.rpartition(") total-vm:")[0]
    else:
        return None
    return Victim(int(pid), name, place, limit_of) if pid.isdecimal() else None


def _log(since: float) -> "Iterator[str]":
    try:
        fd = os.open(LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return  # a container without it
    try:
        while True:
            try:
                head, _, text = os.read(fd, LONGEST_LINE).partition(b";")
            except BrokenPipeError:
                continue  # overwritten before we came to it
            except OSError:
                return
            if int(head.split(b",")[2]) / _MICROSECONDS >= since:
                yield text.decode("utf-8", "replace").partition("\n")[0]
    finally:
        os.close(fd)
