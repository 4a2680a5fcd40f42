"""A container's namespaces: made, held by files, joined.

A stepd makes them by leaving its own namespaces, preparing the new ones from inside, and coming back: without a fork,
and with nothing left if it is killed in between, because nothing holds them yet. With a user namespace, out of which
nobody comes back, they are made by a child (`users.py`) and entered. The caller has one thread.
"""

import errno
import os

from nodectl.container import user_namespace
from nodectl.kernel import _kernel, _namespace
from nodectl.kernel.identity import enter_at_the_end
from nodectl.plugin_api import PluginError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from nodectl.kernel.identity import Identity

# A pid namespace is made with its first process (`first.py`) and entered by being born in it; one of cgroups is each
# process's own; that of users is entered last, where root is given up. The others are here, by their names in
# /proc/PID/ns and in the order in which they are joined: the mount namespace last, because with it the files of this
# list are out of reach.
KINDS = {
    "ipc": _namespace.CLONE_NEWIPC,
    "uts": _namespace.CLONE_NEWUTS,
    "net": _namespace.CLONE_NEWNET,
    "time": _namespace.CLONE_NEWTIME,
    "mnt": _namespace.CLONE_NEWNS,
}
PID, CGROUP = "pid", "cgroup"
_FOR_CHILDREN = {"time": "time_for_children"}  # unshare(2) moves only those
_READ = os.O_RDONLY | os.O_CLOEXEC
_ROOT = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def make(
    kinds: "Iterable[str]", who: "Identity | None", prepare: "Callable[[Mapping[str, int]], None]"
) -> dict[str, int]:
    """New namespaces of these kinds, in which `prepare` has run; with `who` in a user namespace for them, of which
    `prepare` is told. Returns a descriptor for each; raises OSError and what `prepare` raises. The caller is where it
    was.
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
            if who is None:
                _namespace.unshare(flags)
            else:
                made = user_namespace.make(who, flags, names)
                _enter(made)
            prepare(made)
            if who is None:
                for kind, name in names.items():
                    made[kind] = os.open(name, _READ, dir_fd=of_self)
        finally:
            for fd in own.values():
                _namespace.setns(fd)
            os.fchdir(root)
            os.chroot(".")  # a daemon in a root of its own: setns(2) gives back the namespace's
            os.fchdir(here)
    except BaseException:
        close(made)
        raise
    finally:
        close(own)
        for fd in (root, here, of_self):
            os.close(fd)
    return made


def hold(directory: int, fds: "Mapping[str, int]") -> None:
    """Binds each namespace on a file of its kind's name. Raises OSError."""
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
    """Descriptors of the namespaces that are held in a directory. Raises OSError."""
    names = os.listdir(directory)
    return {
        kind: os.open(kind, _READ, dir_fd=directory) for kind in (PID, user_namespace.USER, *KINDS) if kind in names
    }


def bear_in(fds: "Mapping[str, int]") -> None:
    """Whatever the caller forks from now on is born in the pid namespace, if there is one. Raises OSError."""
    if PID in fds:
        _namespace.setns(fds[PID])


def join(fds: dict[str, int]) -> None:
    """The caller enters; its directory becomes the root of the container. That of users it enters when it becomes one,
    and keeps the descriptor until then. Raises OSError, PluginError.
    """
    one_thread()
    _enter(fds)
    if user_namespace.USER in fds:
        user = fds.pop(user_namespace.USER)
        enter_at_the_end(lambda: _enter_user(user))


def _enter_user(fd: int) -> None:
    try:
        _namespace.setns(fd)
    finally:
        os.close(fd)


def _enter(fds: "Mapping[str, int]") -> None:
    for kind in KINDS:
        if kind in fds:
            try:
                _namespace.setns(fds[kind])
            except OSError as error:
                raise OSError(error.errno, f"{os.strerror(error.errno or 0)} ({kind} namespace)") from None


def close(fds: dict[str, int]) -> None:
    """Lets go of descriptors."""
    while fds:
        os.close(fds.popitem()[1])


def one_thread() -> None:
    """Raises PluginError in a process with several threads: setns(2) and unshare(2) would move one of them."""
    tasks = os.open("/proc/self/task", _ROOT)
    try:
        if _kernel.entries(tasks) != 1:
            raise PluginError(errno.EINVAL, "the process has several threads")
    finally:
        os.close(tasks)
