"""The namespaces of a container: making, holding by files, and joining.

A stepd makes them without a fork: it leaves its own namespaces, prepares the new ones from inside and comes back. If it
is killed in between nothing is left, because nothing holds them yet. No process can come back from a user namespace:
with one, a child makes the namespaces (`user_namespace.py`) and the stepd joins the others. The caller has one thread.
"""

import errno
import fcntl
import os
import sys

from nodectl.kernel import _kernel, _namespace, operations
from nodectl.kernel.identity import enter_at_the_end
from nodectl.launch.container import user_namespace
from nodectl.plugin_api import PluginError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from nodectl.kernel.identity import Identity
    from nodectl.kernel.operations import Operation

# By their names in /proc/PID/ns, in the order in which a process joins them: the mount namespace last, because after it
# the files of this list are out of reach. Not here: a pid namespace is made with its pid 1 (`pid1.py`), and only
# children join it; each process makes a cgroup namespace of its own; `become_user` joins the user namespace at the end.
KINDS = {
    "ipc": _namespace.CLONE_NEWIPC,
    "uts": _namespace.CLONE_NEWUTS,
    "net": _namespace.CLONE_NEWNET,
    "time": _namespace.CLONE_NEWTIME,
    "mnt": _namespace.CLONE_NEWNS,
}
PID, CGROUP = "pid", "cgroup"
_ALONE = {user_namespace.USER, "time"}  # the kernel refuses these to a process that shares memory
_JOIN = "join the container: "
_FOR_CHILDREN = {"time": "time_for_children"}  # unshare(2) moves only those
_GET_MOUNT_NAMESPACE_ID = 0x8008B705  # NS_GET_MNTNS_ID, ioctl_nsfs(2)
_READ = os.O_RDONLY | os.O_CLOEXEC
_ROOT = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def make(
    kinds: "Iterable[str]", identity: "Identity | None", prepare: "Callable[[Mapping[str, int]], None]"
) -> dict[str, int]:
    """Make new namespaces of some kinds and call `prepare` inside. Returns a descriptor for each, by kind.

    `prepare` gets descriptors of the new namespaces. With `identity` they belong to a user namespace for it, made by a
    child. The caller is back in its own namespaces at the end. Raises OSError, and what `prepare` raises.
    """
    one_thread()
    names = {kind: _FOR_CHILDREN.get(kind, kind) for kind in KINDS if kind in kinds}
    flags = 0
    for kind in names:
        flags |= KINDS[kind]
    own: dict[str, int] = {}
    made: dict[str, int] = {}
    root, here, of_self = os.open("/", _ROOT), os.open(".", _ROOT), os.open("/proc/self/ns", _ROOT)
    try:
        for kind in names:
            own[kind] = os.open(kind, _READ, dir_fd=of_self)
        try:
            if identity is None:
                made = _make_newer(own, lambda: _unshare(flags, names, of_self))
            else:
                made = _make_newer(own, lambda: user_namespace.make(identity, flags, names))
                _join(made)
            prepare(made)
        finally:
            for fd in own.values():
                _namespace.setns(fd)
            os.fchdir(root)
            os.chroot(".")  # setns(2) sets the namespace's root, and the service may run in a chroot
            os.fchdir(here)
    except BaseException:
        close(made)
        raise
    finally:
        close(own)
        for fd in (root, here, of_self):
            os.close(fd)
    return made


def _make_newer(own: "Mapping[str, int]", make: "Callable[[], dict[str, int]]") -> dict[str, int]:
    """Call `make` until the mount namespace is newer than the caller's: the kernel binds no older namespace (`hold`).

    Since Linux 6.18 each CPU numbers new namespaces from a stock of its own, so that a new one may count as older than
    the caller's. That of the machine's first processes is older than all. Raises OSError.
    """
    allowed = os.sched_getaffinity(0)
    made = make()
    try:
        for cpu in sorted(allowed):
            if _age(made["mnt"]) >= _age(own["mnt"]):
                break
            close(made)
            os.sched_setaffinity(0, {cpu})
            made = make()
    finally:
        os.sched_setaffinity(0, allowed)
    return made


def _age(mount_namespace: int) -> int:
    """Return the number compared by the kernel, 0 if unknown. Before Linux 6.11 a new namespace is always newer."""
    number = bytearray(8)
    try:
        fcntl.ioctl(mount_namespace, _GET_MOUNT_NAMESPACE_ID, number)
    except OSError:
        return 0
    return int.from_bytes(number, sys.byteorder)


def _unshare(flags: int, names: "Mapping[str, str]", of_self: int) -> dict[str, int]:
    """Move the caller into new namespaces. Returns a descriptor for each, by kind; `names` are the names in /proc."""
    _namespace.unshare(flags)
    made: dict[str, int] = {}
    try:
        for kind, name in names.items():
            made[kind] = os.open(name, _READ, dir_fd=of_self)
    except BaseException:
        close(made)
        raise
    return made


def hold(directory: int, fds: "Mapping[str, int]") -> None:
    """Bind each namespace on a file named after the kind. Raises OSError."""
    for kind, fd in fds.items():
        file = os.open(kind, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
        try:
            mount = _namespace.clone_mount(fd)
            try:
                _namespace.move_mount(mount, file)
            finally:
                os.close(mount)
        finally:
            os.close(file)


def find(directory: int) -> dict[str, int]:
    """Return descriptors of the namespaces held in a directory, by kind. Raises OSError."""
    names = os.listdir(directory)
    return {
        kind: os.open(kind, _READ, dir_fd=directory) for kind in (PID, user_namespace.USER, *KINDS) if kind in names
    }


def set_for_children(fds: "Mapping[str, int]") -> None:
    """Put children forked from now on into the pid namespace, if there is a pid namespace. Raises OSError."""
    if PID in fds:
        _namespace.setns(fds[PID])


def join(fds: dict[str, int]) -> None:
    """Join all namespaces except the user namespace. Raises OSError, PluginError.

    The working directory is then the container's root. The caller joins the user namespace in `become_user`, and keeps
    that descriptor until then.
    """
    one_thread()
    _join(fds)
    if user_namespace.USER in fds:
        user = fds.pop(user_namespace.USER)
        enter_at_the_end(lambda: _join_user(user))


def joining(fds: "Mapping[str, int]", *, own_cgroup: bool) -> "list[Operation] | None":
    """Return `join` as operations of a task, with a new cgroup namespace.

    None if only a process with memory of its own can join.
    """
    if _ALONE & fds.keys():
        return None
    wanted = [operations.join_namespace(fds[kind], _JOIN, f" ({kind} namespace)") for kind in KINDS if kind in fds]
    if own_cgroup:
        wanted.append(operations.own_namespaces(_namespace.CLONE_NEWCGROUP, _JOIN, f" ({CGROUP} namespace)"))
    return [*wanted, operations.close(fds.values())]


def _join_user(fd: int) -> None:
    try:
        _namespace.setns(fd)
    finally:
        os.close(fd)


def _join(fds: "Mapping[str, int]") -> None:
    for kind in KINDS:
        if kind in fds:
            try:
                _namespace.setns(fds[kind])
            except OSError as error:
                raise OSError(error.errno, f"{os.strerror(error.errno or 0)} ({kind} namespace)") from None


def close(fds: dict[str, int]) -> None:
    """Close the descriptors and empty `fds`."""
    while fds:
        os.close(fds.popitem()[1])


def require_kernel() -> None:
    """Raise PluginError if the kernel lacks a call needed by containers."""
    try:
        os.close(_namespace.openat2(-1, "/", os.O_PATH, 0))
        _namespace.set_mount(-1, 0, 0, False)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise PluginError(errno.ENOSYS, "needs openat2 and mount_setattr: Linux 5.12") from None


def one_thread() -> None:
    """Raise PluginError in a process with several threads: setns(2) and unshare(2) would move only a single thread."""
    tasks = os.open("/proc/self/task", _ROOT)
    try:
        if _kernel.entries(tasks) != 1:
            raise PluginError(errno.EINVAL, "the process has several threads")
    finally:
        os.close(tasks)
