"""The lock of a runtime directory, held by the daemon and the forkserver together: a single daemon per directory.

It is flock(2) on a file. The lock lasts as long as the open file description, which the forkserver inherits; so the
next daemon starts when both have gone.
"""

import fcntl
import os
import time

_PAUSE = 0.02


class Lock:
    """A held lock. The forkserver inherits `fd`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def take(cls, directory: str, *, wait: float | bool) -> "Lock | None":
        """Lock a directory, with a wait of up to `wait` seconds (False: none). Return None if the lock stays taken."""
        fd = os.open(f"{directory}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        deadline = time.monotonic() + float(wait)
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(fd)
                    return None
                time.sleep(_PAUSE)
            else:
                return cls(fd)

    def release(self) -> None:
        """Close this process's descriptor of the lock."""
        os.close(self.fd)
