"""Messages over local pipes and sockets, without waiting: the messages of org.nodectl.step and of the gateway."""

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any

from nodectl.cluster.agent.watch import Watch
from nodectl.model.wire import framing

_CHUNK = 65536


class Writer:
    """A writer to `fd`, closed here.

    Data without room in the pipe is kept; a reader that leaves `most` bytes unread is given up, and `on_broken` is
    called, once, from the event loop.
    """

    def __init__(self, fd: int, most: int, on_broken: Callable[[], object]) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._most = most
        self._on_broken = on_broken
        self._out = bytearray()
        self._try_at = 0  # with this many bytes, write without waiting for the event loop
        self._watch = Watch(fd, self._flush, writes=True)
        self._last = False
        self._loop = asyncio.get_running_loop()

    def send(self, message: Mapping[str, object], *, last: bool = False) -> None:
        """Send a message; after the `last` message close the pipe."""
        self._last = last
        self.put(framing.encode(message))

    def put(self, data: bytes) -> None:
        """Send bytes."""
        if self._fd < 0:
            return
        self._out += data
        if not self._watch.wanted or len(self._out) >= self._try_at:
            self._flush()  # so that the reader gets data early, even in a long turn of the loop
        elif len(self._out) > self._most:
            self._break()

    def _flush(self) -> None:
        try:
            while self._out:
                del self._out[: os.write(self._fd, self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self._break()
            return
        if len(self._out) > self._most:
            self._break()
            return
        self._watch.want(self._out)
        self._try_at = len(self._out) + _CHUNK
        if self._last and not self._out:
            self.close()

    def _break(self) -> None:
        self.close()
        self._loop.call_soon(self._on_broken)

    def close(self) -> None:
        """Close the pipe and drop unsent data."""
        if self._fd < 0:
            return
        self._watch.want(False)
        os.close(self._fd)
        self._fd = -1
        self._out.clear()


class Reader:
    """A reader of messages of at most `longest` bytes from `fd`, closed here.

    At the end, or at a malformed message, `on_end` is called, once.
    """

    def __init__(
        self,
        fd: int,
        longest: int,
        on_messages: Callable[[list[Mapping[str, Any]]], None],
        on_end: Callable[[], object],
    ) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._inbox = framing.Inbox(longest)
        self._on_messages = on_messages
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(fd, self._read)

    def _read(self) -> None:
        messages: list[Mapping[str, Any]] = []
        alive = False
        try:
            data = os.read(self._fd, _CHUNK)
            self._inbox.feed(data)
            alive = bool(data)
            while (message := self._inbox.next()) is not None:
                messages.append(message)
        except BlockingIOError:
            return
        except (OSError, framing.BrokenWire):
            alive = False
        if messages:
            self._on_messages(messages)
        if not alive and self._fd >= 0:
            self.close()
            self._on_end()

    def close(self) -> None:
        """Stop reading and close the descriptor."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
