"""Resource usage of tasks and steps, and the clock of a step.

The stepd reads usage at the end, as root, from the files of cgroups and processes. The files are described in the
kernel's cgroup-v2 ("Memory", "PID", "CPU", "IO"), psi.rst and proc(5). Figures of a controller that is missing are left
out. The kernel counts what a process read, wrote and computed without any controller, with the children that the
process started and waited for.
"""

import time

from nodectl.kernel import pseudo_file
from nodectl.launch.cgroup import out_of_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from resource import struct_rusage

    from nodectl.launch.cgroup.tree import Group

_PRESSURES = ("cpu", "memory", "io")
_MICROSECONDS = 1e6
_ANY = frozenset(("memory", "pids", "io"))


class StepClock:
    """The clock of a step, unaffected by changes of the wall clock.

    `started` is the wall clock's time at the start of the step, in seconds since the epoch.
    """

    __slots__ = ("_began", "started")

    def __init__(self) -> None:
        self.started = time.time()
        self._began = time.clock_gettime(time.CLOCK_BOOTTIME)

    def now(self) -> float:
        """Return seconds since the epoch, as if the wall clock had not been set since the start."""
        return self.at(time.clock_gettime(time.CLOCK_BOOTTIME))

    def at(self, since_boot: float) -> float:
        """Return a time of CLOCK_BOOTTIME as `now` returns the present."""
        return self.started + since_boot - self._began

    def set_forward(self) -> float:
        """Return the seconds by which the wall clock was set forward since the start; less than 0 for back."""
        return time.time() - self.now()


class KernelEvents:
    """The kernel's actions on the processes of a cgroup and of the cgroups below: `oom_kills` and `forks_refused`.

    `oom_kills` counts the processes killed because memory ran out, `forks_refused` the forks that the kernel refused;
    each is None where the controller is missing. `controllers` are those of the cgroup, if known: only their files are
    read.
    """

    __slots__ = ("controllers", "forks_refused", "oom_kills")

    def __init__(self, group: "Group", controllers: "Container[str]" = _ANY) -> None:
        self.controllers = controllers
        self.oom_kills = self.forks_refused = None
        if "memory" in controllers:
            self.oom_kills = out_of_memory.kills(group.full_path)
        if "pids" in controllers:
            self.forks_refused = pseudo_file.counters(f"{group.full_path}/pids.events").get("max")


def controllers_of(group: "Group") -> frozenset[str]:
    """Return the controllers available in a cgroup."""
    return frozenset(pseudo_file.read_if_any(f"{group.full_path}/cgroup.controllers").decode().split())


def controllers_below(group: "Group | None") -> frozenset[str]:
    """Return the controllers enabled for the children of a cgroup."""
    if group is None:
        return frozenset()
    return frozenset(pseudo_file.read_if_any(f"{group.full_path}/cgroup.subtree_control").decode().split())


class Orphans:
    """The usage of a step's orphans: processes adopted and collected by the stepd after the death of their parents."""

    __slots__ = ("_figures",)

    def __init__(self) -> None:
        self._figures: tuple[float, float, int, int, int] | None = None

    def add(self, usage: "struct_rusage", transfer: "tuple[int, int]") -> None:
        """Add the usage of an ended orphan, as returned by wait4(2) and `transferred`."""
        user, system, peak, read, written = self._figures or (0.0, 0.0, 0, 0, 0)
        self._figures = (
            user + usage.ru_utime,
            system + usage.ru_stime,
            max(peak, usage.ru_maxrss),
            read + transfer[0],
            written + transfer[1],
        )

    def figures(self) -> "dict[str, object]":
        """Return the orphans' part of the step's record, {} without orphans."""
        if self._figures is None:
            return {}
        user, system, peak, read, written = self._figures
        return {
            "orphans": {
                "user_seconds": round(user, 6),
                "system_seconds": round(system, 6),
                "max_rss_kib": peak,
                "read_chars": read,
                "written_chars": written,
            }
        }


def transferred(pid: int) -> tuple[int, int]:
    """Return the bytes read and written by a child through system calls, including awaited children.

    The child may have ended, but must not be collected yet.
    """
    found = pseudo_file.read_if_any(f"/proc/{pid}/io").split()
    return (int(found[1]), int(found[3])) if found[:3:2] == [b"rchar:", b"wchar:"] else (0, 0)


def figures(
    group: "Group", events: KernelEvents, limits: "Mapping[str, str]", *, with_pressure: bool = True
) -> dict[str, object]:
    """Return the part of a cgroup in the step's record. `limits` are the step's.

    Some figures are only given where there is a limit. Reading the pressure costs the kernel more than all the rest.
    """
    found: dict[str, object] = {}
    if events.oom_kills is not None:
        found["peak_memory"] = number_in(f"{group.full_path}/memory.peak")
        found["oom_kills"] = events.oom_kills
    if "memory.swap.max" in limits:
        found["peak_swap"] = number_in(f"{group.full_path}/memory.swap.peak")  # Linux 6.5
    if events.forks_refused is not None:
        found["peak_processes"] = number_in(f"{group.full_path}/pids.peak")
        found["forks_refused"] = events.forks_refused
    found.update(_rates(group, limited="cpu.max" in limits, has_io="io" in events.controllers))
    if with_pressure:
        found["pressure"] = _pressure(group)
    return found


def _rates(group: "Group", *, limited: bool, has_io: bool) -> dict[str, object]:
    """Return seconds of CPU time and of throttling by a CPU limit, and bytes read and written on all disks."""
    times = pseudo_file.counters(f"{group.full_path}/cpu.stat")
    found: dict[str, object] = {}
    if "user_usec" in times:
        found["cpu_seconds"] = [times["user_usec"] / _MICROSECONDS, times["system_usec"] / _MICROSECONDS]
    if limited and "throttled_usec" in times:
        found["throttled_seconds"] = times["throttled_usec"] / _MICROSECONDS
    words = pseudo_file.read_if_any(f"{group.full_path}/io.stat").split() if has_io else []
    for key, beginning in (("read_bytes", b"rbytes="), ("written_bytes", b"wbytes=")):
        if words:
            found[key] = sum(int(word.removeprefix(beginning)) for word in words if word.startswith(beginning))
    return found


def _pressure(group: "Group") -> dict[str, list[float]]:
    """Return for each resource the seconds during which some of the processes, and all processes, waited."""
    found = {}
    for resource in _PRESSURES:
        lines = pseudo_file.read_if_any(f"{group.full_path}/{resource}.pressure").splitlines()
        if lines:
            found[resource] = [int(line.rpartition(b"=")[2]) / _MICROSECONDS for line in lines]
    return found


def number_in(path: str) -> int | None:
    """Return the number in a cgroup's file; None without the file, as Linux before 5.19 has no peaks."""
    data = pseudo_file.read_if_any(path)
    return int(data) if data else None
