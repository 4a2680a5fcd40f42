"""The corner of the login sessions: the cgroup in which what is no job stays, its limits, and its wall around devices.

`nodectl fence on` makes the corner and writes its mark into `state_dir`. As long as the mark is there the daemon renews
the corner: the wall, a program of the cgroup, is gone after a boot, and the files of some devices are made late.

    user.slice           systemd's, with the wall: it stays while users come and go
        user-0.slice     root's sessions: no limits, and the wall lets root pass
        user-1000.slice  a user's sessions: systemd writes the limits, also after a boot (`nodectl/cli/fence_units.py`)
    logins               the same without systemd, or of the key `login_cgroup`: wall and limits are on it

The wall goes by the real uid of a process: sudo passes it, a set-user-ID program does not. Runs in the daemon and in
the command, as root.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nodectl.kernel import _kernel, pseudo_file
from nodectl.launch.cgroup import device_access, tree
from nodectl.model.config import Config
from nodectl.model.node_device import NodeDevice
from nodectl.model.wire import lean_json
from nodectl.model.words import printable

_SYSTEMD = "/run/systemd/system"  # sd_booted(3)
_USERS, _OURS = "/user.slice", "/logins"
_CONTROLLERS = ("cpuset", "cpu", "io", "memory")
_DEFAULTS = {
    "cpuset.cpus": "", "cpu.weight": "100", "io.weight": "default 100", "memory.high": "max", "memory.max": "max",
}  # fmt: skip
_HIGH = 0.9  # of the memory: from there on the kernel takes memory back, before it kills
_MIB = 1 << 20
_LAST_UID = (1 << 32) - 1
_MOST = 1 << 44  # MiB


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _are_uids(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(_is_number(uid) and uid <= _LAST_UID for uid in value)


_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "path": lambda value: isinstance(value, str) and value.startswith("/"),
    "of_systemd": lambda value: isinstance(value, bool),
    "free": _are_uids,
    "cpus": lambda value: isinstance(value, str),
    "memory": _is_number,
    "weight": _is_number,
}


class LoginShare(NamedTuple):
    """The share of logins: CPUs as a list, "" for all; MiB of memory, 0 for all; weight for CPU time and disks."""

    cpus: str
    memory: int
    weight: int

    @property
    def high(self) -> int:
        """The MiB from which on the kernel takes memory back."""
        return int(self.memory * _HIGH)

    def files(self) -> dict[str, str]:
        """Return the limits as files of a cgroup."""
        files = {"cpuset.cpus": self.cpus} if self.cpus else {}
        if self.memory:
            files |= {"memory.high": str(self.high * _MIB), "memory.max": str(self.memory * _MIB)}
        return files | {"cpu.weight": str(self.weight), "io.weight": f"default {self.weight}"}


class Corner(NamedTuple):
    """The corner, as the mark of the fence describes the corner.

    `path`: its directory; `of_systemd`: systemd made it, and keeps the limits. `free`: the uids for which there is no
    wall.
    """

    path: str
    of_systemd: bool
    share: LoginShare
    free: tuple[int, ...]


def mark_of(config: Config) -> str:
    """Return the path of the mark, a file which exists while the fence is on."""
    return f"{config.state_dir}/fence"


def place(config: Config) -> tuple[str, bool]:
    """Return the directory of the corner, "" without a cgroup2 file system; and True if systemd makes the directory."""
    mount = tree.find_mount()
    of_systemd = not config.login_cgroup and os.path.isdir(_SYSTEMD)
    return (mount + (config.login_cgroup or (_USERS if of_systemd else _OURS)) if mount else ""), of_systemd


def share_of(config: Config, cpus: str, machine_memory: int) -> LoginShare:
    """Return the limits of the configuration. `cpus`: no job gets these CPUs; `machine_memory` in MiB."""
    left = max(machine_memory - config.real_memory, 0) if config.real_memory else 0
    return LoginShare(cpus, config.login_memory or left, config.login_weight)


def mark(config: Config) -> Corner | None:
    """Return the corner which the mark describes, None without a mark. Raises OSError; ValueError for a broken mark."""
    try:
        data = pseudo_file.read(mark_of(config))
    except FileNotFoundError:
        return None
    return corner_of(lean_json.load_object(data))


def corner_of(fields: Mapping[str, Any]) -> Corner:
    """Return the corner with these fields. Raises ValueError."""
    wrong = [name for name, fits in _FIELDS.items() if name not in fields or not fits(fields[name])]
    if wrong:
        raise ValueError(f"the mark of the fence is broken: {', '.join(wrong)}")
    share = LoginShare(*(fields[name] for name in LoginShare._fields))
    return Corner(fields["path"], fields["of_systemd"], share, tuple(fields["free"]))


def fields_of(corner: Corner) -> dict[str, object]:
    """Return the fields of a corner, for the mark and for a message."""
    fields: dict[str, object] = {**corner._asdict(), **corner.share._asdict()}
    del fields["share"]
    return fields


@contextlib.contextmanager
def held(config: Config, how: int) -> Iterator[bool]:
    """Hold the mark's lock meanwhile; give False where there is no mark, or where another process has the lock.

    `how`: as for flock(2). Only root can open the mark.
    """
    try:
        fd = os.open(mark_of(config), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield False
        return
    try:
        try:
            fcntl.flock(fd, how)
        except BlockingIOError:
            yield False
        else:
            yield os.fstat(fd).st_nlink > 0
    finally:
        os.close(fd)


def keep(config: Config, devices: Iterable[NodeDevice]) -> str:
    """Renew the corner if its mark is there. Return why this could not be done, "" where it was, or need not be.

    `nodectl fence off`, which holds the lock, comes first.
    """
    try:
        with held(config, fcntl.LOCK_SH | fcntl.LOCK_NB) as is_on:
            corner = mark(config) if is_on else None
            if corner is not None:
                build(corner, devices)
    except (OSError, ValueError) as error:
        return f"the fence around logins: {error}"
    return ""


def build(corner: Corner, devices: Iterable[NodeDevice]) -> list[str]:
    """Make the corner, its limits and its wall. Return the files that the kernel does not have here. Raises OSError."""
    group = tree.Group(corner.path)
    missing: list[str] = []
    if not corner.of_systemd:
        _enable_controllers(tree.Group(os.path.dirname(corner.path)))
        group.make()
        for name, text in corner.share.files().items():
            if not group.has(name):
                missing.append(name)
            elif group.core.get_property(name).partition("\n")[0] != text:  # a limit written again waits for reclaim
                group.write({name: text})
    set_wall(group, devices, corner.free)
    return missing


def set_wall(group: tree.Group, devices: Iterable[NodeDevice], free: Sequence[int]) -> None:
    """Deny the devices to all users but those with the uids `free`; without devices take the wall away.

    Raises OSError.
    """
    fd = group.open()
    try:
        _kernel.fence_devices(fd, device_access.of_job(devices, ()), free)
    except OSError as error:
        raise OSError(error.errno, error.strerror, group.full_path) from None
    finally:
        os.close(fd)


def _enable_controllers(above: tree.Group) -> None:
    """Enable the controllers for the limits. They stay enabled after the fence: programs may rely on them by then."""
    for name in set(_CONTROLLERS) & set(above.core.controllers):
        with contextlib.suppress(OSError):  # what cannot be limited is told
            above.enable([name])


def take_down(corner: Corner) -> str:
    """Take wall and limits away, and a cgroup that `build` made. Return what is left of it, "" for nothing.

    Raises OSError.
    """
    group = tree.Group(corner.path)
    if not group.exists():
        return ""
    set_wall(group, (), ())
    if corner.of_systemd:
        return ""
    above = tree.Group(os.path.dirname(corner.path))
    for name, text in _DEFAULTS.items():
        if group.has(name):
            group.write({name: text})
    for pid in group.core.procs:
        with contextlib.suppress(OSError):  # it has ended, or nothing may be above
            above.add(pid)
    return "" if group.remove() else f"{corner.path} stays, without limits: processes or cgroups are in it"


def usage(corner: Corner) -> Mapping[str, int]:
    """Return the corner's numbers of users, sessions and processes, memory in MiB and CPU time in us.

    Those of users who have no wall do not count. As any user.
    """
    groups = [group for group in _fenced(corner) if group.exists()]
    pids = [pid for group in groups for pid in group.pids()]
    uids = {uid for pid in pids if (uid := _owner(pid)) is not None} - {0}
    sessions = [name for group in groups for name in _names(group.full_path) if name.startswith("session-")]
    memory = sum(_number(f"{group.full_path}/memory.current") for group in groups) // _MIB
    spent = sum(_number(f"{group.full_path}/cpu.stat", "usage_usec ") for group in groups)
    return {
        "users": len(groups) if corner.of_systemd else len(uids), "sessions": len(sessions), "processes": len(pids),
        "memory_used": memory, "cpu_usec": spent,
    }  # fmt: skip


def words_of(use: Mapping[str, Any]) -> str:
    """Return a program outside of all jobs that has a device open, in words."""
    return f"process {use['pid']} ({printable(use['command'])}) of {use['user']}"


def _fenced(corner: Corner) -> list[tree.Group]:
    if not corner.of_systemd:
        return [tree.Group(corner.path)]
    free = {f"user-{uid}.slice" for uid in corner.free}
    names = [name for name in _names(corner.path) if name.startswith("user-") and name not in free]
    return [tree.Group(f"{corner.path}/{name}") for name in names]


def _names(path: str) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(path) if entry.is_dir()]
    except OSError:
        return []


def _owner(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def _number(path: str, mark: str = "") -> int:
    try:
        text = pseudo_file.read(path).decode("ascii").partition(mark)[2] if mark else pseudo_file.read(path).decode()
        return int(text.split()[0])
    except (OSError, ValueError, IndexError):
        return 0
