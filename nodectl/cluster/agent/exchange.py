"""The messages between the MPI servers of a step's parts. Runs in the agents of the step's nodes.

The server of a part (`nodectl/mpi/others.py`) connects to the agent of its node, and names its step. The servers of all
nodes exchange messages only with the server of the step's first node. The agent keeps nothing except messages not yet
read by a server: where messages may have been lost, servers are told, and repeat them.
"""

import asyncio
import os
import socket
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nodectl.cluster.agent.messages import Writer
from nodectl.cluster.agent.post import Header, Key, LargePost
from nodectl.cluster.agent.watch import Watch
from nodectl.model import mpi_frames as frames
from nodectl.model.wire import framing

_BACKLOG = 512
_MOST_STRANGERS = 64  # connections without a step's name
_MOST_UNREAD = 128 << 20  # bytes; twice what all nodes of a step give each other at once
_MOST_REMEMBERED = 4096  # steps
_CHUNK = 65536
_FIRST = 0
_PAUSE = 0.1  # seconds, until descriptors may be free again
_KIND = "mpi"


class Seat(NamedTuple):
    """A part of a step over several nodes.

    `node`: the part's number among the nodes; `first`: the rank of the first node; `on_joined` is called when the
    part's MPI server has connected.
    """

    node: int
    first: int
    on_joined: Callable[[], None]


class _Server:
    """The connection of an MPI server."""

    def __init__(
        self, sock: socket.socket, take: Callable[["_Server", int, int, bytes], None], end: Callable[["_Server"], None]
    ) -> None:
        self.key: Key | None = None
        self._take = take
        self._end = end
        self._inbox = frames.FrameInbox()
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._over = False
        self.reads = False
        self._writer = Writer(os.dup(sock.fileno()), _MOST_UNREAD, self.close)
        self.go_on()

    def go_on(self) -> None:
        """Read the server's messages."""
        if not self.reads and not self._over:
            self.reads = True
            self._loop.add_reader(self._sock.fileno(), self.read)

    def pause(self) -> None:
        """Stop reading until `go_on`, since the mesh has no room."""
        if self.reads:
            self.reads = False
            self._loop.remove_reader(self._sock.fileno())

    def read(self) -> None:
        """Take the server's messages."""
        try:
            data = self._sock.recv(_CHUNK)
            self._inbox.feed(data)
            while not self._over and (one := self._inbox.next()) is not None:
                self._take(self, *one)
        except BlockingIOError:
            return
        except (OSError, frames.BadFrame):
            data = b""
        if not data:
            self.close()

    def put(self, node: int, kind: int, data: bytes = b"") -> None:
        """Send the server a message."""
        self._writer.put(frames.frame(node, kind, data))

    def close(self) -> None:
        """Close the connection."""
        if not self._over:
            self.pause()
            self._over = True
            self._writer.close()
            self._sock.close()
            self._end(self)


class _Place:
    """A running part. `ranks`: at the first node, the ranks by node of the senders."""

    __slots__ = ("had_server", "is_over", "ranks", "seat", "server")

    def __init__(self, seat: Seat, ranks: dict[int, int]) -> None:
        self.seat = seat
        self.ranks = ranks
        self.server: _Server | None = None
        self.had_server = False
        self.is_over = False

    @property
    def audience(self) -> list[int]:
        """The ranks to inform at the part's end: none where no server came here and none has asked for this part."""
        if self.seat.node == _FIRST:
            return list(self.ranks.values())
        return [self.seat.first] if self.had_server else []


class Exchange:
    """The socket at `path` for MPI servers, in a directory of the user's alone."""

    def __init__(self, post: LargePost, path: str) -> None:
        self.path = path
        self._post = post
        self._loop = asyncio.get_running_loop()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._arrivals = Watch(self._listener.fileno(), self._accept)
        self._later: asyncio.TimerHandle | None = None
        self._places: dict[Key, _Place] = {}
        self._strangers: dict[_Server, None] = {}  # without a step's name yet
        self._early: OrderedDict[Key, dict[int, int]] = OrderedDict()  # ranks of early messages, by node
        self._over: OrderedDict[Key, int] = OrderedDict()  # ended parts, with this node's number in each
        self._resuming: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Open the socket for servers. Raises OSError."""
        self._listener.bind(self.path)
        os.chmod(self.path, 0o600)
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        self._arrivals.want()

    def handlers(self) -> Mapping[str, Callable[[int, Header, bytes], None]]:
        """Return the handlers by kind of message."""
        return {_KIND: self._hear}

    # Parts of this node.

    def expect(self, key: Key, seat: Seat) -> None:
        """Expect the server of a beginning part."""
        self._places[key] = _Place(seat, self._early.pop(key, {}))

    def part_over(self, key: Key) -> None:
        """End a part, after the leader has been told.

        Only now are the other nodes told, which may then report that they waited for it. Messages from the part's
        server still go out.
        """
        place = self._places.get(key)
        if place is None:
            return
        if place.server is None and self._listener.fileno() >= 0:  # a part may end after `close`
            self._accept()  # the server may have connected in the same turn of the loop
            for server in list(self._strangers):
                server.read()
        place.is_over = True
        if place.server is None:
            self._end(key, place)

    def _end(self, key: Key, place: _Place) -> None:
        """Forget a part and tell the nodes concerned, since no server comes any more."""
        del self._places[key]
        self._over[key] = place.seat.node
        _bound(self._over)
        for rank in place.audience:
            self._tell_end(rank, key)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, ConnectionError):
                return  # no connection waits
            except OSError:
                self._arrivals.want(False)  # no descriptor is left; the connection waits
                self._later = self._loop.call_later(_PAUSE, self._arrivals.want)
                return
            self._welcome(sock)

    def _welcome(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        if framing.peer_of(sock).uid != os.geteuid():
            sock.close()
            return
        if len(self._strangers) >= _MOST_STRANGERS:
            oldest = next(iter(self._strangers))
            oldest.read()  # the server may have named its step meanwhile
            if oldest.key is None:
                oldest.close()
        try:
            self._strangers[_Server(sock, self._take, self._leave)] = None
        except OSError:
            sock.close()

    def _leave(self, server: _Server) -> None:
        self._strangers.pop(server, None)
        if (key := server.key) is not None:
            place = self._places[key]
            place.server = None
            if place.is_over:
                self._end(key, place)

    def _take(self, server: _Server, node: int, kind: int, data: bytes) -> None:
        """Pass on a message of this node's server. Raises BadFrame."""
        if server.key is None:
            self._greet(server, kind, data)
            return
        if kind != frames.DATA:
            raise frames.BadFrame
        place = self._places[server.key]
        header = {"job": server.key[0], "step": server.key[1], "node": place.seat.node}
        if place.seat.node != _FIRST:
            ranks = [place.seat.first]
        elif node == frames.ALL:
            ranks = list(place.ranks.values())
        else:
            ranks = [place.ranks[node]] if node in place.ranks else []
        if len(ranks) == 1:
            self._post.send(ranks[0], _KIND, header, data)
        elif ranks:
            self._post.send_each(_KIND, header, dict.fromkeys(ranks), data)
        crowded = next((rank for rank in ranks if not self._post.room(rank)), None)
        if crowded is not None and server.reads:
            server.pause()
            task = self._loop.create_task(self._go_on(server, crowded))
            self._resuming.add(task)
            task.add_done_callback(self._resuming.discard)

    async def _go_on(self, server: _Server, rank: int) -> None:
        await self._post.drained(rank)
        server.go_on()

    def _greet(self, server: _Server, kind: int, data: bytes) -> None:
        """Read the step's name from a new server. Raises BadFrame."""
        job, dot, step = data.partition(b".")
        if kind != frames.HELLO or not (dot and job.isdigit() and step.isdigit()) or len(data) > 32:
            raise frames.BadFrame
        key = int(job), int(step)
        place = self._places.get(key)
        if place is None or place.had_server:
            raise frames.BadFrame
        del self._strangers[server]
        server.key = key
        place.server, place.had_server = server, True
        place.seat.on_joined()
        for rank in place.ranks.values():
            self._tell(rank, key, {"node": place.seat.node, "again": True})

    # Other nodes.

    def _tell(self, rank: int, key: Key, told: Mapping[str, object]) -> None:
        self._post.send(rank, _KIND, {"job": key[0], "step": key[1], **told})

    def _tell_end(self, rank: int, key: Key) -> None:
        self._tell(rank, key, {"node": self._over[key], "ended": True})

    def _hear(self, sender: int, header: Header, body: bytes) -> None:
        key, node = (int(header["job"]), int(header["step"])), int(header["node"])
        place = self._places.get(key)
        if header.get("ended"):
            kind = frames.ENDED
        elif header.get("again"):
            kind = frames.AGAIN
        else:
            kind = frames.DATA
        if kind == frames.DATA and place is not None:
            place.ranks[node] = sender
        if place is not None and place.server is not None:
            place.server.put(node, kind, body)
        elif kind != frames.ENDED and key in self._over:
            self._tell_end(sender, key)
        elif kind == frames.DATA and place is None:
            self._early.setdefault(key, {})[node] = sender
            self._early.move_to_end(key)
            _bound(self._early)

    def resumed(self, rank: int) -> None:
        """Ask the servers at both ends of a restored link to repeat the relevant messages."""
        for key, place in list(self._places.items()):
            ranks = place.ranks if place.seat.node == _FIRST else {_FIRST: place.seat.first}
            for node in [node for node, one in ranks.items() if one == rank and place.server is not None]:
                self._tell(rank, key, {"node": place.seat.node, "again": True})
                if place.server is not None:
                    place.server.put(node, frames.AGAIN)

    def close(self) -> None:
        """Close the socket and all connections when the agent ends."""
        if self._later is not None:
            self._later.cancel()
        self._arrivals.want(False)
        self._listener.close()
        for server in [*(place.server for place in self._places.values()), *self._strangers]:
            if server is not None:
                server.close()
        for task in self._resuming:
            task.cancel()


def _bound(them: OrderedDict[Key, Any]) -> None:
    while len(them) > _MOST_REMEMBERED:
        them.popitem(last=False)
