"""The first process of a job's pid namespace: its /proc, and whoever ends there uncollected.

Forked in the stepd while that is inside the job's other namespaces, a child of nobody's who waits; root, in a cgroup of
the job's, BASE/JOB/first says which process it is. When it is killed the kernel kills everybody in the namespace.
"""

import errno
import os

import prctl

from nodectl.cgroup import tree
from nodectl.container.job_dir import Place
from nodectl.kernel import _namespace, signals
from nodectl.kernel.closing import close_all_but

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

GROUP = "container"
_FILE = "first"
_START = 19  # starttime in proc(5), behind the name
_MOUNT = _namespace.MOUNT_ATTR_NOSUID | _namespace.MOUNT_ATTR_NODEV | _namespace.MOUNT_ATTR_NOEXEC
_PROC = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_LOW = 3


def start(place: Place, group: str, user: int) -> int:
    """Starts it, in the cgroup with the full path `group`, "" for none. Returns a descriptor of the pid namespace. That
    belongs to the user namespace that `user` stands for, -1 for the caller's.

    Until BASE/JOB/first tells of it, it ends with the caller. Raises OSError.
    """
    born_in = tree.Group(group).make().open() if group else -1
    proc = os.open("/proc", _PROC)  # soon another lies over it, in which the caller has no number
    (heard, told), (go, let_go) = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
    try:
        pid = _bear(born_in, user)
        if pid == 0:
            _be_first(go, told)
        os.close(told)
        error = int(os.read(heard, 16) or errno.ECHILD)
        if error:
            raise OSError(error, f"mount /proc in a pid namespace: {os.strerror(error)}")
        place.write(_FILE, f"{pid} {_started(proc, pid)}")
        fd = os.open(f"{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
        os.write(let_go, b"1")
        return fd
    finally:
        for end in {born_in, proc, heard, go, let_go} - {-1}:
            os.close(end)


def _bear(born_in: int, user: int) -> int:
    """fork_aside, where asked for by a process that has become one of the user namespace's: who makes a namespace makes
    it for its own.
    """
    if user < 0:
        return _namespace.fork_aside(_namespace.CLONE_NEWPID, born_in)
    heard, told = os.pipe2(os.O_CLOEXEC)
    try:
        if _namespace.fork_aside(0, -1) == 0:
            _bear_inside(born_in, user, told)
            return 0
        os.close(told)
        told = -1
        pid = int(os.read(heard, 16) or -errno.ECHILD)
    finally:
        for end in {heard, told} - {-1}:
            os.close(end)
    if pid < 0:
        raise OSError(-pid, f"fork into a user namespace: {os.strerror(-pid)}")
    return pid


def _bear_inside(born_in: int, user: int, told: int) -> None:
    """Returns in the first process; who forks it tells its pid, or an errno below zero, and ends."""
    said = -errno.EIO
    try:
        _namespace.setns(user)
        said = _namespace.fork_aside(_namespace.CLONE_NEWPID, born_in)
    except OSError as error:
        said = -(error.errno or errno.EIO)
    finally:
        if said != 0:
            os.write(told, str(said).encode())
            os._exit(0)


def stop(place: Place) -> None:
    """Kills it, if it still is who it was."""
    proc = os.open("/proc", _PROC)
    try:
        pid, started = place.read(_FILE).split()
        process = os.pidfd_open(int(pid))
        try:
            if _started(proc, int(pid)) == started.decode():
                signals.send(process, signals.KILL)
        finally:
            os.close(process)
    except (OSError, ValueError):
        pass  # there is none, or it has just ended
    finally:
        os.close(proc)


def _started(proc: int, pid: int) -> str:
    """When, and since which boot that is counted: the file may lie on a disk."""
    ticks = _read(proc, f"{pid}/stat").rpartition(b") ")[2].split()[_START]
    return f"{ticks.decode()}@{_read(proc, 'sys/kernel/random/boot_id').strip().decode()}"


def _read(proc: int, path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def _be_first(go: int, told: int) -> "NoReturn":
    try:
        prctl.set_name("nodectl-first")
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        for fd in range(_LOW):  # a private node's are its command's, whose reader waits for their end
            os.dup2(null, fd)
        close_all_but((go, told))
        try:
            _mount_proc()
        except OSError as error:
            os.write(told, str(error.errno).encode())
            os._exit(1)
        os.write(told, b"0")
        if os.read(go, 1):  # nothing: the caller has gone
            os.close(go)
            os.close(told)
            _namespace.reap()
    finally:
        os._exit(1)


def _mount_proc() -> None:
    proc = _namespace.new_mount("proc", [], _MOUNT)
    target = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    _namespace.move_mount(proc, target)
    os.close(target)
    os.close(proc)
