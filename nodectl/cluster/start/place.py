"""The holder's files: a directory of the user's alone, below the directory of the user's own node.

Run by the commands of `nodectl cluster`, and by the holder.
"""

from __future__ import annotations

import fcntl
import os

from nodectl.cluster.start import own_directories
from nodectl.model.config import own_node


class Taken(Exception):
    """A second holder of this job runs on this machine."""


class HoldersPlace:
    """The directory of a job's holder, locked for the holder's lifetime.

    The constructor makes the parent directories. Raises OSError, NotOurs.
    """

    def __init__(self, job: int) -> None:
        self._above = _above()
        own_directories.make(*self._above)
        self.path = f"{self._above[-1]}/{job}"
        self.socket = f"{self.path}/holder.sock"
        self.log = f"{self.path}/log"

    def take(self) -> int:
        """Lock the directory and return the descriptor of the lock. Raises Taken, OSError, NotOurs.

        Removes the leftovers of an earlier holder.
        """
        while (fd := self._locked()) < 0:
            pass
        self._empty()
        return fd

    def _locked(self) -> int:
        """Return the locked descriptor; -1 where an earlier holder removed the directory. Raises Taken, OSError,
        NotOurs.
        """
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
                own_node.must_be_ours(self.path)  # from now on no other process removes it
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
        """Remove the directory before the holder ends."""
        self._empty()
        os.rmdir(self.path)
        self.leave()

    def leave(self) -> None:
        """Remove the parent directories, unless in use."""
        own_directories.remove(*self._above)

    def _empty(self) -> None:
        for path in (self.socket, self.log):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass


def _above() -> tuple[str, str]:
    above = own_node.runtime_dir()
    if not os.path.isdir(os.path.dirname(above)):  # the variable with its name came from another machine
        above = f"/tmp/nodectl-{os.geteuid()}"
    return above, f"{above}/holders"


def sweep(job: int) -> None:
    """Remove the leftovers of a killed holder of this job from this machine."""
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
