"""A process executed by the daemon: looks for users' programs outside of all jobs that have a device of the node open.

It follows no path of a user's: each descriptor of a process is asked itself, by its number in /proc, and no file server
is asked about it. A program can still hide, in more descriptors than there is time for: the fence is what denies.
"""

import os
import pwd
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from nodectl.kernel import _kernel, pseudo_file
from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import tree
from nodectl.model.wire import lean_json
from nodectl.model.words import user_name
from nodectl.spank.reporter import Reporter

_REPORT = 3
_SECONDS, _OF_USER = 5.0, 1.0  # for all processes, and for those of one user, who must not hide another's
_MOST_OF_DEVICE, _MOST = 4, 1024  # reported programs: users of one device must not hide those of another
_FIRST_USER = 1000  # login.defs(5), UID_MIN: below are the accounts of services
_LONGEST = 40  # characters of a command


def main(arguments: Mapping[str, Any]) -> None:
    """Report the programs. `arguments` are the arguments of `look`."""
    os.set_inheritable(_REPORT, False)
    nodes = {(kind, major, minor): keys for kind, major, minor, keys in arguments["nodes"]}
    uses = look(nodes, arguments["base"], arguments["scope"], arguments["outside"])
    Reporter(_REPORT).ended(lean_json.dumps({"uses": uses}))
    os._exit(0)


def look(
    nodes: Mapping[tuple[int, int, int], Collection[str]], base: str, scope: str, outside: Collection[str]
) -> list[dict[str, object]]:
    """Return the programs, a row for each device, in the form of Fence's reply.

    `nodes`: the keys of devices by kind, major and minor; `base`: the cgroup of jobs, `scope` that of Slurm's jobs, ""
    for none; `outside`: the key login_outside.
    """
    free = _uids(outside)
    until = time.monotonic() + _SECONDS
    left = Counter({key: _MOST_OF_DEVICE for keys in nodes.values() for key in keys})
    found: list[dict[str, object]] = []
    spent: Counter[int] = Counter()  # ns, by uid
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()):
        if len(found) >= _MOST or time.monotonic() > until:
            break
        uid = _real_uid(pid)
        if uid < _FIRST_USER or uid in free or _is_elsewhere(cgroup_of(pid), base, scope, outside):
            continue
        began = time.monotonic_ns()
        last = min(until, (began - spent[uid]) / 1e9 + _OF_USER)
        keys = {key for node in _opened(pid, last) for key in nodes.get(node, ()) if left[key]}
        spent[uid] += time.monotonic_ns() - began
        left.subtract(keys)
        if keys:
            use = {"pid": pid, "uid": uid, "user": user_name(uid), "command": _command(pid)}
            found += ({"device": key, **use} for key in sorted(keys))
    return found[:_MOST]


def _is_elsewhere(place: str, base: str, scope: str, outside: Collection[str]) -> bool:
    if tree.is_of_job(place, base) or (scope and f"{place}/".startswith(f"{scope}/")):
        return True
    # The uppermost unit is the system's: below it users may have groups with any names.
    unit = next((name for name in place.split("/") if name.endswith((".service", ".scope"))), "")
    return unit in outside


def _opened(pid: int, until: float) -> Iterator[tuple[int, int, int]]:
    """Yield the open devices of a process."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                if time.monotonic() > until:
                    return
                if (node := _device(entry.path)) is not None:
                    yield node
    except OSError:
        return  # it has ended


def _device(path: str) -> tuple[int, int, int] | None:
    try:
        return _kernel.opened_device(path)
    except OSError:
        return None


def _real_uid(pid: int) -> int:
    """Return the real uid of a process, which the process cannot hide; -1 after the end."""
    try:
        text = pseudo_file.read(f"/proc/{pid}/status").partition(b"\nUid:")[2]
        return int(text.split(maxsplit=1)[0])
    except (OSError, ValueError, IndexError):
        return -1


def _command(pid: int) -> str:
    return pseudo_file.read_if_any(f"/proc/{pid}/comm").decode("utf-8", "replace").rstrip("\n")[:_LONGEST]


def _uids(names: Collection[str]) -> set[int]:
    found = set()
    for name in names:
        try:
            found.add(pwd.getpwnam(name).pw_uid)
        except KeyError:
            continue  # a service, or a user who has gone
    return found
