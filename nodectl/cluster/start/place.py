"""Where the holder of a cluster has its files: a directory of the user's alone, below that of a node of one's own.

Run by the commands of `nodectl cluster`, and by the holder.
"""

from __future__ import annotations

import fcntl
import os

from nodectl.cluster.start import own_directories
from nodectl.config import own_node


class Taken(Exception):
    """Another holder of this job is on this machine."""


class HoldersPlace:
    """The directory of the holder of a job, locked for as long as it lives. What it is in is made. Raises OSError,
    NotOurs.
    """

    def __init__(self, job: int) -> None:
        self._above = _above()
        own_directories.make(*self._above)
        self.path = f"{self._above[-1]}/{job}"
        self.socket = f"{self.path}/holder.sock"
        self.log = f"{self.path}/log"

    def take(self) -> int:
        """The descriptor that has the lock; what an earlier holder has left is removed. Raises Taken, OSError,
        NotOurs.
        """
        while (fd := self._locked()) < 0:
            pass
        self._empty()
        return fd

    def _locked(self) -> int:
        """-1 where an earlier holder has removed the directory meanwhile. Raises Taken, OSError, NotOurs."""
        try:
            os.mkdir(self.path, 0o700)
        except FileExistsError:
            pass
        except FileNotFoundError:  # the last holder of another job has ended
            own_directories.make(*self._above)
            return -1
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return -1
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.lstat(self.path)):
                own_node.must_be_ours(self.path)  # which nobody else removes from now on
                return fd
        except BlockingIOError:
            os.close(fd)
            raise Taken from None
        except FileNotFoundError:
            pass
        except own_node.NotOurs:
            os.close(fd)
            raise
        os.close(fd)
        return -1

    def remove(self) -> None:
        """The holder is about to end."""
        self._empty()
        os.rmdir(self.path)
        self.leave()

    def leave(self) -> None:
        """Removes what it is in, unless others have something there."""
        own_directories.remove(*self._above)

    def _empty(self) -> None:
        for path in (self.socket, self.log):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass


def _above() -> tuple[str, str]:
    """The directories that it is in."""
    above = own_node.runtime_dir()
    if not os.path.isdir(os.path.dirname(above)):  # the variable that names it has come from another machine
        above = f"/tmp/nodectl-{os.geteuid()}"
    return above, f"{above}/holders"


def sweep(job: int) -> None:
    """Removes what a holder of this job that was killed has left on this machine."""
    try:
        if not os.path.isdir(f"{_above()[-1]}/{job}"):
            return
        place = HoldersPlace(job)
        lock = place.take()
    except (Taken, OSError, own_node.NotOurs):
        return
    try:
        place.remove()
    except OSError:
        return
    finally:
        os.close(lock)
