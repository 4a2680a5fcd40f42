"""The kernel's out-of-memory killer: the counters of cgroups, and the victims named by the kernel's log.

The stepd asks at the end of tasks, as root, and puts the words together (`nodectl/launch/stepd/end_reasons.py`). The
daemon follows the log where cgroups count no kills (`nodectl/service/daemon/steps/oom_watch.py`).
"""

import os

from nodectl.kernel import pseudo_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LOG = "/dev/kmsg"
LONGEST_LINE = 8192
_MICROSECONDS = 1e6


def kills(path: str) -> int | None:
    """Return how many processes the kernel killed in this cgroup (a directory) because memory ran out.

    Returns None where the cgroup does not count kills. The cgroup may be another user's: its file is readable by all.
    """
    return pseudo_file.counters(f"{path}/memory.events").get("oom_kill")


def memory_limit(path: str) -> int | None:
    """Return the memory limit of a cgroup in bytes, None for no limit.

    This is the least limit of the cgroup and of the cgroups above. The cgroup may be another user's.
    """
    found = None
    while path.strip("/"):
        # "max" for none; missing where the controller is not enabled.
        limit = pseudo_file.read_if_any(f"{path}/memory.max").strip()
        if limit.isdigit():
            found = int(limit) if found is None else min(found, int(limit))
        path = os.path.dirname(path)
    return found


class Victim:
    """A process killed by the kernel because memory ran out.

    `cgroup` is the cgroup of the process. `limit_of` is the cgroup whose limit was reached, "" for the machine's
    memory.
    """

    __slots__ = ("cgroup", "limit_of", "name", "pid")

    def __init__(self, pid: int, name: str, cgroup: str, limit_of: str) -> None:
        self.pid = pid
        self.name = name
        self.cgroup = cgroup
        self.limit_of = limit_of


def victims(since: float) -> "Iterator[Victim]":
    """Yield the victims named by the kernel's log since a time of the monotonic clock. The log is rate limited."""
    for line in _log(since):
        one = victim_of(line)
        if one is not None:
            yield one


def victim_of(line: str) -> Victim | None:
    """Return the victim named by a line of the kernel's log, None for any unrelated line."""
    cgroup = limit_of = ""
    if line.startswith("oom-kill:"):
        facts, _, rest = line.partition(",task=")
        cgroup = facts.rpartition(",task_memcg=")[2]
        limit_of = facts.partition(",oom_memcg=")[2].partition(",")[0]
        name, _, numbers = rest.rpartition(",pid=")  # the name is the user's choice, what follows it is not
        pid = numbers.partition(",")[0]
    elif line.lower().startswith(("memory cgroup out of memory: killed process ", "out of memory: killed process ")):
        pid, _, rest = line.partition("Killed process ")[2].partition(" (")
        name = rest.rpartition(") total-vm:")[0]
    else:
        return None
    return Victim(int(pid), name, cgroup, limit_of) if pid.isdecimal() else None


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
