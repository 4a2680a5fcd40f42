"""The servers of remote nodes, for a step over several nodes: each server gets the data given by all.

The server of the step's first node, node 0, collects the shares of all nodes and sends the whole back. The agents
between the servers (`nodectl/cluster/agent/exchange.py`) keep nothing: after a broken link a server sends its share
again until it has the whole; node 0 keeps the last whole for that.

A letter goes from one server to another; node 0 passes on letters between other nodes. No server keeps letters: a
server that waits for an answer learns when a letter may have been lost, and asks again.
"""

import os
import select
import time
from collections import deque
from struct import Struct

from nodectl.model.mpi_frames import AGAIN, ALL, DATA, ENDED, BadFrame, FrameInbox, frame, head

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    Then = Callable[[bytes], None]

    class Reader(Protocol):
        """A receiver of letters."""

        def hear(self, node: int, letter: bytes) -> None:
            """Handle a letter from node `node`. Raises Apart for a malformed letter, TooMuch."""
            ...

        def ask_again(self) -> None:
            """Ask again: letters may have been lost in either direction."""
            ...


MOST_GATHERED = 64 << 20  # bytes of all nodes together
LONGEST_LETTER = 1 << 18
FIRST = 0  # the node that relays between all other nodes
_SHARE, _GONE, _LETTER, _LOST = b"S", b"G", b"L", b"A"
_PLACE = Struct(">cIQQ")  # the number of the gathering, the first byte's offset in the whole, the whole's length
_NODE = Struct(">ci")
_ADDRESS = Struct(">cII")  # of a letter: the nodes to which it goes and from which it comes
_PIECE = 1 << 18
_CHUNK = 1 << 16
_FLUSH_SECONDS = 4.0


class Apart(Exception):
    """Lost contact between the servers."""


class TooMuch(Exception):
    """The data of all nodes exceeds the limit."""


class Pieces:
    """A byte string received in pieces."""

    __slots__ = ("_data", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self._data = bytearray()

    def add(self, at: int, piece: bytes) -> None:
        """Add a piece if the piece follows directly. Drop a piece after a lost piece."""
        if at == len(self._data) and at + len(piece) <= self.total:
            self._data += piece

    @property
    def is_whole(self) -> bool:
        """True if all bytes have arrived."""
        return len(self._data) == self.total

    def __bytes__(self) -> bytes:
        return bytes(self._data)


class _Shares:
    """The shares of nodes in a gathering. A new start of a share replaces the node's earlier share."""

    __slots__ = ("_of", "_total", "whole")

    def __init__(self) -> None:
        self._of: dict[int, Pieces] = {}
        self._total = 0
        self.whole = 0  # shares that are complete

    def add(self, node: int, at: int, total: int, piece: bytes) -> None:
        """Add a piece of a share of `total` bytes. Raises TooMuch."""
        pieces = self._of.get(node)
        if at == 0:
            if pieces is not None:
                self._total -= pieces.total
                self.whole -= pieces.is_whole
            self._total += total
            self._of[node] = pieces = Pieces(total)
        elif pieces is None or pieces.is_whole:
            return
        if self._total > MOST_GATHERED:
            raise TooMuch
        pieces.add(at, piece)
        self.whole += pieces.is_whole

    def joined(self) -> bytes:
        """Return all shares joined, in the order of nodes."""
        return b"".join(bytes(pieces) for _, pieces in sorted(self._of.items()))


class Others:
    """The servers of the step's `count` nodes. This node is `node`.

    `fd` is the socket of this node's agent. `on_gone` is called once for each node whose server has gone, and with the
    server the node's tasks.
    """

    def __init__(self, fd: int, node: int, count: int, on_gone: "Callable[[int], None]") -> None:
        self.fd = fd
        self.node = node
        self.count = count
        self._on_gone = on_gone
        self._number = 0  # of the current gathering, or of the next one
        self._busy = False
        self._queue: deque[tuple[bytes, Then]] = deque()
        self._shares = _Shares()  # of all nodes at node 0; elsewhere only the whole
        self._last = b""  # the whole of the gathering before, at node 0
        self._gone: set[int] = set()
        self._reader: Reader | None = None
        self._inbox = FrameInbox()
        self._outbox: deque[memoryview] = deque()
        os.set_blocking(fd, False)

    def gather(self, data: bytes, then: "Then") -> None:
        """Give `data` to all nodes; call `then` with the data of all, in the order of nodes. Raises TooMuch.

        Gatherings run one after another.
        """
        if len(data) > MOST_GATHERED:
            raise TooMuch
        self._queue.append((data, then))
        if not self._busy:
            self._begin()

    @property
    def is_gathering(self) -> bool:
        """True while a gathering lacks data from some node."""
        return self._busy

    def _begin(self) -> None:
        self._busy = True
        data, _ = self._queue[0]
        if self.node != FIRST:
            self._send(FIRST, self._number, data)
            return
        self._add(FIRST, 0, len(data), data)

    def _add(self, node: int, at: int, total: int, piece: bytes) -> None:
        """At node 0: add a piece, and finish once all shares are whole. Raises TooMuch."""
        self._shares.add(node, at, total, piece)
        if self._shares.whole == self.count:
            self._last = self._shares.joined()
            self._send(ALL, self._number, self._last)
            self._finish(self._last)

    def _finish(self, whole: bytes) -> None:
        self._number += 1
        self._shares = _Shares()
        self._busy = False
        _, then = self._queue.popleft()
        then(whole)
        if self._queue and not self._busy:
            self._begin()

    # Reading.

    def read(self) -> None:
        """Read and handle available data. Raises Apart, TooMuch."""
        try:
            data = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            raise Apart from None
        if not data:
            raise Apart
        self._inbox.feed(data)
        try:
            while (one := self._inbox.next()) is not None:
                self._take(*one)
        except BadFrame:
            raise Apart from None

    def _take(self, node: int, kind: int, data: bytes) -> None:
        if not 0 <= node < self.count or node == self.node:
            raise BadFrame
        if kind == ENDED:
            self._lose(node)
        elif kind == AGAIN:
            self._repeat(node)
        elif data[:1] == _SHARE and len(data) >= _PLACE.size:
            _, number, at, total = _PLACE.unpack_from(data)
            (self._collect if self.node == FIRST else self._receive)(node, number, at, total, data[_PLACE.size :])
        elif data[:1] == _GONE and len(data) == _NODE.size:
            self._lose(_NODE.unpack(data)[1])
        elif self._reader is not None:
            self._take_letter(self._reader, node, data)
        else:
            raise BadFrame

    def _lose(self, node: int) -> None:
        if node in self._gone or node == self.node:
            return
        self._gone.add(node)
        if self.node == FIRST:
            self._say(ALL, _NODE.pack(_GONE, node))
        self._on_gone(node)

    def _repeat(self, node: int) -> None:
        if self._reader is not None:
            if self.node == FIRST:
                self._say(ALL, _LOST)  # letters between other nodes went this way, too
            self._reader.ask_again()
        if self.node == FIRST:
            if self._gone and self._number:
                self._send(node, self._number - 1, self._last)  # first: it answers the node's last wait
            for one in self._gone:
                self._say(node, _NODE.pack(_GONE, one))
        elif self._busy:
            self._send(FIRST, self._number, self._queue[0][0])

    def _collect(self, node: int, number: int, at: int, total: int, piece: bytes) -> None:
        if number == self._number - 1 and at == 0:
            self._send(node, number, self._last)  # the node has lost the whole
        elif number == self._number:
            self._add(node, at, total, piece)

    def _receive(self, node: int, number: int, at: int, total: int, piece: bytes) -> None:
        if number == self._number and self._busy:
            self._shares.add(node, at, total, piece)
            if self._shares.whole:
                self._finish(self._shares.joined())

    # Letters.

    def read_letters(self, reader: "Reader") -> None:
        """Pass letters to `reader`. Every server of a step calls this before reading anything."""
        self._reader = reader

    def write_letter(self, node: int, letter: bytes) -> None:
        """Send another node a letter of at most LONGEST_LETTER bytes."""
        self._pass_on(node, self.node, letter)

    def _pass_on(self, to: int, sender: int, letter: bytes) -> None:
        self._say(to if self.node == FIRST else FIRST, _ADDRESS.pack(_LETTER, to, sender) + letter)

    def _take_letter(self, reader: "Reader", node: int, data: bytes) -> None:
        """Deliver or pass on a letter. Raises BadFrame, and the reader's exceptions."""
        if data == _LOST and node == FIRST:
            reader.ask_again()
            return
        if data[:1] != _LETTER or not _ADDRESS.size <= len(data) <= _ADDRESS.size + LONGEST_LETTER:
            raise BadFrame
        _, to, sender = _ADDRESS.unpack_from(data)
        is_from_there = sender == node if self.node == FIRST else node == FIRST
        if max(to, sender) >= self.count or not is_from_there or sender in (to, self.node):
            raise BadFrame
        letter = data[_ADDRESS.size :]
        if to == self.node:
            reader.hear(sender, letter)
        elif self.node == FIRST:
            self._pass_on(to, sender, letter)
        else:
            raise BadFrame

    # Writing.

    def _send(self, node: int, number: int, data: bytes) -> None:
        """Queue a share or the whole, without a copy for each node."""
        view = memoryview(data)
        for at in range(0, len(data) or 1, _PIECE):
            place, piece = _PLACE.pack(_SHARE, number, at, len(data)), view[at : at + _PIECE]
            self._outbox.append(memoryview(head(node, DATA, len(place) + len(piece)) + place))
            if piece:
                self._outbox.append(piece)

    def _say(self, node: int, data: bytes) -> None:
        self._outbox.append(memoryview(frame(node, DATA, data)))

    def interest(self) -> int:
        """Return the events to wait for: poll(2)."""
        return select.POLLIN | (select.POLLOUT if self._outbox else 0)

    def write(self) -> None:
        """Write queued data, as far as the agent reads."""
        while self._outbox:
            try:
                count = os.write(self.fd, self._outbox[0])
            except BlockingIOError:
                return
            except OSError:
                self._outbox.clear()  # reading will report the end
                return
            if count < len(self._outbox[0]):
                self._outbox[0] = self._outbox[0][count:]
            else:
                self._outbox.popleft()

    def flush(self) -> None:
        """Write the remaining data at the end of the step: remote nodes may still wait for the data."""
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        until = time.monotonic() + _FLUSH_SECONDS
        self.write()
        while self._outbox and time.monotonic() < until:
            poll.poll(_FLUSH_SECONDS * 1000)
            self.write()
