"""The removal, as root, of a tree writable by a user: no path of the user's making is walked, no mount is entered.

Runs wherever root cleans up: in SPANK plugins, and in the removal of a job's container; in a user's own node as that
user, where directories closed to their owner are opened first. Blocks until the given end time at most.
"""

import errno
import os
import time

from nodectl.kernel import _namespace

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def remove(parent: int, outer: int, name: str, end: float) -> str:
    """Remove everything in the directory `outer`, which only root may change, then `outer` itself: `name` in `parent`.

    `outer` and `parent` are descriptors. Returns "" or, in one line, why something is left; at the latest when
    time.monotonic() is `end`.
    """
    removal = _Removal(outer, end)
    while removal.walk():
        pass
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError as error:
        return removal.why or str(error.strerror)
    return ""


def open_below(parent: int, name: str) -> int:
    """Open a directory that a user may have replaced by anything. Raises OSError, EXDEV for a mounted file system.

    A file system of the user's own may let an open wait for ever, so it is not asked.
    """
    return _namespace.openat2(parent, name, _DIRECTORY, _namespace.RESOLVE_NO_XDEV | _namespace.RESOLVE_NO_SYMLINKS)


class _Removal:
    """The removal of everything in the directory `outer`, which only root may change.

    Every directory found below is first moved up into `outer` and then emptied there. So no path of the user's making
    is walked: at any depth one descriptor suffices, nothing can be swung in between, and a mount, which the kernel
    does not move, is never entered.
    """

    def __init__(self, outer: int, end: float) -> None:
        self.outer = outer
        self.end = end
        self.why = ""
        self._mark = os.urandom(6).hex()
        self._moved = 0

    def walk(self) -> bool:
        """Go once over the directories in `outer`. Returns False when nothing is left to do, or time is up."""
        worked = False
        with os.scandir(self.outer) as tops:
            for top in tops:
                name = top.name
                try:
                    if not self._is_unlinked(name):
                        if not name.startswith(self._mark):
                            name = self._move_up(self.outer, name)
                        worked |= self._empty(name)
                        os.rmdir(name, dir_fd=self.outer)
                    worked = True
                except OSError as error:
                    self.why = self.why or str(error.strerror)
                if self._late():
                    return False
        return worked

    def _is_unlinked(self, name: str) -> bool:
        """Unlink a file in `outer`: its user has put it in the place of a directory that was moved up. Raises OSError.

        Return False for a directory.
        """
        try:
            os.unlink(name, dir_fd=self.outer)
        except IsADirectoryError:
            return False
        return True

    def _move_up(self, directory: int, name: str) -> str:
        self._moved += 1
        new = f"{self._mark}.{self._moved}"
        try:
            os.rename(name, new, src_dir_fd=directory, dst_dir_fd=self.outer)
        except PermissionError:  # a move changes ".." in the directory, which needs the right to write there
            _open_to_owner(directory, name)
            os.rename(name, new, src_dir_fd=directory, dst_dir_fd=self.outer)
        return new

    def _empty(self, name: str) -> bool:
        """Remove the files of a directory in `outer` and move directories up. Returns True if there were entries."""
        worked = False
        if os.geteuid() != 0:
            _open_to_owner(self.outer, name)
        try:
            directory = open_below(self.outer, name)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise OSError(errno.EXDEV, "a file system is mounted on it") from None
            raise
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    try:
                        try:
                            os.unlink(entry.name, dir_fd=directory)
                        except IsADirectoryError:
                            self._move_up(directory, entry.name)
                        worked = True
                    except OSError as error:
                        self.why = f"{entry.name!r}: {error.strerror}"
                    if self._late():
                        break
        finally:
            os.close(directory)
        return worked

    def _late(self) -> bool:
        if time.monotonic() < self.end:
            return False
        self.why = "it takes too long; the rest is left to the end of another step"
        return True


def _open_to_owner(parent: int, name: str) -> None:
    """Let the owner of a directory change the directory. Raises OSError."""
    directory = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{directory}", 0o700)  # fchmod(2) would want it to be readable
    finally:
        os.close(directory)
