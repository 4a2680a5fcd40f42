"""The agent's directory, which holds the gateway's socket and the directory of the node's daemon.

Agents killed together with all their processes leave their directories behind; the next agent on the machine removes
them.
"""

import contextlib
import errno
import fcntl
import os
import select
import shutil
import socket
import time

from nodectl.client import cluster_gateway
from nodectl.client.command import Failed
from nodectl.cluster.start import own_directories
from nodectl.cluster.start.words import SERVED
from nodectl.kernel import signals
from nodectl.model.config import own_node

_LOCK = "lock"  # in an agent's directory, and in its node's, where the daemon and its forkserver hold the lock
_PAUSE = 0.05
_PATIENCE = 60.0  # seconds for an earlier node of the same job to end its steps
_SERVED_SECONDS = 5.0  # by then an agent about to end accepts no more connections


class Directory:
    """The agent's directory at `path`, locked for the agent's lifetime."""

    def __init__(self, path: str, lock: int) -> None:
        self.path = path
        self._lock = lock

    def remove(self) -> None:
        """Rename and remove the directory with all content.

        After the renaming the next agent of this place need not wait for the removal, and nothing is removed from its
        directory.
        """
        gone = f"{self.path}.{os.getpid()}"
        with contextlib.suppress(OSError):
            os.rename(self.path, gone)
        _remove(gone)
        os.close(self._lock)
        leave(os.path.dirname(self.path))


def _remove(path: str) -> None:
    """Remove the directory, with a node's containers, which may hold directories closed to the owner.

    The node has ended, but the path of its containers may already belong to the next node.
    """
    base = f"{path}/state/containers"
    if os.path.isdir(base):
        from nodectl.launch.container import job_dir  # few nodes have any

        for host in os.listdir(base):
            job_dir.sweep(f"{base}/{host}", lambda _: "", every=True)
    shutil.rmtree(path, ignore_errors=True)


def leave(top: str) -> None:
    """Remove the directory of all agents' directories, unless an agent has or is about to make a directory there.

    The call waits for the lock: the agent that holds it may have found this agent's directory still there, and left the
    removal to this call.
    """
    try:
        turn = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if _is_still(turn, top):  # otherwise another agent has made it anew, and may be about to make its own in it
            own_directories.remove(os.path.dirname(top), top)
    except OSError:
        return
    finally:
        os.close(turn)


def take(name: str) -> Directory:
    """Make the directory of this name. Raises Failed."""
    try:
        base = _base()
        top = f"{base}/cluster"
        path = f"{top}/{name}"
        began = time.monotonic()
        while (lock := _make(base, top, name)) is None:
            _wait_for_end(path, began)
            if time.monotonic() - began >= _PATIENCE:
                raise Failed(f"remove {path}, which an earlier agent has left: it cannot be done")
    except own_node.NotOurs as error:
        raise Failed(str(error)) from None
    except OSError as error:
        raise Failed(f"make {error.filename}: {error.strerror}") from None
    return Directory(path, lock)


def _base() -> str:
    """Return the login session's directory if its parent exists, else the next base.

    The variable that names the session's directory may come from another machine.
    """
    first, *others = cluster_gateway.bases()
    return first if os.path.isdir(os.path.dirname(first)) else others[0]


def _wait_for_end(path: str, began: float) -> None:
    """Wait until an earlier agent's node in the same place has ended. Raises Failed, OSError.

    Where a gateway goes on serving there, this agent belongs to a second cluster of the job, and the call fails.
    """
    try:
        while not _is_dead(path):
            waited = time.monotonic() - began
            if waited >= _PATIENCE or (waited >= _SERVED_SECONDS and _serves(path)):
                raise Failed(f"{SERVED} {path}")
            if _is_told_to_end():
                raise Failed("it was told to end before it had its directory")
            time.sleep(_PAUSE)
    except FileNotFoundError:
        return


def _serves(path: str) -> bool:
    """Return whether the gateway there accepts connections."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        return sock.connect_ex(f"{path}/nodectl.sock") in (0, errno.EAGAIN)


def _is_told_to_end() -> bool:
    """Return whether the agent's standard input is closed, or a signal has come."""
    poll = select.poll()
    poll.register(0, 0)
    return signals.is_told_to_end() or any(mask & select.POLLHUP for _, mask in poll.poll(0))


def _make(base: str, top: str, name: str) -> int | None:
    """Make the directory and return the lock; None where an agent has the directory or the parent is gone.

    One agent at a time does this: without that, an agent could take a directory without a lock yet for dead. Raises
    OSError, NotOurs.
    """
    own_directories.make(base, top)
    try:
        turn = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not _is_still(turn, top):
            return None
        for found in os.listdir(top):
            try:
                if _is_dead(f"{top}/{found}"):
                    _remove(f"{top}/{found}")
            except OSError:
                continue  # its own node has removed it first
        path = f"{top}/{name}"
        if os.path.isdir(path):
            return None
        os.mkdir(path, 0o700)
        while (lock := _taken(path)) is None:
            time.sleep(_PAUSE)  # another process is checking the lock
        return lock
    finally:
        os.close(turn)


def _is_still(fd: int, path: str) -> bool:
    """Return whether the path still names the open directory."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def _is_dead(path: str) -> bool:
    """Return whether neither an agent nor a node's daemon lives there. Raises OSError."""
    for directory in (path, f"{path}/node"):
        if not os.path.isdir(directory):
            continue
        lock = _taken(directory)
        if lock is None:
            return False
        os.close(lock)
    return True


def _taken(directory: str) -> int | None:
    """Return the lock of a directory; None where another process has the lock. Raises OSError."""
    fd = os.open(f"{directory}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
