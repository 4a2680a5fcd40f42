"""A part of a step: a step of the agent's own node, with the agent as client.

The part carries out the leader's orders and reports events to the leader; output goes to the client's agent, input
comes from there.
"""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nodectl.client.command import Failed
from nodectl.cluster.agent import stream_ends
from nodectl.cluster.agent.channel import Channel
from nodectl.cluster.agent.exchange import Seat
from nodectl.cluster.agent.feed import Intake
from nodectl.cluster.agent.messages import Reader, Writer
from nodectl.cluster.agent.outlets import Outlet, window_of
from nodectl.cluster.agent.post import Header, Key, Post
from nodectl.cluster.agent.relay import Relay
from nodectl.cluster.agent.unheard import remember
from nodectl.cluster.tree import LEADER
from nodectl.model.cpu_list import cpus_of, mask_of_list
from nodectl.model.states import CANCELLED, NODE_FAIL, TIMEOUT
from nodectl.model.wire.names import NODE, STEP
from nodectl.placement.binding.devices import OF_STEP, VISIBLE

if TYPE_CHECKING:
    from nodectl.cluster.agent.calls import Calls

OnOver = Callable[["Part", Mapping[str, object] | None], None]
_LONGEST_EVENT = 64 << 20
_MOST_ORDERS = 4 << 20
HANGUP = "hangup"
_FATAL = "fatal"
_OF_BULK = ("start", "tasks")
_GPUS = (*VISIBLE, *OF_STEP)
_ENDED_FOR_ALL = (CANCELLED, TIMEOUT)  # by an order: the parts of other nodes end, too


class Part:
    """A part of a step, from the order to the end.

    When nothing of it is left, `on_over` gets the final report for the leader, with the part's record; None where the
    part could not begin. `exchange`: the socket for its MPI server.
    """

    def __init__(self, post: Post, node: str, gateway: str, order: Header, on_over: OnOver, exchange: str) -> None:
        self.key: Key = (int(order["job"]), int(order["step"]))
        self.client: int | None = order.get("client")
        self.seat: Seat | None = None  # of a step over several nodes
        self._post = post
        self._node = node
        self._name = {"job": self.key[0], "step": self.key[1]}
        self._on_over = on_over
        self._part = {**order.get("whole", {}), **order["part"], **self._name}
        if "first" in order:
            self.seat = Seat(int(self._part["nodeid"]), int(order["first"]), self.is_joined)
            self._part["exchange"] = exchange
        request = order["request"]
        self._request = {
            **request,
            "environment": {**_with_gpus_of_here(request["environment"]), "NODECTL_SOCKET": gateway},
            "ntasks": len(self._part["masks"]),
            "part": self._part,
        }
        self._record: Mapping[str, object] | None = None
        self._outlets: dict[int, Outlet] = {}
        self._intake: Intake | None = None
        self._commands: Writer | None = None
        self._events: Reader | None = None
        self._looking: asyncio.Future[None] | None = None
        self._wanted: list[Mapping[str, object]] | None = []  # orders received before the begin
        self._given: OrderedDict[Key, None] = OrderedDict()  # orders received, by the caller's rank and number
        self.begun = self._over = False
        self._standing: dict[str, object] = {}  # sent to the leader with each report of this part
        self._relay: Relay | None = None  # of a step with a terminal
        self._has_terminal = self._takes_terminal()
        self._channel = Channel(
            lambda header: self._to_client("work", header), self._take_work, late=self._has_terminal
        )

    def _takes_terminal(self) -> bool:
        """Return whether the task with the terminal runs on this node.

        Otherwise remove `pty` from the request and close the streams of the local tasks.
        """
        if "pty" not in self._request:
            return False
        if int(self._request["pty"][0]) in cpus_of(mask_of_list(str(self._part["tasks"]))):
            return True
        del self._request["pty"]
        self._request |= dict.fromkeys(("stdin", "stdout", "stderr"), "none")
        return False

    def _take_work(self, said: Any) -> None:
        """Handle a message of the client's agent: an order about commands, or a packet for the terminal."""
        if self._relay is not None:
            self._relay.take(said)
        elif isinstance(said, dict):
            self.order(said)

    async def launch(self, calls: "Calls") -> None:
        """Launch the step on the own node, and report to the leader."""
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
        """Report to the leader a begun part, also for the second time."""
        if self.begun:
            self._tell("begun", self._standing)

    def is_joined(self) -> None:
        """Report a joined MPI server: from now on the step cannot go on without all nodes' parts."""
        self._standing["joined"] = True
        self.say_begun()

    def say_gone(self) -> None:
        """Report the end to the client's agent, which may move the commands meant for this node to different nodes."""
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

    # Events of the step.

    def _take_events(self, messages: list[Mapping[str, Any]]) -> None:
        events, work = [], []
        for message in messages:
            event = message.get("parameters", {}).get("event", {})
            if event.get("event") == "end":
                self._record = event["record"]
            elif event.get("event") == _FATAL:
                self._standing["fatal"] = [event["state"], event["reason"]]
                self.say_begun()
            elif event.get("event") in _OF_BULK and self._request.get("bulk"):
                work.append(event)
            elif event:
                events.append({**event, "node": self._node})
        if work:  # thousands a second, which the leader does not need
            self._channel.say(work)
        if events:
            self._tell("told", {"events": events})
        if self._record is not None:
            self._finish()

    def _gone(self, calls: "Calls") -> None:
        """Finish a part without a runner; without a record from the runner, ask the daemon for the record."""
        if self._record is None:
            self._looking = asyncio.ensure_future(self._look_up(calls))
            self._looking.add_done_callback(lambda _: self._finish())

    async def _look_up(self, calls: "Calls") -> None:
        try:
            reply, _ = await calls.ask("Wait", self._name)
            self._record = reply["record"]
        except (Failed, OSError, KeyError) as failed:
            reason = f"its runner and the daemon of {self._node} have gone: {failed}"
            self._record = {**self._name, "state": NODE_FAIL, "exit_status": 1, "reason": reason}

    def _finish(self) -> None:
        """Finish an ended part: send the rest of the output to the client, then report to the leader."""
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
        self._on_over(self, {"record": self._record, **self._standing})

    # Messages for the part.

    def is_new(self, by: Sequence[int] | None) -> bool:
        """Return whether an order came for the first time: the next leader repeats unanswered orders."""
        if by is None:
            return True
        rank, number = by
        is_new = (rank, number) not in self._given
        remember(self._given, (rank, number))
        return is_new

    def order(self, call: Mapping[str, Any]) -> None:
        """Carry out a call of org.nodectl.step from the client or the leader, or a hangup."""
        if self._wanted is not None:
            self._wanted.append(call)
        elif self._commands is None:
            return
        elif call["method"] == HANGUP:
            self.drop_output()
            self._commands.close()
        else:
            method = str(call["method"]).rpartition(".")[2]
            parameters = call.get("parameters") or {}
            self._commands.send({"method": f"{STEP}.{method}", "parameters": parameters, "oneway": True})

    def drop_output(self) -> None:
        """Drop the output for want of a reader."""
        for outlet in self._outlets.values():
            outlet.drop()
        if self._relay is not None:
            self._relay.close()
            self._relay = None
            self._settle()

    def heard(self, header: Header) -> None:
        """Handle a report of output taken by the client's agent."""
        if (outlet := self._outlets.get(int(header["fd"]))) is not None:
            outlet.heard(header)

    def take(self, header: Header, body: bytes) -> None:
        """Handle input from the client's agent."""
        if self._intake is not None:
            self._intake.take(header, body)

    def deal(self, header: Header) -> None:
        """Handle a message about commands or the terminal from the client's agent."""
        if header.get("gone"):
            self.drop_output()
            return
        self._channel.hear(header)
        if self._relay is not None:
            self._relay.begin()
            self._settle()

    def ask(self) -> None:
        """Report the present place of all streams after a broken link; the remote end reports too."""
        if self._request.get("bulk") or self._relay is not None:
            self._channel.ask()
        for outlet in self._outlets.values():
            outlet.ask()
        if self._intake is not None:
            self._intake.ask()


def _with_gpus_of_here(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with the GPU variables of this node.

    The client's variables name the GPUs of the client's node. Slurm has told the agent which GPUs the job has on this
    node.
    """
    here = {name: os.environ[name] for name in _GPUS if name in os.environ}
    if not here:
        return environment
    return {name: value for name, value in environment.items() if name not in _GPUS} | here
