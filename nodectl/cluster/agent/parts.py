"""Parts of steps: each is a step of the agent's own node, whose client the agent is. What the leader orders is done
there, what happens there is told to the leader; output goes to the client's agent, input comes from there.
"""

import asyncio
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nodectl.client.command import Failed
from nodectl.cluster.agent import stream_ends
from nodectl.cluster.agent.channel import Channel
from nodectl.cluster.agent.feed import Intake
from nodectl.cluster.agent.messages import Reader, Writer
from nodectl.cluster.agent.outlets import Outlet, window_of
from nodectl.cluster.agent.post import Header, Key, Post
from nodectl.cluster.agent.relay import Relay
from nodectl.cluster.tree import LEADER
from nodectl.model.cpu_list import cpus_of, mask_of_list
from nodectl.wire.names import NODE, STEP

if TYPE_CHECKING:
    from nodectl.cluster.agent.calls import Calls

OnOver = Callable[["Part", Mapping[str, object] | None], None]
_LONGEST_EVENT = 64 << 20
_MOST_ORDERS = 4 << 20
_MOST_TOLD = 65_536
_HANGUP = "hangup"
_OF_BULK = ("start", "tasks")
_ENDED_FOR_ALL = ("CANCELLED", "TIMEOUT")  # by an order: on the other nodes it ends, too


class Part:
    """One part, from its order to its record, None where it could not begin, which `on_over` is told when nothing of it
    is left.
    """

    def __init__(self, post: Post, node: str, door: str, order: Header, on_over: OnOver) -> None:
        self.key: Key = (int(order["job"]), int(order["step"]))
        self.client: int | None = order.get("client")
        self._post = post
        self._node = node
        self._name = {"job": self.key[0], "step": self.key[1]}
        self._on_over = on_over
        self._part = {**order.get("whole", {}), **order["part"], **self._name}
        request = order["request"]
        self._request = {
            **request,
            "environment": {**request["environment"], "NODECTL_SOCKET": door},
            "ntasks": len(self._part["masks"]),
            "part": self._part,
        }
        self._record: Mapping[str, object] | None = None
        self._outlets: dict[int, Outlet] = {}
        self._intake: Intake | None = None
        self._commands: Writer | None = None
        self._events: Reader | None = None
        self._looking: asyncio.Future[None] | None = None
        self._wanted: list[Mapping[str, object]] | None = []  # orders that came before it had begun
        self.begun = self._over = False
        self._relay: Relay | None = None  # of a step with a terminal
        self._has_terminal = self._takes_terminal()
        self._channel = Channel(
            lambda header: self._to_client("work", header), self._take_work, late=self._has_terminal
        )

    def _takes_terminal(self) -> bool:
        """Whether the task is here that has it; else those that are here have nothing to read, and nobody to tell."""
        if "pty" not in self._request:
            return False
        if int(self._request["pty"][0]) in cpus_of(mask_of_list(str(self._part["tasks"]))):
            return True
        del self._request["pty"]
        self._request |= dict.fromkeys(("stdin", "stdout", "stderr"), "none")
        return False

    def _take_work(self, said: Any) -> None:
        """What the client's agent has said: an order about commands, a packet for the terminal."""
        if self._relay is not None:
            self._relay.take(said)
        elif isinstance(said, dict):
            self.order(said)

    async def launch(self, calls: "Calls") -> None:
        """Has it started, and says so to the leader."""
        theirs: list[int] = []
        ours: list[int] = []
        try:
            theirs, ours = (
                stream_ends.of_terminal() if self._has_terminal else stream_ends.pipes(wanted=self.client is not None)
            )
            _, (events, commands) = await calls.ask("Launch", {"request": self._request}, theirs)
        except (Failed, OSError) as why:
            for fd in ours:
                os.close(fd)
            failed = why if isinstance(why, Failed) else Failed(f"{self._node}: its streams: {why.strerror}")
            error = {"name": failed.name or f"{NODE}.InternalError", "reason": str(failed)}
            self._tell("begun", {"error": {**error, "exit_status": failed.status}})
            self._on_over(self, None)
            return
        finally:
            for fd in theirs:
                os.close(fd)
        self.begun = True
        self._commands = Writer(commands, _MOST_ORDERS, lambda: None)
        self._events = Reader(events, _LONGEST_EVENT, self._take_events, lambda: self._gone(calls))
        if self._has_terminal:
            self._relay = Relay(ours[0], self._channel, lambda: None)
            self._channel.say(None)
            self._relay.begin()
        elif ours:
            self._intake = Intake(ours[0], lambda told: self._to_client("took", told))
            window = window_of(int(self._part.get("nnodes", 1)))
            for number in (1, 2):
                self._outlets[number] = Outlet(
                    ours[number], self._sender(number), window, self._settle,
                    labelled=bool(self._request.get("label")),
                )  # fmt: skip
        self.say_begun()
        wanted, self._wanted = self._wanted, None
        for call in wanted or ():
            self.order(call)

    def say_begun(self) -> None:
        """To the leader, also for the second time."""
        if self.begun:
            self._tell("begun", {})

    def say_gone(self) -> None:
        """To the client's agent, where others may have the commands that were for here."""
        if self._request.get("bulk") and not (self._record and self._record.get("state") in _ENDED_FOR_ALL):
            self._to_client("work", {"heard": 0, "gone": True})

    def _sender(self, number: int) -> Callable[[Mapping[str, object], bytes], None]:
        name = {**self._name, "fd": number}

        def send(header: Mapping[str, object], body: bytes) -> None:
            if self.client is not None:
                self._post.send(self.client, "out", {**name, **header}, body)

        return send

    def _to_client(self, kind: str, told: Mapping[str, object]) -> None:
        if self.client is not None:
            self._post.send(self.client, kind, {**self._name, **told})

    def _tell(self, kind: str, told: Mapping[str, object]) -> None:
        self._post.send(LEADER, kind, {**self._name, **told})

    # What the step says.

    def _take_events(self, messages: list[Mapping[str, Any]]) -> None:
        events, work = [], []
        for message in messages:
            event = message.get("parameters", {}).get("event", {})
            if event.get("event") == "end":
                self._record = event["record"]
            elif event.get("event") in _OF_BULK and self._request.get("bulk"):
                work.append(event)
            elif event:
                events.append({**event, "node": self._node})
        if work:  # thousands a second, of which the leader has to know nothing
            self._channel.say(work)
        if events:
            self._tell("told", {"events": events})
        if self._record is not None:
            self._finish()

    def _gone(self, calls: "Calls") -> None:
        """Its runner says nothing more: where it has not said what became of the step, the daemon knows."""
        if self._record is None:
            self._looking = asyncio.ensure_future(self._look_up(calls))
            self._looking.add_done_callback(lambda _: self._finish())

    async def _look_up(self, calls: "Calls") -> None:
        try:
            reply, _ = await calls.ask("Wait", self._name)
            self._record = reply["record"]
        except (Failed, OSError, KeyError) as failed:
            reason = f"its runner and the daemon of {self._node} have gone: {failed}"
            self._record = {**self._name, "state": "NODE_FAIL", "exit_status": 1, "reason": reason}

    def _finish(self) -> None:
        """It has ended: what is in its pipes still goes to the client before the leader is told."""
        if self._intake is not None:
            self._intake.close(told=True)
        for outlet in self._outlets.values():
            outlet.finish()
        if self._relay is not None:
            self._relay.finish()
        self._settle()

    def _settle(self) -> None:
        if self._over or self._record is None or not all(outlet.over for outlet in self._outlets.values()):
            return
        if self._relay is not None and self._channel.kept:
            return
        self._over = True
        if self._events is not None:
            self._events.close()
        if self._commands is not None:
            self._commands.close()
        self._on_over(self, self._record)

    # What others say.

    def order(self, call: Mapping[str, Any]) -> None:
        """A call of org.nodectl.step from the client or the leader, or the end of whoever would call."""
        if self._wanted is not None:
            self._wanted.append(call)
        elif self._commands is None:
            return
        elif call["method"] == _HANGUP:
            self.drop_output()
            self._commands.close()
        else:
            method = str(call["method"]).rpartition(".")[2]
            parameters = call.get("parameters") or {}
            self._commands.send({"method": f"{STEP}.{method}", "parameters": parameters, "oneway": True})

    def drop_output(self) -> None:
        """Nobody reads it any more."""
        for outlet in self._outlets.values():
            outlet.drop()
        if self._relay is not None:
            self._relay.close()
            self._relay = None
            self._settle()

    def heard(self, header: Header) -> None:
        """The client's agent has taken output."""
        if (outlet := self._outlets.get(int(header["fd"]))) is not None:
            outlet.heard(header)

    def take(self, header: Header, body: bytes) -> None:
        """Input from there."""
        if self._intake is not None:
            self._intake.take(header, body)

    def deal(self, header: Header) -> None:
        """Commands for a bulk step."""
        if header.get("gone"):
            self.drop_output()
            return
        self._channel.hear(header)
        if self._relay is not None:
            self._relay.begin()
            self._settle()

    def ask(self) -> None:
        """A link was broken: both ends say where they stand."""
        if self._request.get("bulk") or self._relay is not None:
            self._channel.ask()
        for outlet in self._outlets.values():
            outlet.ask()
        if self._intake is not None:
            self._intake.ask()


class Parts:
    """All parts on this node. `calls` reaches its daemon; `door` is the socket that tasks are told of."""

    def __init__(self, post: Post, node: str, calls: "Calls", door: str) -> None:
        self._post = post
        self._door = door
        self._node = node
        self._calls = calls
        self._parts: dict[Key, Part] = {}
        self._told: OrderedDict[Key, Mapping[str, object]] = OrderedDict()  # records that the leader may not have
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaves = False

    def handlers(self) -> Mapping[str, Callable[[int, Header, bytes], None]]:
        """By kind of message."""
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
        del sender, body
        name = {"job": header["job"], "step": header["step"]}
        try:
            part = Part(self._post, self._node, self._door, header, self._over)
        except (KeyError, TypeError, ValueError) as error:
            told = {"name": f"{NODE}.InternalError", "reason": f"no order of a part: {error!r}", "exit_status": 1}
            self._post.send(LEADER, "begun", {**name, "error": told})
            return
        if part.key in self._parts or part.key in self._told:
            return  # a leader that was started again asks for what is there
        self._parts[part.key] = part
        self._spawn(part.launch(self._calls))

    def _over(self, part: Part, record: Mapping[str, object] | None) -> None:
        self._parts.pop(part.key, None)
        part.say_gone()
        if record is not None and not self._leaves:
            self._told[part.key] = record
            while len(self._told) > _MOST_TOLD:
                self._told.popitem(last=False)
            self._tell_end(part.key)

    def _tell_end(self, key: Key) -> None:
        self._post.send(LEADER, "ended", {"job": key[0], "step": key[1], "record": self._told[key]})

    def _forget(self, sender: int, header: Header, body: bytes) -> None:
        """The leader has the record of the whole step."""
        del sender, body
        self._told.pop((int(header["job"]), int(header["step"])), None)

    def _of(self, header: Header) -> Part | None:
        return self._parts.get((int(header["job"]), int(header["step"])))

    def tell_all(self, sender: int, header: Header, body: bytes) -> None:
        """To a leader that asks: it may have missed something, or be another one."""
        del sender, body
        for key in self._told:
            self._tell_end(key)
        for part in self._parts.values():
            part.say_begun()
        self._post.send(LEADER, "here", {"steps": [list(key) for key in self._parts], "token": header["token"]})

    def _order(self, sender: int, header: Header, body: bytes) -> None:
        del sender, body
        if (part := self._of(header)) is not None:
            part.order(header["call"])

    def _more(self, sender: int, header: Header, body: bytes) -> None:
        del body
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
        del body
        part = self._of(header)
        if part is not None and part.client == sender:
            part.deal(header)
        elif part is None and not header.get("gone"):  # to which nobody answers
            name = {"job": header["job"], "step": header["step"]}
            self._post.send(sender, "work", {**name, "heard": 0, "gone": True})

    def _ask(self, sender: int, header: Header, body: bytes) -> None:
        del body
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
        """A node is gone for good: nobody reads there what tasks here write. The leader ends what has to end."""
        for part in list(self._parts.values()):
            if part.client == rank:
                part.drop_output()

    def resumed(self, rank: int) -> None:
        """The way to a node was broken, and is whole again."""
        for part in list(self._parts.values()):
            if part.client == rank:
                part.ask()

    def close(self) -> None:
        """The agent ends, and so do its parts: for the leader they are lost with it, not over."""
        self._leaves = True
        for part in list(self._parts.values()):
            part.order({"method": _HANGUP})
