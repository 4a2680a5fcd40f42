"""The packets of a terminal between two agents: of the --pty client's node, and of the task's node.

Each end has a SOCK_SEQPACKET socket, the client's or the step's, and passes packets on unchanged
(`nodectl/model/wire/terminal_packets.py`). Runs in both agents.
"""

import socket
from collections import deque
from collections.abc import Callable

from nodectl.cluster.agent.channel import Channel
from nodectl.cluster.agent.watch import Watch
from nodectl.model.wire import terminal_packets as packets

_MOST = 32  # packets that the remote end may not have passed on
_ONE_BYTE_EACH = "latin-1"
_END = ""


class Relay:
    """An end of the relay.

    `fd` is closed here; `channel` is a late channel. `on_flushed` is called when the remote end has sent its last
    packet, and all packets have been passed on.
    """

    def __init__(self, fd: int, channel: Channel, on_flushed: Callable[[], None]) -> None:
        self._sock = socket.socket(fileno=fd)
        self._sock.setblocking(False)
        self._channel = channel
        self._on_flushed = on_flushed
        self._queue: deque[str | None] = deque()  # packets of the remote end
        self._input = Watch(fd, self._read)
        self._output = Watch(fd, self._flush, writes=True)
        self._last = self._said_last = self._closed = False

    @property
    def heard_last(self) -> bool:
        """Whether the remote end's last packet has come; some packets may still be waiting here."""
        return self._last

    @property
    def said_last(self) -> bool:
        """Whether the last packet was sent to the remote end, which may not have all packets yet."""
        return self._said_last

    def begin(self) -> None:
        """Read from the socket, now or again, as long as the remote end keeps up."""
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
        """Send the packets still in the socket, then the end."""
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
        """Handle a packet of the remote end; None for the message of a ready terminal."""
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
        """Write a packet to the socket; return False where the packet must wait."""
        try:
            if said and not self._closed:
                self._sock.send(said.encode(_ONE_BYTE_EACH), socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError:
            pass  # the socket has no reader
        return True

    def close(self) -> None:
        """Close the socket."""
        if self._closed:
            return
        self._closed = True
        self._input.want(False)
        self._output.want(False)
        self._sock.close()
