"""The machine's abilities for job containers: findings of `nodectl doctor`.

As root; a child of the command, with one thread, makes each namespace, which ends with the child.
"""

import errno
import os
from collections.abc import Callable, Iterator

from nodectl.cli.checks.check import FAIL, OK, WARN, Check
from nodectl.kernel import _namespace
from nodectl.kernel.identity import Identity
from nodectl.launch.container import NAMESPACE, disk_room, settings, user_namespace
from nodectl.model.config import Config

_KINDS = {
    "mnt": _namespace.CLONE_NEWNS,
    "pid": _namespace.CLONE_NEWPID,
    "ipc": _namespace.CLONE_NEWIPC,
    "uts": _namespace.CLONE_NEWUTS,
    "net": _namespace.CLONE_NEWNET,
    "cgroup": _namespace.CLONE_NEWCGROUP,
    "time": _namespace.CLONE_NEWTIME,
    "user": _namespace.CLONE_NEWUSER,
}
_NO_MORE = 255  # an exit status: a child that failed with no errno


def all_checks(config: Config) -> Iterator[Check]:
    """Yield every finding about containers; none for users other than root."""
    if os.geteuid() != 0:
        return
    wanted = config.job_container_type == NAMESPACE
    for kind, flag in _KINDS.items():
        needed = wanted and (kind == "mnt" or kind in config.container_namespaces)
        yield namespace(kind, _tried(lambda flag=flag: _namespace.unshare(flag)), needed=needed)  # type: ignore[misc]
    yield mounts(_tried(_mount), needed=wanted)
    yield idmapped(config)
    if wanted:
        yield room_of_state(config)
        yield from network(config)


def namespace(kind: str, error: int, *, needed: bool) -> Check:
    """Report the result of making a namespace; `needed`: the configuration uses the namespace for every job."""
    if not error:
        return Check(OK, f"{kind} namespace", "can be made")
    advice = {
        errno.EPERM: "run it where namespaces may be made: a container or seccomp forbids it",
        errno.ENOSPC: f"raise /proc/sys/user/max_{kind}_namespaces",
        errno.EINVAL: "use a kernel that has it",
    }.get(error, "")
    return Check(FAIL if needed else WARN, f"{kind} namespace", os.strerror(error), advice)


def mounts(error: int, *, needed: bool) -> Check:
    """Report the result of a mount by descriptors, the method for private directories."""
    if not error:
        return Check(OK, "private directories", "can be mounted")
    advice = "use Linux 5.12 or later" if error == errno.ENOSYS else ""
    return Check(FAIL if needed else WARN, "private directories", os.strerror(error), advice)


def idmapped(config: Config) -> Check:
    """Check whether file owners can be mapped in the storage of private directories.

    nodectl does not need it; the finding is for users of other software.
    """
    place = settings.base_path(config)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    error = _tried(lambda: _map(place))
    found = f"not on {place}: {os.strerror(error)}" if error else f"on {place}"
    return Check(OK, "idmapped mounts", f"{found}; not needed, nor is overlay: private directories are their user's")


def room_of_state(config: Config) -> Check:
    """Check whether jobs' own files can take the room of the service's state."""
    what, found = "room of private directories", disk_room.complaint(config)
    if found:
        return Check(WARN, what, found, disk_room.ADVICE)
    return Check(OK, what, f"no file in them takes room from state_dir {config.state_dir}, or quotas bound it")


def network(config: Config) -> Iterator[Check]:
    """Check the interface for container_net."""
    parent = f"/sys/class/net/{config.container_net_parent}"
    if config.container_net == "none":
        return
    if not os.path.isdir(parent):
        advice = "make it, or set container_net_parent to one of /sys/class/net"
        yield Check(FAIL, "container_net", f"no interface {config.container_net_parent}", advice)
    elif config.container_net == "veth" and not os.path.isdir(f"{parent}/bridge"):
        yield Check(FAIL, "container_net", f"{config.container_net_parent} is no bridge", "set it to one")
    else:
        yield Check(OK, "container_net", f"{config.container_net} at {config.container_net_parent}")


def _tried(act: Callable[[], object]) -> int:
    """Return the errno of `act` in a child, 0 for success."""
    pid = os.fork()
    if pid == 0:
        status = _NO_MORE
        try:
            act()
            status = 0
        except OSError as error:
            status = error.errno or _NO_MORE
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _mount() -> None:
    _namespace.unshare(_namespace.CLONE_NEWNS)
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    _namespace.set_mount(root, 0, _namespace.MS_PRIVATE, True)
    tmpfs = _namespace.new_mount("tmpfs", [("mode", "1777")], _namespace.MOUNT_ATTR_NOSUID)
    _namespace.move_mount(tmpfs, _namespace.openat2(root, "proc", os.O_PATH, _namespace.RESOLVE_BENEATH))


def _map(path: str) -> None:
    """Try to map owners in a child of a child.

    The process that makes a user namespace is a child of its caller's parent.
    """
    error = _tried(lambda: _map_once(path))
    if error:
        raise OSError(error, os.strerror(error))


def _map_once(path: str) -> None:
    owner = user_namespace.make(Identity(1, 1, [1]), 0, {})[user_namespace.USER]
    mount = _namespace.clone_mount(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    _namespace.set_mount(mount, _namespace.MOUNT_ATTR_IDMAP, 0, False, owner)
