"""One daemon per runtime directory: a lock that the daemon and its forkserver hold together.

It is flock(2) on a file. The lock lasts as long as the open file description, which the forkserver inherits; so the
next daemon starts when both have gone.
"""

import fcntl
import os
import time

_PAUSE = 0.02


class Lock:
    """A taken lock; `fd` is what the forkserver inherits."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def take(cls, directory: str, *, wait: float | bool) -> "Lock | None":
        """Takes the lock of a directory, waiting up to `wait` seconds (False: not at all). None if others have it."""
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
        """Closes this process's descriptor of it."""
        os.close(self.fd)
