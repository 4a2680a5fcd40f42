"""A connection at the gateway: incoming calls are bounded, and replies wait for a slow reader."""

import asyncio
import select
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nodectl.model.wire import framing
from nodectl.model.wire.dispatch import Refused, error_reply, withdrawn
from nodectl.service.listener.message import LAUNCH, checked, withdraws

LONGEST = 3 << 20  # bytes of a call: one message of the mesh holds it
_MOST_QUEUED = 64

Take = Callable[["Visitor", Mapping[str, Any], list[int]], None]
Leave = Callable[["Visitor"], None]


class Visitor:
    """A connection at the gateway.

    `take` gets a call and its descriptors, and the next call after `answer`. `withdraw` is called when the launch under
    way is withdrawn. `on_leave` is called at the connection's end.
    """

    def __init__(self, sock: socket.socket, take: Take, on_leave: Leave, withdraw: Leave) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._take = take
        self._on_leave = on_leave
        self._withdraw = withdraw
        self._inbox = framing.Inbox(LONGEST)
        self._calls: list[tuple[bytes, list[int]]] = []
        self.withdraws = False  # the launch that is under way
        self._busy = self._launching = False
        self._out = bytearray()
        self._theirs: list[int] = []
        self._sent_all = False
        self._waits = False
        self._gone = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._read)

    def _read(self) -> None:
        try:
            alive = self._inbox.receive(self._sock)
            while (text := self._inbox.take()) is not None:
                self._calls.append((text, self._inbox.take_descriptors()))
            if len(self._calls) > _MOST_QUEUED or sum(len(text) for text, _ in self._calls) > LONGEST:
                raise framing.BrokenWire("more calls than can wait for a reply")
            if self._launching and not self.withdraws and withdraws(self._calls):
                self.withdraws = True
                self._withdraw(self)
        except BlockingIOError:
            return
        except framing.BrokenWire as error:
            self._end_with(_broken(error))
            return
        except OSError:
            alive = False
        if not alive:
            self._sent_all = True
            self._loop.remove_reader(self._sock.fileno())
            if self._is_gone():
                self.close()
                return
        self._next()

    def _is_gone(self) -> bool:
        """Return False for a client with only the sending direction closed, waiting for replies."""
        poll = select.poll()
        poll.register(self._sock.fileno(), 0)
        return bool(poll.poll(0))

    def _next(self) -> None:
        if self._gone or self._busy or self._out:
            return
        if not self._calls:
            if self._sent_all:
                self.close()
            return
        text, fds = self._calls.pop(0)
        try:
            message = checked(text)
        except framing.BrokenWire as error:
            framing.close(fds)
            self._end_with(_broken(error))
            return
        self._launching = message.get("method") == LAUNCH
        if self._launching and withdraws(self._calls):
            framing.close(fds)
            self._end_with(withdrawn())
            return
        self._busy = True
        self._take(self, message, fds)

    def _end_with(self, refused: Refused) -> None:
        """Send a last error, which the client gets only if there is room now, and close."""
        try:
            framing.send_some(self._sock, framing.encode(error_reply(refused)))
        except OSError:
            pass
        self.close()

    def answer(self, reply: Mapping[str, object], theirs: Sequence[int] = (), *, oneway: bool = False) -> None:
        """Answer the call under way; `theirs` go along, and are closed here."""
        self._busy = self._launching = self.withdraws = False
        if self._gone:
            framing.close(theirs)
            return
        if oneway:
            framing.close(theirs)
        else:
            self._out += framing.encode(reply)
            self._theirs += theirs
        self._flush()

    def _flush(self) -> None:
        try:
            while self._out:
                sent = framing.send_some(self._sock, self._out, self._theirs)
                framing.close(self._theirs)
                self._theirs = []
                del self._out[:sent]
        except BlockingIOError:
            if not self._waits:
                self._waits = True
                self._loop.add_writer(self._sock.fileno(), self._flush)
            return
        except OSError:
            self.close()
            return
        if self._waits:
            self._waits = False
            self._loop.remove_writer(self._sock.fileno())
        self._loop.call_soon(self._next)

    def close(self) -> None:
        """Close the connection."""
        if self._gone:
            return
        self._gone = True
        fd = self._sock.fileno()
        self._loop.remove_reader(fd)
        if self._waits:
            self._loop.remove_writer(fd)
        self._sock.close()
        framing.close(self._theirs)
        for _, fds in self._calls:
            framing.close(fds)
        self._calls.clear()
        self._inbox.close()
        self._on_leave(self)


def _broken(error: framing.BrokenWire) -> Refused:
    return Refused("InvalidRequest", str(error), parameter="")
