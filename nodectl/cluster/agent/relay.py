"""A terminal's packets between two agents: those of the client of --pty, and those of the node that has the task.

Each end has a SOCK_SEQPACKET socket, the client's or the step's, and passes packets on as they are
(`nodectl/wire/terminal_packets.py`). Runs in both agents.
"""

import socket
from collections import deque
from collections.abc import Callable

from nodectl.cluster.agent.channel import Channel
from nodectl.cluster.agent.watch import Watch
from nodectl.wire import terminal_packets as packets

_MOST = 32  # packets that the other end may not have passed on
_ONE_BYTE_EACH = "latin-1"
_END = ""


class Relay:
    """One end. `fd` is closed here; `channel` takes late. `on_flushed`: the other one has said its last, and all of it
    has been passed on.
    """

    def __init__(self, fd: int, channel: Channel, on_flushed: Callable[[], None]) -> None:
        self._sock = socket.socket(fileno=fd)
        self._sock.setblocking(False)
        self._channel = channel
        self._on_flushed = on_flushed
        self._queue: deque[str | None] = deque()  # what the other end has said
        self._input = Watch(fd, self._read)
        self._output = Watch(fd, self._flush, writes=True)
        self._last = self._said_last = self._closed = False

    @property
    def heard_last(self) -> bool:
        """Whether the other end says nothing more; what it has said may not have been passed on yet."""
        return self._last

    @property
    def said_last(self) -> bool:
        """Whether nothing more is said to the other end; it may not have all of it yet."""
        return self._said_last

    def begin(self) -> None:
        """From now on, or again: what comes is passed on, as long as the other end has passed on what came before."""
        self._input.want(not self._closed and not self._said_last and self._channel.kept < _MOST)

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
        self._last = self._last or said == _END
        self._queue.append(said)
        if not self._output.wanted:
            self._flush()

    def _flush(self) -> None:
        while self._queue and self._pass_on(self._queue[0] or ""):
            self._channel.took(last=self._queue.popleft() == _END)
        self._output.want(self._queue)
        if self._last and not self._queue and not self._closed:
            self.close()
            self._on_flushed()

    def _pass_on(self, said: str) -> bool:
        """False where it has to wait."""
        try:
            if said and not self._closed:
                self._sock.send(said.encode(_ONE_BYTE_EACH), socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError:
            pass  # nobody reads it
        return True

    def close(self) -> None:
        """Nothing more is passed on."""
        if self._closed:
            return
        self._closed = True
        self._input.want(False)
        self._output.want(False)
        self._sock.close()
