"""Viewers attached to a step over several nodes: each node shows the output of tasks there.

The agent of the viewer's node puts the output together. On a node, the process that copies the streams shows them to
the agent as to any viewer (`nodectl/launch/streams/viewers.py`). Packets bear the numbers of tasks in the whole step,
so they pass unchanged. Typed input goes to the node that has the terminal. Runs in both agents.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from nodectl.client.command import Failed
from nodectl.cluster.agent.channel import Channel
from nodectl.cluster.agent.post import Header, Key, Post
from nodectl.cluster.agent.relay import Relay
from nodectl.cluster.agent.watch import Watch
from nodectl.launch.streams.viewers import Viewer
from nodectl.model.wire import terminal_packets as packets
from nodectl.model.wire.names import NODE

if TYPE_CHECKING:
    from nodectl.cluster.agent.calls import Calls

Answer = Callable[[Mapping[str, object], list[int]], None]
_MOST = 32  # packets of typed input that the node may not have
_END = ""
_ONE_BYTE_EACH = "latin-1"


class _View:
    """A viewer of this node.

    `ranks`: of the step's nodes; `answer` is called once all have answered. `on_over` is called when the viewer has
    left, or all output has been shown.
    """

    def __init__(self, post: Post, number: int, key: Key, ranks: list[int], answer: Answer, over: Callable[[], None]):
        self._post = post
        self._number = number
        self._key = key
        self._answer: Answer | None = answer
        self._on_over = over
        self._waiting = set(ranks)
        self._open: dict[int, Channel] = {}
        self._terminal: tuple[int, int] | None = None  # rank of the node, and task
        self._refused: Mapping[str, object] | None = None
        ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._viewer = Viewer(ours.detach())
        self._sock = self._viewer.sock
        self._input = Watch(self._sock.fileno(), self._read)
        self._output = Watch(self._sock.fileno(), self._flush, writes=True)
        self._closed = False
        for rank in ranks:
            self.ask(rank)

    def ask(self, rank: int) -> None:
        """Ask a node to show the part there, also after a broken link."""
        if rank in self._waiting:
            self._post.send(rank, "view", {"id": self._number, "job": self._key[0], "step": self._key[1]})
        elif rank in self._open:
            self._open[rank].ask()

    def viewed(self, rank: int, header: Header) -> None:
        """Handle a node's answer: shown from now on, or refused."""
        if rank not in self._waiting:
            return
        self._waiting.discard(rank)
        if "error" in header:
            self._refused = self._refused or {"error": header["error"], "parameters": header["parameters"]}
        else:
            self._open[rank] = self._channel(rank)
            if header.get("terminal") is not None:
                self._terminal = rank, int(header["terminal"])
        self._settle()

    def _channel(self, rank: int) -> Channel:
        def send(header: Header) -> None:
            self._post.send(rank, "look", {"id": self._number, **header})

        return Channel(send, lambda said: self._take(rank, said))

    def _settle(self) -> None:
        if self._answer is not None and not self._waiting:
            answer, self._answer = self._answer, None
            if self._refused is not None and not self._open:
                answer(self._refused, [])
                self.close()
                return
            told = {} if self._terminal is None else {"terminal": self._terminal[1]}
            answer({"parameters": told}, [self._theirs.detach()])
            self._watch()
        if self._answer is None and not self._open and not self._viewer.unread:
            self.close()

    def heard(self, rank: int, header: Header) -> None:
        """Handle output shown by a node, or a confirmation of typed input."""
        channel = self._open.get(rank)
        if channel is None:
            self._post.send(rank, "look", {"id": self._number, "gone": True})
        elif header.get("gone"):
            self.over(rank)
        else:
            channel.hear(header)
            self._watch()

    def _take(self, rank: int, said: str) -> None:
        if said == _END:
            self.over(rank)
        else:
            self._show(said.encode(_ONE_BYTE_EACH))

    def over(self, rank: int, why: str = "") -> None:
        """Stop showing a node."""
        if why and (rank in self._open or rank in self._waiting):
            self._show(packets.packet(packets.NOTE, why.encode()))
        self._open.pop(rank, None)
        self._waiting.discard(rank)
        self._settle()

    def _show(self, packet: bytes) -> None:
        if self._closed:
            return
        try:
            self._viewer.add(packet)
        except OSError:
            self.leave()
            return
        self._watch()

    def _watch(self) -> None:
        """Wait until the viewer types or reads."""
        if self._closed:
            return
        typed = self._open.get(self._terminal[0]) if self._terminal is not None else None
        self._input.want(self._answer is None and (typed is None or typed.kept < _MOST))
        self._output.want(self._viewer.unread)

    def _read(self) -> None:
        try:
            typed = self._sock.recv(packets.HEAD + packets.LONGEST)
        except BlockingIOError:
            return
        except OSError:
            typed = b""
        if not typed:
            self.leave()
            return
        channel = self._open.get(self._terminal[0]) if self._terminal is not None else None
        if channel is not None:  # without a terminal it has no reader
            channel.say(typed.decode(_ONE_BYTE_EACH))
        self._watch()

    def _flush(self) -> None:
        try:
            self._viewer.flush()
        except OSError:
            self.leave()
            return
        self._watch()
        self._settle()

    def leave(self) -> None:
        """Tell the nodes to stop showing, since the viewer has left."""
        for channel in self._open.values():
            channel.say(_END)
        self.close()

    def close(self) -> None:
        """Close the view."""
        if self._closed:
            return
        self._closed = True
        self._open.clear()
        self._input.want(False)
        self._output.want(False)
        self._sock.close()
        self._theirs.close()
        self._on_over()


class Views:
    """All views of an agent: of viewers on this node, and of this node's parts for viewers elsewhere."""

    def __init__(self, post: Post, calls: "Calls") -> None:
        self._post = post
        self._calls = calls
        self._views: dict[int, _View] = {}
        self._number = 0
        self._shown: dict[tuple[int, int], tuple[Channel, Relay, Header]] = {}  # by rank and number
        self._opening: dict[tuple[int, int], asyncio.Task[None]] = {}

    def handlers(self) -> Mapping[str, Callable[[int, Header, bytes], None]]:
        """Return the handlers by kind of message."""
        return {"view": self._view, "viewed": self._viewed, "look": self._look, "seen": self._seen}

    # For viewers of this node.

    def open(self, key: Key, ranks: list[int], answer: Answer) -> None:
        """Open a view. `answer` gets the reply to View, and the descriptors sent along. Raises OSError."""
        self._number += 1
        number = self._number
        self._views[number] = _View(self._post, number, key, ranks, answer, lambda: self._forget(number))

    def _forget(self, number: int) -> None:
        self._views.pop(number, None)

    def _viewed(self, rank: int, header: Header, body: bytes) -> None:
        view = self._views.get(int(header["id"]))
        if view is not None:
            view.viewed(rank, header)
        elif "error" not in header:
            self._post.send(rank, "look", {"id": header["id"], "gone": True})

    def _seen(self, rank: int, header: Header, body: bytes) -> None:
        view = self._views.get(int(header["id"]))
        if view is not None:
            view.heard(rank, header)
        elif not header.get("gone"):  # otherwise two agents would answer each other for ever
            self._post.send(rank, "look", {"id": header["id"], "gone": True})

    # For viewers of other nodes.

    def _view(self, rank: int, header: Header, body: bytes) -> None:
        key = rank, int(header["id"])
        if key in self._shown:
            self._post.send(rank, "viewed", self._shown[key][2])
        elif key not in self._opening:
            task = self._opening[key] = asyncio.ensure_future(self._connect(key, header))
            task.add_done_callback(lambda _: self._opening.pop(key, None))

    async def _connect(self, key: tuple[int, int], header: Header) -> None:
        rank, number = key
        told: dict[str, object] = {"id": number}
        try:
            reply, (fd,) = await self._calls.ask("View", {"job": header["job"], "step": header["step"]})
        except Failed as failed:
            parameters = {"reason": str(failed), "exit_status": failed.status}
            told |= {"error": failed.name or f"{NODE}.InternalError", "parameters": parameters}
            self._post.send(rank, "viewed", told)
            return
        told["terminal"] = reply.get("terminal")
        channel = Channel(
            lambda said: self._post.send(rank, "seen", {"id": number, **said}),
            lambda said: relay.take(said),  # noqa: PLW0108  # there is none yet
            late=True,
        )
        relay = Relay(fd, channel, lambda: self._hide(key))
        self._shown[key] = channel, relay, told
        self._post.send(rank, "viewed", told)
        relay.begin()

    def _look(self, rank: int, header: Header, body: bytes) -> None:
        key = rank, int(header["id"])
        if header.get("gone"):
            self._hide(key)
        elif key not in self._shown:
            self._post.send(rank, "seen", {"id": header["id"], "gone": True})
        else:
            channel, relay, _ = self._shown[key]
            channel.hear(header)
            relay.begin()
            if relay.said_last and not channel.kept:
                self._hide(key)

    def _hide(self, key: tuple[int, int]) -> None:
        if (shown := self._shown.pop(key, None)) is not None:
            shown[1].close()

    # For both.

    def lost(self, rank: int, why: str) -> None:
        """Handle the final loss of a node."""
        for view in list(self._views.values()):
            view.over(rank, why)
        for key in [key for key in self._shown if key[0] == rank]:
            self._hide(key)

    def resumed(self, rank: int) -> None:
        """Ask a node for lost messages after a restored link."""
        for view in list(self._views.values()):
            view.ask(rank)
        for (viewer, _), (channel, _, _) in list(self._shown.items()):
            if viewer == rank:
                channel.ask()

    def close(self) -> None:
        """Close all views when the agent ends."""
        for task in list(self._opening.values()):
            task.cancel()
        for view in list(self._views.values()):
            view.close()
        for key in list(self._shown):
            self._hide(key)
