"""Whether the agent's event loop looks at a descriptor: only as long as there is something to do with it."""

import asyncio
from collections.abc import Callable


class Watch:
    """`ready` is called whenever `fd` can be read, or with `writes` be written to, while that is wanted. Who closes
    `fd` wants nothing any more before.
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
        """From now on; anything false: not."""
        if bool(wanted) != self.wanted:
            self.wanted = not self.wanted
            if self.wanted:
                self._add(self._fd, self._ready)
            else:
                self._remove(self._fd)
