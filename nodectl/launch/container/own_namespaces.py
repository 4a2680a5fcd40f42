"""A user namespace with a mount namespace, made without root by the user of the node.

Only that user and the primary group are mapped, each to itself: an ordinary user may map no more (user_namespaces(7)).
A process that enters has every capability in them, and here gives up all for good before anything of the user's runs.

No process can come back from a user namespace: a child makes them, and mounts what is to be seen inside. The caller
keeps a descriptor of each; they vanish with the last descriptor and the last process in them.
"""

import errno
import os

from nodectl.kernel import _kernel, _namespace, operations
from nodectl.launch.container import namespaces, user_namespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from nodectl.kernel.identity import Identity

_KINDS = user_namespace.USER, "mnt"  # in the order in which they are entered
_LONGEST = 4096
_MOST = "/proc/sys/user/max_user_namespaces"
# The settings by which sites forbid them, with the forbidding value: of Debian's kernels, and of AppArmor.
_SWITCHES = {
    "/proc/sys/kernel/unprivileged_userns_clone": "0",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1",
}


def make(uid: int, gid: int, prepare: "Callable[[], None]") -> dict[str, int]:
    """Make both namespaces and call `prepare` inside. Returns a descriptor for each. Raises OSError.

    The error's words name also what forbids the namespaces.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    go, permit = os.pipe2(os.O_CLOEXEC)
    made: dict[str, int] = {}
    pid = os.fork()
    if pid == 0:
        os.close(permit)
        _begin(uid, gid, prepare, writer, go)
    try:
        os.close(writer)
        number, _, words = os.read(reader, _LONGEST).decode(errors="replace").partition(" ")
        if number != "0":
            raise OSError(int(number or errno.ECHILD), words or "its process died")
        for kind in _KINDS:
            made[kind] = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
    except BaseException:
        namespaces.close(made)
        raise
    finally:
        for fd in (reader, go, permit):
            os.close(fd)
        os.waitpid(pid, 0)
    return made


def _begin(uid: int, gid: int, prepare: "Callable[[], None]", told: int, go: int) -> "NoReturn":
    """Run the child's whole life, until the caller has opened the namespaces, or has died."""
    try:
        _enter_new(uid, gid)
        prepare()
        os.write(told, b"0")
        os.read(go, 1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        os.write(told, f"{error.errno or errno.EIO} {where}{error.strerror}{_who_forbids(error)}".encode())
    finally:
        os._exit(0)


def _enter_new(uid: int, gid: int) -> None:
    try:
        _namespace.unshare(_namespace.CLONE_NEWUSER | _namespace.CLONE_NEWNS)
        user_namespace.write("self/setgroups", "deny")
        user_namespace.write("self/uid_map", user_namespace.identity_map([uid]))
        user_namespace.write("self/gid_map", user_namespace.identity_map([gid]))
    except OSError as error:
        raise OSError(error.errno, f"make a user namespace: {error.strerror}") from None


def _who_forbids(error: OSError) -> str:
    """Return words to put behind the error, naming the obstacle to the namespaces; "" for an unrelated error."""
    if error.filename:
        return ""
    if error.errno == errno.ENOSPC:
        return f": {_MOST} is {_read(_MOST)}, and so many there are; only root can raise it"
    if error.errno not in (errno.EPERM, errno.EACCES):
        return ""
    for path, value in _SWITCHES.items():
        if _read(path) == value:
            return f": {path} is {value}; only root can change it"
    return ": a filter of system calls, a security module or a chroot around this node forbids it"


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def enter(fds: dict[str, int], who: "Identity") -> None:
    """Enter the namespaces, giving up all capabilities for good. Raises OSError, PluginError.

    The programs executed by the caller have none either. The working directory is then the root. Closes the
    descriptors.
    """
    namespaces.one_thread()
    try:
        for kind in _KINDS:
            _namespace.setns(fds[kind])
    finally:
        namespaces.close(fds)
    give_up = [operations.bound_capabilities(0, "give up capabilities: ")]
    _kernel.perform([*give_up, operations.become_user(who.uid, who.gid, who.gids)], None)
