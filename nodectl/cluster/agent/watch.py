"""A descriptor in the agent's event loop, polled only while there is something to do."""

import asyncio
from collections.abc import Callable


class Watch:
    """A descriptor watched by the event loop.

    `ready` is called whenever `fd` is readable, or with `writes` writable, while that is wanted. Before closing `fd`,
    the owner must call `want(False)`.
    """

    __slots__ = ("_add", "_fd", "_ready", "_remove", "wanted")

    def __init__(self, fd: int, ready: Callable[[], object], *, writes: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self._add = loop.add_writer if writes else loop.add_reader
        self._remove = loop.remove_writer if writes else loop.remove_reader
        self._fd = fd
        self._ready = ready
        self.wanted = False

    def want(self, wanted: object = True) -> None:
        """Start watching, or with a false value stop."""
        if bool(wanted) != self.wanted:
            self.wanted = not self.wanted
            if self.wanted:
                self._add(self._fd, self._ready)
            else:
                self._remove(self._fd)
