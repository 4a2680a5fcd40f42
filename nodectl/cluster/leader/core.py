"""The leader's decisions, in reaction to messages, to joining or lost nodes, and to the time.

`Core.take` returns the effects to carry out. No clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nodectl.cluster.leader import asked as launch
from nodectl.cluster.leader.books import Books
from nodectl.cluster.leader.calls import Calls
from nodectl.cluster.leader.chooser import Chooser
from nodectl.cluster.leader.effects import Effect, Send, SendEach
from nodectl.cluster.leader.history import shortened
from nodectl.cluster.leader.line import Waiting
from nodectl.cluster.leader.orders import HANG_UP
from nodectl.cluster.leader.parts import of_job
from nodectl.cluster.leader.restore import entries, restore
from nodectl.cluster.leader.steps import Caller
from nodectl.cluster.leader.wish import Placed
from nodectl.cluster.machine import Machines
from nodectl.model.states import NODE_FAIL
from nodectl.model.wire import lean_json
from nodectl.model.wire.dispatch import Refused, error_reply, invalid, withdrawn
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.request import Settings

Header = Mapping[str, Any]
BUSY = "Requested nodes are busy"
_JOIN_SECONDS = 60.0  # for nodes to join; until then a launch for more nodes than there are waits
_LOOK_SECONDS = 0.2


class Core:
    """The leader's state machine.

    `job`: the allocation's number; `names`: the names of all its nodes by rank; `owner`: the cluster's user, as in
    records. `tells_job`: true where the leader must tell tasks about the nodes of their job, because Slurm does not.
    `chooser`: None for select/cons_tres.
    """

    def __init__(
        self, job: int, names: Sequence[str], now: float, *, owner: Mapping[str, Any] | None = None,
        settings: Settings | None = None, journal: Sequence[Header] = (), tells_job: bool = False,
        chooser: Chooser | None = None,
    ) -> None:  # fmt: skip
        self.books = books = Books(job, names, now, owner or {}, settings, self._look, chooser)
        self.calls = Calls(books, self._launch)
        self._life, self._line, self._table, self._out = books.life, books.line, books.table, books.out
        self._machines = Machines()
        self._patient_until = now + _JOIN_SECONDS
        self._look_at = 0.0
        self._is_looking = False
        self._tells_job = tells_job
        self._told_nodes = 0
        restore(books, journal)

    def take(self) -> list[Effect]:
        """Return the effects to carry out, in this order, and forget the effects."""
        self._life.flush()
        return self._out.take()

    def end(self) -> None:
        """End the select plugin when the leader ends."""
        self._table.end()

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of a journal equal to the present state, to replace all earlier entries."""
        return entries(self.books)

    # What happens.

    def joined(self, rank: int, said: Header, now: float) -> None:
        """Handle a node's join, with the description of the machine."""
        self.books.now = now
        if rank >= len(self.books.names):  # a guest: a machine for typing commands, without tasks
            self.resumed(rank, now)
            return
        try:
            machine = self._machines.read(said.get("machine", said))
        except ValueError as error:
            self.lost(rank, str(error), now)
            return
        self._table.add(rank, self.books.names[rank], machine)
        self.books.steps_by[rank] = str(said.get("steps_by", ""))
        self.books.expected.discard(rank)
        self._life.orders.joined(rank)
        self.resumed(rank, now)
        if self._line:
            # Not at the join of each of ten thousand nodes: each look rebuilds the table.
            soon = now + _LOOK_SECONDS if self.books.expected else now
            self._look_at = min(self._look_at or soon, soon)

    def resumed(self, rank: int, now: float) -> None:
        """Ask a node for a report of the parts there, and repeat requests, since messages on the way may be lost."""
        self.books.now = now
        self._life.count += 1
        self._out.send(rank, "leader", job=self.books.job, token=self._life.count)
        self.calls.ask_again(rank)

    def lost(self, rank: int, reason: str, now: float) -> None:
        """Handle the final loss of a node."""
        self.books.now = now
        self.books.expected.discard(rank)
        if rank < len(self.books.names):
            self._table.take_out(rank, reason)
        for one in [one for one in self._line if one.call[0] == rank]:
            self._line.remove(one.call)
        self._life.node_lost(rank, reason, now)
        self.calls.node_lost(rank, reason)
        self._refuse_what_never_fits()
        self._look()

    def received(self, kind: str, rank: int, header: Header, now: float) -> None:
        """Handle a message from a node. Ignore messages of an unknown kind."""
        self.books.now = now
        handler = self._HANDLERS.get(kind)
        if handler is not None:
            handler(self, rank, header)

    def deadline(self) -> float | None:
        """Return the time at which `tick` must be called at the latest; None for no such time."""
        moments = (self._look_at or None, self._line.deadline(), self._life.deadline(), self.calls.usages.deadline())
        waits_for_nodes = self._patient_until if self.books.expected and self._line else None
        return min((one for one in (*moments, waits_for_nodes) if one is not None), default=None)

    def tick(self, now: float) -> None:
        """Do the work due at this time."""
        self.books.now = now
        self._life.tick(now)
        self.calls.usages.tick(now)
        if self.books.expected and now >= self._patient_until:
            self.books.expected.clear()
            self._refuse_what_never_fits()
        if self._look_at and now >= self._look_at:
            self._look_at = 0.0
            self._look()
        for one in self._line.overdue(now):
            self._line.remove(one.call)
            self.books.refuse(one.call, Refused("Busy", BUSY))

    def too_long(self, effect: Effect, why: str, now: float) -> None:
        """Handle a message longer than the limit, which was not sent."""
        self.books.now = now
        if isinstance(effect, SendEach) and effect.kind == "start":
            error = {"name": "TooLarge", "reason": f"the launch is too long for a message: {why}"}
            for rank in effect.each:
                self._life.begun(rank, int(effect.common["step"]), {"error": error}, now)
        elif isinstance(effect, Send) and effect.kind == "reply" and "error" not in effect.header:
            self._out.send(effect.to, "reply", id=effect.header["id"], **error_reply(Refused("TooLarge", why)))
        elif isinstance(effect, Send) and effect.kind == "event":
            header = effect.header
            for event in header["events"]:
                short = {**event, "record": shortened(event["record"])} if event.get("event") == "end" else event
                self._out.send(effect.to, "event", job=header["job"], step=header["step"], events=[short])

    # Messages.

    def _call(self, rank: int, header: Header) -> None:
        call: Caller = (rank, header["id"])
        try:
            reply = self.calls.answer(call, header, self.books.now)
        except Refused as refused:
            self.books.refuse(call, refused)
        except NoLayout as error:
            self.books.refuse(call, Refused("InvalidRequest", error.reason, parameter="layout"))
        except Exception as error:  # a bug here: the caller must still get an answer
            self.books.refuse(call, Refused("InternalError", f"the leader: {error!r}", exit_status=1))
            raise
        else:
            if reply is not None:
                self.books.reply(call, reply)

    def _hang_up(self, rank: int, header: Header) -> None:
        """Handle a caller's disconnect. Answer the gateway all the same: the caller's streams stay open until then."""
        call: Caller = (rank, header["id"])
        self.calls.hung_up(call)
        step = self._life.of_call(call)
        if step is None:
            self._line.remove(call)
            self.books.refuse(call, Refused("LaunchRefused", "who asked for it has gone", exit_status=1))
        else:
            self._life.order(step, HANG_UP, self.books.now)

    def _withdraw(self, rank: int, header: Header) -> None:
        """Withdraw a waiting launch. Where the step already runs or begins, the reply to the launch says so."""
        call: Caller = (rank, header["id"])
        if self._life.of_call(call) is None:
            self._line.remove(call)
            self.books.refuse(call, withdrawn())

    def _begun(self, rank: int, header: Header) -> None:
        self._life.begun(rank, int(header["step"]), header, self.books.now)

    def _told(self, rank: int, header: Header) -> None:
        self._life.told(rank, int(header["step"]), header["events"], self.books.now)

    def _ended(self, rank: int, header: Header) -> None:
        self._life.ended(rank, int(header["step"]), header, self.books.now)

    def _order(self, rank: int, header: Header) -> None:
        """Pass a client's order on to the step.

        An order with a number is repeated until answered, and carried out once.
        """
        caller = (rank, header["id"]) if "id" in header else None
        if caller is not None and self.books.comes_again(caller):
            self._life.orders.answer_again(caller)
            return
        step = self._life.steps.get(int(header["step"]))
        if step is not None:
            self._life.order(step, header["call"], self.books.now, caller)
        if caller is not None:
            self._life.orders.answer(caller, step)

    def _here(self, rank: int, header: Header) -> None:
        numbers = [int(step) for job, step in header["steps"] if job == self.books.job]
        self.books.numbers.seen(max(numbers, default=-1))
        self._life.here(rank, numbers, int(header["token"]), self.books.now)

    def _again(self, rank: int, header: Header) -> None:
        """Send the end events of steps again to a client's agent, which may have missed the last events."""
        for job, number in header["steps"]:
            step = self._life.steps.get(number)
            if step is not None:
                step.hear(rank)
                continue
            record = self.books.history.get(number) or {
                "job": job, "step": number, "state": NODE_FAIL, "reason": "how it ended is unknown",
                "exit_status": 1, "tasks": [],
            }  # fmt: skip
            events: list[dict[str, Any]] = [{"event": "end", "record": record}]
            if record["state"] == NODE_FAIL:  # the client may have missed the message, too
                events.insert(0, {"event": "message", "text": f"nodectl: error: {record['reason']}"})
            self._out.send(rank, "event", job=job, step=number, events=events)

    def _answer(self, rank: int, header: Header) -> None:
        self.calls.answered(rank, header)

    _HANDLERS = {  # noqa: RUF012  # never written
        "call": _call, "hang_up": _hang_up, "withdraw": _withdraw, "begun": _begun, "told": _told, "ended": _ended,
        "order": _order, "here": _here, "again": _again, "answer": _answer,
    }  # fmt: skip

    # Launches.

    def _launch(self, call: Caller, request: object, now: float, *, streams: bool) -> None:
        """Start a step, or let the launch wait; reply when the step has begun. Raises Refused."""
        if self._is_known(call):
            return
        wanted = launch.read(request)
        self.books.numbers.check(wanted.numbers, self.books.job)
        step = wanted.numbers[1]
        if step in self._life.steps or self.books.history.get(step) is not None:
            raise invalid("step", f"{self.books.job}.{step} was there already")
        if wanted.request.get("bulk") and not streams:
            raise Refused("InvalidRequest", "the commands of such a step come from a client", parameter="bulk")
        size = len(lean_json.dumps(wanted.request))
        one = Waiting(call, wanted, size, now, streams=streams)
        if self._line.may_pass(wanted.alike) and (placed := self._place(one)) is not None:
            self._start(one, placed)
            self._line.was_passed()
            return
        if wanted.immediate == 0 or not self._line.has_room(size):
            raise Refused("Busy", BUSY)
        if not self.books.expected and (never := self._table.never_fits(wanted.wish)):
            raise NoLayout(never)
        one.number = self.books.numbers.take(wanted.numbers)  # so that the user can name the step
        self._line.add(one)

    def _is_known(self, call: Caller) -> bool:
        """Return whether the launch came before, as after the death of a leader or a link; then repeat the reply, if
        any.
        """
        if self._line.get(call) is not None:
            return True
        step = self._life.of_call(call)
        if step is not None:
            self._life.reply_again(step)
            if step.client is not None:
                step.hear(call[0])
            return True
        number = self.books.history.of_call(call)
        if number is None:
            return False
        record = self.books.history.get(number) or {}
        self.books.reply(call, {"job": self.books.job, "step": number, "ranks": ""})
        events = [{"event": "end", "record": record}]
        self._out.send(call[0], "event", job=self.books.job, step=number, events=events)
        return True

    def _place(self, one: Waiting) -> Placed | None:
        """Place a step, or return None where the launch must wait.

        Raises NoLayout where the step never fits, and no node is expected that would change this.
        """
        try:
            return self._table.place(one.asked.wish)
        except NoLayout:
            if self.books.expected:
                return None
            raise

    def _start(self, one: Waiting, placed: Placed) -> None:
        if self._tells_job and self._told_nodes != len(self._table.machines):
            self._told_nodes = len(self._table.machines)
            self._life.variables = of_job(self._table.cpus())
        number = one.number if one.number >= 0 else self.books.numbers.take(one.asked.numbers)
        self._life.start(number, one.asked, placed, one.call, self.books.now, streams=one.streams)

    def _look(self) -> None:
        """Start the waiting launches for which there is room now."""
        if self._is_looking or not self._line:
            return
        self._is_looking = True
        try:
            self._line.go(self._start_waiting)
        finally:
            self._is_looking = False

    def _start_waiting(self, one: Waiting) -> bool:
        try:
            placed = self._place(one)
        except NoLayout as error:
            self._line.remove(one.call)
            self.books.refuse(one.call, Refused("InvalidRequest", error.reason, parameter="layout"))
            return True
        if placed is None:
            return False
        self._line.remove(one.call)
        self._start(one, placed)
        return True

    def _refuse_what_never_fits(self) -> None:
        """Refuse waiting launches without room on the remaining nodes, once no more nodes are expected."""
        if self.books.expected:
            return
        known: dict[tuple[object, ...], str] = {}
        for one in list(self._line):
            kind = one.asked.alike
            if kind not in known:
                known[kind] = self._table.never_fits(one.asked.wish)
            if known[kind]:
                self._line.remove(one.call)
                self.books.refuse(one.call, Refused("InvalidRequest", known[kind], parameter="layout"))
