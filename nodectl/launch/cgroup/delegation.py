"""The place of the cgroups of jobs, and the controllers available below.

A cgroup with controllers enabled below it takes no process of its own: while steps ran below the daemon's cgroup, no
service manager could start a daemon in it again. So steps live elsewhere. Under systemd that is the cgroup of a unit
beside the daemon's, delegated to us (`systemd/nodectl-steps.service`), which no restart of the daemon touches. A daemon
that was started in a leaf of a delegated cgroup (DelegateSubgroup=) uses the leaf's parent. Without systemd steps live
below the daemon's own cgroup, which the daemon leaves for a leaf if it is alone there.

The daemon locks the directory: two daemons with the same one would remove it under each other. If another process has
removed the directory, the daemon makes it again for the next step.

Runs in the daemon, as root, before any step.
"""

import errno
import fcntl
import os
from collections.abc import Iterable
from typing import NamedTuple

from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import tree

STEPS_UNIT = "nodectl-steps.service"
_LEAF = "daemon"
_ANCHOR = "anchor"
_locks: dict[str, int] = {}  # by path: held as long as this process lives


class Base(NamedTuple):
    """The place of jobs' cgroups.

    `mount` is cgroup2's; `path`, below it, is where jobs' cgroups are made, "" without cgroups. `controllers` are those
    that jobs have; `missing` says for each other wanted controller why jobs do not have it.
    """

    mount: str
    path: str
    controllers: tuple[str, ...]
    missing: dict[str, str]


def make(name: str, wanted: Iterable[str]) -> Base:
    """Make the directory `name` and enable the wanted controllers there, as far as available; also again.

    Raises OSError, EBUSY where another daemon has the directory.
    """
    mount = tree.find_mount()
    own = cgroup_of()
    top = tree.Group(f"{mount}{_top(mount, own)}".rstrip("/"))
    base = top.child(name)
    have = top.core.controllers
    missing = {word: "cgroup2 has no such controller here" for word in wanted if word not in have}
    usable = [word for word in wanted if word in have]
    if usable and (why := _make_room(top, mount, own)):
        missing |= dict.fromkeys(usable, why)
        usable = []
    base.make()
    _lock(base.full_path)
    enabled = []
    for word in usable:
        try:
            top.enable([word])
            base.enable([word])
            enabled.append(word)
        except OSError as error:
            missing[word] = f"enable it in {error.filename}: {error.strerror}"
    return Base(mount, base.full_path.removeprefix(mount), tuple(enabled), missing)


def _lock(path: str) -> None:
    """Lock the directory by a file closed to other users. Raises OSError.

    Any user able to open a file can lock it.
    """
    try:
        fd = os.open(f"{path}/cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # before Linux 5.14, where others can keep the daemon from starting (docs/limits.md)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    held = _locks.get(path)
    if held is not None and os.fstat(held).st_ino == os.fstat(fd).st_ino:
        os.close(fd)
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise OSError(errno.EBUSY, "another daemon has it; give this one another cgroup_name", path) from None
    if held is not None:
        os.close(held)
    _locks[path] = fd


def _top(mount: str, own: str) -> str:
    """Return the cgroup below which everything is ours."""
    parent = os.path.dirname(own)
    beside = f"{parent.rstrip('/')}/{STEPS_UNIT}"
    if _is_delegated(mount + beside):
        return beside
    return parent if _is_delegated(mount + parent) else own


def _is_delegated(path: str) -> bool:
    """Return True if systemd notes Delegate=yes on the cgroup of the unit."""
    try:
        return os.getxattr(path, "trusted.delegate") == b"1"
    except OSError:
        return False


def _make_room(top: tree.Group, mount: str, own: str) -> str:
    """Move the processes in `top` into a leaf, so controllers can be enabled. Returns why this failed, "" when done."""
    if top.full_path != f"{mount}{own}".rstrip("/"):
        _move(top.core.procs, top.child(_ANCHOR))  # the process that holds the cgroup for us
        return ""
    if not top.has("cgroup.type"):
        return ""  # the root of all cgroups, where processes may stay
    if "INVOCATION_ID" in os.environ:
        return f"{STEPS_UNIT} is not active beside this service, which could not be restarted in a cgroup of steps"
    processes = top.core.procs
    if not {os.getpid(), *_children()}.issuperset(processes):
        return f"other processes are in {own}, the daemon's own cgroup"
    _move(processes, top.child(_LEAF))
    return ""


def _move(pids: Iterable[int], leaf: tree.Group) -> None:
    for pid in pids:
        leaf.make().add(pid)


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]
