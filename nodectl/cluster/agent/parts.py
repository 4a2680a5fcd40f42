"""All parts of steps on this node, and the messages for the parts from the leader and from agents of clients."""

import asyncio
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nodectl.client.command import Failed
from nodectl.cluster.agent.exchange import Exchange
from nodectl.cluster.agent.part import HANGUP, Part
from nodectl.cluster.agent.post import Header, Key, Post
from nodectl.cluster.tree import LEADER
from nodectl.model.wire.names import NODE

if TYPE_CHECKING:
    from nodectl.cluster.agent.calls import Calls

_MOST_TOLD = 65_536


class Parts:
    """All parts on this node.

    `calls` reaches the node's daemon; `gateway` is its socket, which tasks get in their environment; `exchange`
    passes on the messages of their MPI servers.
    """

    def __init__(self, post: Post, node: str, calls: "Calls", gateway: str, exchange: Exchange) -> None:
        self._post = post
        self._exchange = exchange
        self._gateway = gateway
        self._node = node
        self._calls = calls
        self._parts: dict[Key, Part] = {}
        self._told: OrderedDict[Key, Mapping[str, object]] = OrderedDict()  # ends that the leader may not know
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaves = False
        self._all_over = asyncio.Event()

    def handlers(self) -> Mapping[str, Callable[[int, Header, bytes], None]]:
        """Return the handlers by kind of message."""
        return {
            "start": self._start,
            "order": self._order,
            "over": self._forget,
            "more": self._more,
            "in": self._in,
            "deal": self._deal,
            "ask": self._ask,
        }

    def _start(self, sender: int, header: Header, body: bytes) -> None:
        name = {"job": header["job"], "step": header["step"]}
        try:
            part = Part(self._post, self._node, self._gateway, header, self._over, self._exchange.path)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            told = {"name": f"{NODE}.InternalError", "reason": f"no order of a part: {error!r}", "exit_status": 1}
            self._post.send(LEADER, "begun", {**name, "error": told})
            return
        if part.key in self._parts or part.key in self._told:
            return  # a restarted leader repeats the message
        self._parts[part.key] = part
        if part.seat is not None:
            self._exchange.expect(part.key, part.seat)
        self._spawn(part.launch(self._calls))

    def _over(self, part: Part, told: Mapping[str, object] | None) -> None:
        self._parts.pop(part.key, None)
        part.say_gone()
        if told is not None and not self._leaves:
            self._told[part.key] = told
            while len(self._told) > _MOST_TOLD:
                self._told.popitem(last=False)
            self._tell_end(part.key)
        self._exchange.part_over(part.key)
        self._look()

    def _tell_end(self, key: Key) -> None:
        self._post.send(LEADER, "ended", {"job": key[0], "step": key[1], **self._told[key]})

    def _forget(self, sender: int, header: Header, body: bytes) -> None:
        """Forget a part, since the leader has the record of the whole step."""
        self._told.pop((int(header["job"]), int(header["step"])), None)

    def _of(self, header: Header) -> Part | None:
        return self._parts.get((int(header["job"]), int(header["step"])))

    def tell_all(self, sender: int, header: Header, body: bytes) -> None:
        """Report all parts to a leader, which may have missed messages or be new."""
        for key in self._told:
            self._tell_end(key)
        for part in self._parts.values():
            part.say_begun()
        self._post.send(LEADER, "here", {"steps": [list(key) for key in self._parts], "token": header["token"]})

    def _order(self, sender: int, header: Header, body: bytes) -> None:
        if (part := self._of(header)) is not None and part.is_new(header.get("by")):
            part.order(header["call"])

    def _more(self, sender: int, header: Header, body: bytes) -> None:
        if (part := self._of(header)) is not None and part.client == sender:
            part.heard(header)

    def _in(self, sender: int, header: Header, body: bytes) -> None:
        part = self._of(header)
        if part is None:
            name = {"job": header["job"], "step": header["step"]}
            self._post.send(sender, "took", {**name, "bytes": 0, "closed": True})
        elif part.client == sender:
            part.take(header, body)

    def _deal(self, sender: int, header: Header, body: bytes) -> None:
        part = self._of(header)
        if part is not None and part.client == sender:
            part.deal(header)
        elif part is None and not header.get("gone"):  # never answered
            name = {"job": header["job"], "step": header["step"]}
            self._post.send(sender, "work", {**name, "heard": 0, "gone": True})

    def _ask(self, sender: int, header: Header, body: bytes) -> None:
        self._spawn(self._answer(sender, header))

    async def _answer(self, sender: int, header: Header) -> None:
        try:
            reply, fds = await self._calls.ask(str(header["method"]), header.get("parameters") or {})
        except Failed as failed:
            told: Mapping[str, object] = {
                "error": failed.name or f"{NODE}.InternalError",
                "parameters": {"reason": str(failed), "exit_status": failed.status},
            }
        else:
            for fd in fds:
                os.close(fd)
            told = {"parameters": reply}
        self._post.send(sender, "answer", {"id": header["id"], **told})

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            print(f"nodectl agent: {error!r}", file=sys.stderr)

    def lost(self, rank: int) -> None:
        """Drop the output for clients on a lost node. The leader ends the steps."""
        for part in list(self._parts.values()):
            if part.client == rank:
                part.drop_output()

    def resumed(self, rank: int) -> None:
        """Exchange lost messages with the agent of a client after a restored link."""
        for part in list(self._parts.values()):
            if part.client == rank:
                part.ask()

    def _look(self) -> None:
        if self._leaves and not self._parts:
            self._all_over.set()

    async def over(self) -> None:
        """Wait, after `close`, for the end of all parts."""
        await self._all_over.wait()

    def close(self) -> None:
        """End all parts with the agent: to the leader the parts are lost, not ended."""
        self._leaves = True
        self._look()
        for part in list(self._parts.values()):
            part.order({"method": HANGUP})
