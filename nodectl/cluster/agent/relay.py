"""A terminal's packets between two agents: those of the client of --pty, and those of the node that has the task.

Each end has a SOCK_SEQPACKET socket, the client's or the step's, and passes packets on as they are
(`nodectl/wire/terminal_packets.py`). Runs in both agents.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable

from nodectl.cluster.agent.channel import Channel
from nodectl.wire import terminal_packets as packets

_MOST = 32  # packets that the other end may not have
_ONE_BYTE_EACH = "latin-1"
_END = ""


class Relay:
    """One end. `fd` is closed here. `on_flushed`: the other one has said its last, and all of it has been passed on."""

    def __init__(self, fd: int, channel: Channel, on_flushed: Callable[[], None]) -> None:
        self._sock = socket.socket(fileno=fd)
        self._sock.setblocking(False)
        self._channel = channel
        self._on_flushed = on_flushed
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes] = deque()
        self._reads = self._waits = self._last = self._said_last = self._closed = False

    @property
    def heard_last(self) -> bool:
        """Whether the other end says nothing more; what it has said may not have been passed on yet."""
        return self._last

    @property
    def said_last(self) -> bool:
        """Whether nothing more is said to the other end; it may not have all of it yet."""
        return self._said_last

    def begin(self) -> None:
        """From now on, or again: what comes is passed on, as long as the other end has what came before."""
        wanted = not self._closed and not self._said_last and self._channel.kept < _MOST
        if wanted and not self._reads:
            self._loop.add_reader(self._sock.fileno(), self._read)
        elif self._reads and not wanted:
            self._loop.remove_reader(self._sock.fileno())
        self._reads = wanted

    def _read(self) -> None:
        try:
            data = self._sock.recv(packets.HEAD + packets.LONGEST)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._channel.say(data.decode(_ONE_BYTE_EACH))
        else:
            self.finish()
        self.begin()

    def finish(self) -> None:
        """Nothing more comes here but what is there already."""
        while not self._said_last:
            try:
                data = b"" if self._closed else self._sock.recv(packets.HEAD + packets.LONGEST)
            except OSError:
                data = b""
            self._said_last = not data
            self._channel.say(data.decode(_ONE_BYTE_EACH))
        self._channel.ask()
        self.begin()

    def take(self, said: str | None) -> None:
        """What the other end says; None to say that it is there."""
        if said == _END:
            self._last = True
        elif said is not None:
            self._queue.append(said.encode(_ONE_BYTE_EACH))
        if not self._waits and not self._closed:
            self._flush()

    def _flush(self) -> None:
        try:
            while self._queue:
                self._sock.send(self._queue[0], socket.MSG_NOSIGNAL)
                self._queue.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self._queue.clear()  # nobody reads it
        waits = bool(self._queue)
        if waits != self._waits:
            self._waits = waits
            if waits:
                self._loop.add_writer(self._sock.fileno(), self._flush)
            else:
                self._loop.remove_writer(self._sock.fileno())
        if self._last and not waits:
            self.close()
            self._on_flushed()

    def close(self) -> None:
        """Nothing more is passed on."""
        if self._closed:
            return
        self._closed = True
        if self._reads:
            self._loop.remove_reader(self._sock.fileno())
            self._reads = False
        if self._waits:
            self._loop.remove_writer(self._sock.fileno())
            self._waits = False
        self._sock.close()
