"""Pid 1 of a job's pid namespace, which mounts the namespace's /proc and reaps orphans.

The stepd forks it while the stepd is inside the job's other namespaces. It runs as root in a cgroup of the job, and
BASE/JOB/first names the process. When it is killed the kernel kills every process in the namespace.
"""

import errno
import os

import prctl

from nodectl.kernel import _namespace, signals
from nodectl.kernel.closing import close_all_but
from nodectl.launch.cgroup import tree
from nodectl.launch.container.job_dir import JobDir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_FILE = "first"
_START = 19  # starttime in proc(5), behind the name
_MOUNT = _namespace.MOUNT_ATTR_NOSUID | _namespace.MOUNT_ATTR_NODEV | _namespace.MOUNT_ATTR_NOEXEC
_PROC = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_LOW = 3


def start(job_dir: JobDir, group: str, user_namespace: int) -> int:
    """Start pid 1 in the cgroup with the full path `group`, "" for none. Returns a descriptor of the pid namespace.

    The pid namespace belongs to the user namespace of the descriptor `user_namespace`, -1 for the caller's. Until
    BASE/JOB/first names it, it ends with the caller. Raises OSError.
    """
    cgroup = tree.Group(group).make().open() if group else -1
    proc = os.open("/proc", _PROC)  # the new /proc is mounted over it and does not show the caller
    reader, result = os.pipe2(os.O_CLOEXEC)
    go, permit = os.pipe2(os.O_CLOEXEC)
    try:
        pid = _fork(cgroup, user_namespace)
        if pid == 0:
            _main(go, result)
        os.close(result)
        error = int(os.read(reader, 16) or errno.ECHILD)
        if error:
            raise OSError(error, f"mount /proc in a pid namespace: {os.strerror(error)}")
        job_dir.write(_FILE, f"{pid} {_started(proc, pid)}")
        fd = os.open(f"{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
        os.write(permit, b"1")
        return fd
    finally:
        for end in {cgroup, proc, reader, go, permit} - {-1}:
            os.close(end)


def _fork(cgroup: int, user_namespace: int) -> int:
    """Fork into a new pid namespace.

    With a user namespace a child joins that first and forks there: a namespace belongs to the user namespace that its
    maker is in.
    """
    if user_namespace < 0:
        return _namespace.fork_aside(_namespace.CLONE_NEWPID, cgroup)
    reader, result = os.pipe2(os.O_CLOEXEC)
    try:
        if _namespace.fork_aside(0, -1) == 0:
            _fork_inside(cgroup, user_namespace, result)
            return 0
        os.close(result)
        result = -1
        pid = int(os.read(reader, 16) or -errno.ECHILD)
    finally:
        for end in {reader, result} - {-1}:
            os.close(end)
    if pid < 0:
        raise OSError(-pid, f"fork into a user namespace: {os.strerror(-pid)}")
    return pid


def _fork_inside(cgroup: int, user_namespace: int, result: int) -> None:
    """Fork pid 1, and return only there. The parent writes the pid, or an errno below zero, and ends."""
    pid = -errno.EIO
    try:
        _namespace.setns(user_namespace)
        pid = _namespace.fork_aside(_namespace.CLONE_NEWPID, cgroup)
    except OSError as error:
        pid = -(error.errno or errno.EIO)
    finally:
        if pid != 0:
            os.write(result, str(pid).encode())
            os._exit(0)


def stop(job_dir: JobDir) -> None:
    """Kill the process named by BASE/JOB/first, if still the same process."""
    proc = os.open("/proc", _PROC)
    try:
        pid, started = job_dir.read(_FILE).split()
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
    """Return a process's start time and the boot from which the time counts: the file may be on a disk."""
    ticks = _read(proc, f"{pid}/stat").rpartition(b") ")[2].split()[_START]
    return f"{ticks.decode()}@{_read(proc, 'sys/kernel/random/boot_id').strip().decode()}"


def _read(proc: int, path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def _main(go: int, result: int) -> "NoReturn":
    try:
        prctl.set_name("nodectl-first")
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        for fd in range(_LOW):  # a private node's are its command's, and their reader waits for the end
            os.dup2(null, fd)
        close_all_but((go, result))
        try:
            _mount_proc()
        except OSError as error:
            os.write(result, str(error.errno).encode())
            os._exit(1)
        os.write(result, b"0")
        if os.read(go, 1):  # the end of the pipe: the caller has died
            os.close(go)
            os.close(result)
            _namespace.reap()
    finally:
        os._exit(1)


def _mount_proc() -> None:
    proc = _namespace.new_mount("proc", [], _MOUNT)
    target = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    _namespace.move_mount(proc, target)
    os.close(target)
    os.close(proc)
