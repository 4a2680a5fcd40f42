"""The steps launched by clients of this node. Runs in the client's agent.

The messages of all nodes about a step come together here, and go on to the client as from a single node.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nodectl.cluster.agent.channel import Channel
from nodectl.cluster.agent.dispatcher import Dispatcher
from nodectl.cluster.agent.early import EarlyMessages
from nodectl.cluster.agent.feed import Feed
from nodectl.cluster.agent.inlets import Inlet
from nodectl.cluster.agent.messages import Reader, Writer
from nodectl.cluster.agent.outlets import window_of
from nodectl.cluster.agent.post import Header, Key, Post
from nodectl.cluster.agent.relay import Relay
from nodectl.cluster.agent.sinks import Sink, is_null, is_same
from nodectl.cluster.agent.unheard import Unheard, remember
from nodectl.cluster.tree import LEADER
from nodectl.launch.stepd.bulk_commands import BadCommand
from nodectl.model.wire import framing
from nodectl.model.wire.dispatch import Refused, error_reply, invalid
from nodectl.model.wire.names import STEP
from nodectl.model.wire.shape import BadShape, Optional, boolean, check, integer

if TYPE_CHECKING:
    from nodectl.model.wire.shape import Shape

_OF_BULK = ("Run", "NoMore", "Withdraw")
# Orders kept until the leader has confirmed them; nothing of unbounded length is kept.
_ORDERS: "Mapping[str, Shape]" = {"Signal": {"signal": integer(1, 64), "forwarded": Optional(boolean)}, "End": {}}
_MOST_UNREAD = 4 << 20  # bytes of events
# For commands: while the client is busy, more may begin and end than the dispatcher may keep.
_MOST_UNREAD_OF_BULK = 512 << 20
_LONGEST_ORDER = 1 << 20


class Launched:
    """A step launched by a client of this node.

    `fds`: the client's streams, closed here; empty where it gave none. `ranks`: of the step's nodes. `unheard` passes
    the client's orders to the leader; `on_over` is called when nothing of the step is left here.
    """

    def __init__(
        self, post: Post, key: Key, fds: Sequence[int], ranks: Sequence[int], unheard: Unheard,
        on_over: Callable[["Launched"], None], *, reads: bool, bulk: bool = False, pty: bool = False,
    ) -> None:  # fmt: skip
        self.key = key
        self._post = post
        self._name = {"job": key[0], "step": key[1]}
        self._ranks = ranks
        self._unheard = unheard
        self._on_over = on_over
        self._over = False
        self._ended = False
        self._last: Mapping[str, object] | None = None  # the end event, while it waits for the terminal
        self._feed: Feed | None = None
        self._inlets: dict[tuple[int, int], Inlet] = {}
        self._sinks: dict[int, Sink] = {}
        self._channels: dict[int, Channel] = {}  # of a bulk step
        self._dispatcher = Dispatcher(ranks, self._call, self._tell_work) if bulk else None
        theirs, self._events, self._commands = self._pipes(_MOST_UNREAD_OF_BULK if bulk else _MOST_UNREAD)
        self.theirs: list[int] = theirs
        self._relay_fd = -1
        self._relay: Relay | None = None  # of a step with a terminal
        self._relayed = False
        if fds and pty:
            self._relay_fd = fds[0]
            framing.close(fds[1:])
        elif fds:
            self._take_streams(*fds, reads=reads)

    def _pipes(self, most: int) -> tuple[list[int], Writer, Reader]:
        """Return the client's ends of two pipes, with writer and reader. `most`: the limit of unread event bytes."""
        events, tells = os.pipe2(os.O_CLOEXEC)
        try:
            hears, commands = os.pipe2(os.O_CLOEXEC)
        except OSError:
            framing.close([events, tells])
            raise
        writer = Writer(tells, most, self.hang_up)
        return [events, commands], writer, Reader(hears, _LONGEST_ORDER, self._obey, self.hang_up)

    def _take_streams(self, stdin: int, stdout: int, stderr: int, *, reads: bool) -> None:
        self._sinks[1] = Sink(stdout)
        self._sinks[2] = self._sinks[1]
        if is_same(stdout, stderr):
            os.close(stderr)
        else:
            self._sinks[2] = Sink(stderr)
        if not reads or is_null(os.fstat(stdin)):
            os.close(stdin)
            stdin = -1
        if reads:
            self._feed = Feed(stdin, self._ranks, self._give)

    def _give(self, ranks: Iterable[int], header: Mapping[str, object], data: bytes) -> None:
        self._post.send_each("in", {**self._name, **header}, dict.fromkeys(ranks), data)

    # Calls of the client.

    def _obey(self, messages: list[Mapping[str, Any]]) -> None:
        for message in messages:
            method, parameters = str(message.get("method", "")), message.get("parameters") or {}
            interface, _, word = method.rpartition(".")
            refused = None
            if interface != STEP or word not in (*_ORDERS, *_OF_BULK):
                refused = Refused(
                    "org.varlink.service.MethodNotFound", f"no method {method[:128]}", method=method[:256]
                )
            elif word in _ORDERS:
                refused = self._order(word, parameters)
            elif not isinstance(parameters, dict):
                refused = invalid("parameters", "not an object")
            else:
                refused = self._dispatch(word, parameters)
            if not message.get("oneway"):
                self._events.send(error_reply(refused) if refused else {"parameters": {}})

    def _order(self, method: str, parameters: object) -> Refused | None:
        try:
            self._unheard.order(self.key, method, check(parameters, _ORDERS[method]))
        except BadShape as error:
            return Refused("org.varlink.service.InvalidParameter", str(error), parameter=error.parameter)
        return None

    def _dispatch(self, method: str, parameters: Mapping[str, Any]) -> Refused | None:
        """Handle a call about commands of a bulk step. A bad command ends the step."""
        if self._dispatcher is None:
            return Refused("org.nodectl.step.WrongState", "it is no step for commands")
        try:
            self._dispatcher.call(method, parameters)
        except BadCommand as error:
            self._events.send({"parameters": {"event": {"event": "message", "text": f"nodectl: error: {error}"}}})
            self._unheard.order(self.key, "End", {})
        return None

    def _channel(self, rank: int) -> Channel:
        """Return the channel to the part on a node."""
        if rank not in self._channels:

            def send(header: Header) -> None:
                self._post.send(rank, "deal", {**self._name, **header})

            late = self._dispatcher is None  # a terminal
            self._channels[rank] = Channel(send, lambda said: self._heard(rank, said), late=late)
        return self._channels[rank]

    def _call(self, rank: int, method: str, parameters: Mapping[str, object]) -> None:
        """Send a call to the part on a node."""
        self._channel(rank).say({"method": method, "parameters": parameters})

    def _heard(self, rank: int, said: Any) -> None:
        """Handle events about commands, or a packet of the terminal. The first packet announces the terminal."""
        if self._dispatcher is not None:
            for event in said:
                self._dispatcher.heard(rank, event)
            return
        if self._relay is None and self._relay_fd >= 0:
            self._relay, self._relay_fd = Relay(self._relay_fd, self._channel(rank), self._flushed), -1
            self._relay.begin()
        if self._relay is not None:
            self._relay.take(said)

    def _flushed(self) -> None:
        """Send the pending end event, after the last output of the terminal has reached the client."""
        self._relayed = True
        if self._last is not None:
            self._tell_end(self._last)

    def _tell_work(self, event: Mapping[str, object]) -> None:
        self._events.send({"parameters": {"event": event}, "continues": True})

    def work(self, rank: int, header: Header) -> None:
        """Handle a message about commands or the terminal on a node, or the end of such messages."""
        if header.get("gone"):
            if self._dispatcher is not None:
                self._dispatcher.lost(rank, "its step runner has ended")
            return
        self._channel(rank).hear(header)
        if self._relay is not None:
            self._relay.begin()

    def hang_up(self) -> None:
        """End the step of a disconnected client."""
        if self._over:
            return
        if not self._ended:
            self._unheard.hang_up(self.key)
        self._close()

    def _close(self) -> None:
        self._over = True
        if self._feed is not None:
            self._feed.close()
        self._commands.close()
        self._events.close()
        for sink in self._sinks.values():
            sink.close()
        self._close_relay()
        self._on_over(self)

    def _close_relay(self) -> None:
        if self._relay is not None:
            self._relay.close()
        if self._relay_fd >= 0:
            os.close(self._relay_fd)
            self._relay_fd = -1

    # Messages of nodes and the leader.

    def output(self, rank: int, header: Header, body: bytes) -> None:
        """Handle output of the step."""
        fd = int(header["fd"])
        if fd in self._sinks:
            self._inlet(rank, fd).take(header, body)
        else:
            self._post.send(rank, "more", {**self._name, "fd": fd, "gone": True})

    def _inlet(self, rank: int, fd: int) -> Inlet:
        if (rank, fd) not in self._inlets:
            name = {**self._name, "fd": fd}

            def answer(told: Header) -> None:
                self._post.send(rank, "more", {**name, **told})

            self._inlets[rank, fd] = Inlet(self._sinks[fd], answer, window_of(len(self._ranks)))
        return self._inlets[rank, fd]

    def took(self, rank: int, header: Header) -> None:
        """Handle a node's report of input taken by tasks."""
        if self._feed is not None:
            self._feed.heard(rank, header)

    def lost(self, rank: int, why: str) -> None:
        """Handle the final loss of a node."""
        if self._feed is not None:
            self._feed.forget(rank)
        if self._dispatcher is not None and rank in self._ranks:
            self._dispatcher.lost(rank, why)

    def missed(self, rank: int) -> None:
        """Ask a node to repeat messages sent before the step was known here, some of which were dropped."""
        for fd in self._sinks:
            self._inlet(rank, fd)
        if self._dispatcher is not None or not self._sinks:  # messages about commands, or of a terminal
            self._channel(rank)
        self.resumed(rank)

    def resumed(self, rank: int) -> None:
        """Ask a node for lost messages after a restored link."""
        for (of, _), inlet in list(self._inlets.items()):
            if of == rank:
                inlet.ask()
        if rank in self._channels:
            self._channels[rank].ask()
        if self._feed is not None:
            self._feed.resumed(rank)

    def events(self, events: Sequence[Mapping[str, object]]) -> None:
        """Pass on events of the leader; the end event waits for the output."""
        for event in events:
            if self._ended:
                return
            if event.get("event") != "end":
                self._events.send({"parameters": {"event": event}, "continues": True})
                continue
            self._ended = True
            if self._feed is not None:
                self._feed.close()
            self._flush({*self._sinks.values()}, event)

    def _flush(self, sinks: set[Sink], event: Mapping[str, object]) -> None:
        """Send the end event when all output has gone."""
        if not sinks:
            # A node with the terminal sends its last packet before its part ends; a node that has not is lost.
            if self._relay is None or self._relayed or not self._relay.heard_last:
                self._tell_end(event)
            else:
                self._last = event
            return
        sink = sinks.pop()
        sink.flush(lambda: self._flush(sinks, event))

    def _tell_end(self, event: Mapping[str, object]) -> None:
        if self._over:
            return
        self._over = True
        self._close_relay()
        self._events.send({"parameters": {"event": event}}, last=True)
        self._commands.close()
        self._on_over(self)


class LaunchedSteps:
    """All steps launched by clients of this node."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._steps: dict[Key, Launched] = {}
        self._early = EarlyMessages(self._refuse)
        self._gone: OrderedDict[Key, None] = OrderedDict()
        self._unheard = Unheard(post)

    def handlers(self) -> Mapping[str, Callable[[int, Header, bytes], None]]:
        """Return the handlers by kind of message."""
        return {
            "out": self._out, "took": self._took, "event": self._event, "work": self._work,
            "ordered": self._unheard.heard,
        }  # fmt: skip

    def expect(self, is_awaited: Callable[[], bool]) -> None:
        """Set `is_awaited`: whether a launch waits for an answer. Early messages may be for such a launch."""
        self._early.is_awaited = is_awaited

    def add(self, key: Key, fds: Sequence[int], ranks: Sequence[int], *, reads: bool, **of_kind: bool) -> list[int]:
        """Add a launched step; return the client's ends of two pipes, for the caller to close.

        Raises OSError, and then has not closed `fds`.
        """
        step = Launched(self._post, key, fds, ranks, self._unheard, self._over, reads=reads, **of_kind)
        self._steps[key] = step
        self._gone.pop(key, None)
        kept, missed = self._early.take(key)
        for kind, rank, header, body in kept:
            self.handlers()[kind](rank, header, body)
        for rank in missed - {LEADER}:
            step.missed(rank)
        if LEADER in missed:
            self._post.send(LEADER, "again", {"steps": [list(key)]})
        return step.theirs

    def decline(self, key: Key) -> None:
        """End a step which has begun, but cannot be given to the client."""
        remember(self._gone, key)
        self._unheard.hang_up(key)

    def _over(self, step: Launched) -> None:
        self._steps.pop(step.key, None)
        remember(self._gone, step.key)

    def _out(self, rank: int, header: Header, body: bytes) -> None:
        key = int(header["job"]), int(header["step"])
        if (step := self._steps.get(key)) is not None:
            step.output(rank, header, body)
        elif key in self._gone:
            self._post.send(rank, "more", {"job": key[0], "step": key[1], "fd": header["fd"], "gone": True})
        else:
            self._early.keep(key, ("out", rank, header, body))

    def _event(self, rank: int, header: Header, body: bytes) -> None:
        key = int(header["job"]), int(header["step"])
        if (step := self._steps.get(key)) is not None:
            step.events(header["events"])
        elif key not in self._gone:
            self._early.keep(key, ("event", rank, header, body))

    def _work(self, rank: int, header: Header, body: bytes) -> None:
        key = int(header["job"]), int(header["step"])
        if (step := self._steps.get(key)) is not None:
            step.work(rank, header)
        elif key not in self._gone:
            self._early.keep(key, ("work", rank, header, body))
        elif not header.get("gone"):  # otherwise two agents would answer each other for ever
            self._post.send(rank, "deal", {"job": key[0], "step": key[1], "heard": 0, "gone": True})

    def _refuse(self, key: Key, ranks: set[int]) -> None:
        """Decline the messages of nodes for a step never launched here, or never begun."""
        remember(self._gone, key)
        for rank in ranks - {LEADER}:
            self._post.send(rank, "deal", {"job": key[0], "step": key[1], "heard": 0, "gone": True})

    def _took(self, rank: int, header: Header, body: bytes) -> None:
        if (step := self._steps.get((int(header["job"]), int(header["step"])))) is not None:
            step.took(rank, header)

    def lost(self, rank: int, why: str) -> None:
        """Handle the final loss of a node."""
        for step in list(self._steps.values()):
            step.lost(rank, why)

    def resumed(self, rank: int) -> None:
        """Ask a node for lost messages after a restored link."""
        for step in list(self._steps.values()):
            step.resumed(rank)

    def ask_again(self) -> None:
        """Ask a restarted or new leader for ends of steps, and repeat orders."""
        if self._steps:
            self._post.send(LEADER, "again", {"steps": [list(key) for key in self._steps]})
        self._unheard.say_again()

    def close(self) -> None:
        """Hang up all steps when the agent ends."""
        for step in list(self._steps.values()):
            step.hang_up()
