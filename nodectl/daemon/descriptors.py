"""Descriptors that the daemon holds for others: copied all or not at all, closed where nobody waits.

To close what a user has sent may take as long as they like: a socket with SO_LINGER whose peer does not read, a file of
a file system of their own (FUSE) that does not answer. So that is done in threads, of which there is always a free one.
"""

import _thread
import asyncio
import fcntl
import queue
from collections.abc import Callable, Iterable

from nodectl import wire


def copies(fds: Iterable[int], least: int = 0) -> list[int]:
    """A copy of each, numbered from `least` on, closed at an exec. Raises OSError, and then there is none."""
    made: list[int] = []
    try:
        for fd in fds:
            made.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least))
    except OSError:
        wire.close(made)
        raise
    return made


class _Threads:
    """Those that close. Counted in the event loop only."""

    def __init__(self) -> None:
        self.work: queue.SimpleQueue[tuple[list[int], Callable[[], None]]] = queue.SimpleQueue()
        self.free = 0

    def begin(self) -> None:
        """There is one more piece of work."""
        if self.free:
            self.free -= 1
            return
        try:
            _thread.start_new_thread(self._close, (asyncio.get_running_loop(),))
        except RuntimeError:
            self.free -= 1  # no more threads: one that is done with what holds it up comes to it

    def _close(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            fds, done = self.work.get()
            wire.close(fds)
            try:
                loop.call_soon_threadsafe(self._is_free, done)
            except RuntimeError:
                return  # the daemon has ended meanwhile

    def _is_free(self, done: Callable[[], None]) -> None:
        self.free += 1
        done()


_threads = _Threads()


def close_aside(fds: list[int], done: Callable[[], None] = lambda: None) -> None:
    """Closes what users have sent, in a thread; `done` is called in the event loop when that is over."""
    _threads.work.put((fds, done))
    _threads.begin()
