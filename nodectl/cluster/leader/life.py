"""The life of running steps: start on the nodes, events, end, record.

A step begins when all its nodes have begun, and ends when all its parts have ended. The failure of one part ends the
step's remaining parts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from nodectl.cluster.leader.asked import Asked
from nodectl.cluster.leader.effects import Out, SendEach
from nodectl.cluster.leader.facts import facts_of
from nodectl.cluster.leader.history import History
from nodectl.cluster.leader.orders import END, HANG_UP, KILL, Orders, way_to_end
from nodectl.cluster.leader.parts import parts_of
from nodectl.cluster.leader.placing import Table
from nodectl.cluster.leader.steps import ASKED, BEGUN, OVER, Caller, Part, Step, has_ended, tasks_of
from nodectl.cluster.leader.wish import Placed
from nodectl.kernel.children import said
from nodectl.model.cpu_list import format_cpulist
from nodectl.model.states import CANCELLED, FAILED, NODE_FAIL, OUT_OF_MEMORY
from nodectl.model.wire.dispatch import error_reply

KILL_SECONDS = 120.0  # for a part to end after an order to end; then its output is dropped, which may have no reader
DROP_SECONDS = 30.0  # after these no more steps are placed on the part's node


class Life:
    """The running steps of a cluster.

    `job`: the number of the allocation; `variables`: variables for tasks beside their environment; `expected`: ranks
    that have not joined yet; `on_free` is called when a step has released its nodes.
    """

    def __init__(
        self, job: int, names: Sequence[str], table: Table, out: Out, history: History, expected: Set[int],
        on_free: Callable[[], None],
    ) -> None:  # fmt: skip
        self.job = job
        self._names = names
        self.variables: dict[str, str] = {}
        self.owner: dict[str, Any] = {}
        self.steps: dict[int, Step] = {}
        self.count = 0  # of messages that start parts, and of those that ask nodes for their parts
        self.begin = 0  # the first value of that count; lower ones are an earlier leader's
        self._table = table
        self._out = out
        self._history = history
        self.orders = Orders(out, expected)
        self._on_free = on_free
        self._by_call: dict[Caller, Step] = {}
        self._talkative: dict[int, Step] = {}  # steps with events for their clients
        self._ending: dict[int, Step] = {}

    def start(self, number: int, asked: Asked, placed: Placed, call: Caller, now: float, *, streams: bool) -> Step:
        """Start a placed step."""
        table, layout = self._table, placed.layout
        whole, own = parts_of(layout, table.indexed_names, (self.job, number), environment=self.variables)
        each = {placed.ranks[index]: part for index, part in own.items()}
        self.count += 1
        parts = {rank: Part(nodeid, str(part["tasks"]), self.count) for nodeid, (rank, part) in enumerate(each.items())}
        for rank, part in each.items():
            if share := placed.held.shares[rank].gres:
                part["devices"] = list(share)
        request = asked.request
        facts = facts_of((self.job, number), self.owner, request, placed, str(whole["nodes"]), now)
        step = Step(
            self.job, number, facts, parts, placed.held, call=call,
            client=call[0] if streams else None, kill_on_bad=bool(request.get("kill_on_bad_exit")),
            no_kill=asked.no_kill,
        )  # fmt: skip
        self._add(step)
        self._out.keep({"e": "step", **step.as_json()})
        common: dict[str, Any] = {
            "job": self.job, "step": number, "client": step.client, "request": request, "whole": whole,
        }  # fmt: skip
        if len(each) > 1:
            common["first"] = next(iter(each))
        self._out.effects.append(SendEach("start", common, each))
        return step

    def _add(self, step: Step) -> None:
        self.steps[step.number] = step
        if step.call is not None:
            self._by_call[step.call] = step

    def restore(self, step: Step) -> None:
        """Add a step of an earlier leader; the nodes will report the parts still running."""
        self._add(step)
        if step.held.number:
            self._table.hold(step.held)

    def of_call(self, call: Caller) -> Step | None:
        """Return the running step launched by this call; None for none."""
        return self._by_call.get(call)

    def begun(self, rank: int, number: int, told: Mapping[str, Any], now: float) -> None:
        """Handle a node's report of a part: begun, failed to begin, or a later report."""
        error: Mapping[str, Any] | None = told.get("error")
        found = self._part(rank, number)
        if found is None:
            self._hang_up(rank, number)
            return
        step, part = found
        if part.state == ASKED:
            step.unbegun -= 1
        elif error is None:
            self._take_standing(step, told, now)
            return  # a repeated report
        if error is None:
            part.state = BEGUN
            step.started = step.started or now
            if not step.unbegun:
                self._all_have_begun(step)
            if step.ending:
                self.orders.give(step, [rank], way_to_end(step))  # the part was still starting when the end was ordered
            self._take_standing(step, told, now)
            return
        why = f"{self._names[rank]}: {error.get('reason', '')}" if len(step.parts) > 1 else error.get("reason", "")
        self._refuse(step, error, str(why))
        self._end(step, FAILED, str(why), now)
        self._lose(step, rank, part, str(why), FAILED, now)

    def _take_standing(self, step: Step, told: Mapping[str, Any], now: float) -> None:
        """Handle the keys repeated by a node in each report of a part.

        `joined`: the parts need each other, as those of an MPI program do; `fatal`, state and reason: none of the parts
        can go on.
        """
        if told.get("joined") and step.no_kill:
            step.no_kill = False
            # This leader, or a later one, may hear of a lost node first.
            self._out.keep({"e": "step", **step.as_json()})
            if NODE_FAIL in step.sums.states:
                self._end(step, NODE_FAIL, "a node was lost, and its program is of MPI", now)
        if told.get("fatal"):
            state, reason = map(str, told["fatal"])
            if state == FAILED and not step.ending:
                text = f"nodectl: error: step {step.name}: {reason}: the step ends"
                self._tell(step, {"event": "message", "text": text})
            self._end(step, state, reason, now)

    def _refuse(self, step: Step, error: Mapping[str, Any], why: str) -> None:
        """Refuse the launch because a node cannot begin a part. After a reply, send the client a message instead."""
        if step.replied:
            self._tell(step, {"event": "message", "text": f"nodectl: error: {why}"})
            return
        step.replied = True
        if step.call is None:
            return
        name = str(error.get("name") or "LaunchRefused")
        parameters: dict[str, Any] = {"reason": why, "exit_status": int(error.get("exit_status") or 1)}
        if error.get("parameter"):
            parameters["parameter"] = error["parameter"]
        self._out.send(
            step.call[0], "reply", id=step.call[1], error=name if "." in name else f"org.nodectl.{name}",
            parameters=parameters,
        )  # fmt: skip
        step.client = None if step.is_heard else step.client  # an earlier leader may have answered

    def _all_have_begun(self, step: Step) -> None:
        self._reply(step)
        self._answer_viewers(step, {"parameters": step.view()})

    def _answer_viewers(self, step: Step, told: Mapping[str, object]) -> None:
        """Answer the viewers' calls of the time before all parts had begun."""
        viewers, step.viewers = step.viewers, []
        for rank, call in viewers:
            self._out.send(rank, "reply", id=call, **told)

    def _reply(self, step: Step) -> None:
        if step.replied:
            return
        step.replied = True
        self.reply_again(step)

    def reply_again(self, step: Step) -> None:
        """Repeat the reply to a launch, which the client's node has lost with an earlier leader."""
        if step.call is not None and step.replied:
            told = {"job": step.job, "step": step.number, "ranks": format_cpulist(step.parts)}
            self._out.send(step.call[0], "reply", id=step.call[1], parameters=told)

    def told(self, rank: int, number: int, events: list[Mapping[str, Any]], now: float) -> None:
        """Handle the events of a part."""
        found = self._part(rank, number)
        if found is None:
            return
        step, part = found
        for event in events:
            self._take_event(step, rank, part, event, now)

    def _take_event(self, step: Step, rank: int, part: Part, event: Mapping[str, Any], now: float) -> None:
        kind = event.get("event")
        several = len(step.parts) > 1
        if kind == "start":
            step.pids.update(zip(tasks_of(part), event.get("pids") or (), strict=False))
            step.unstarted -= 1
            if several:
                if not step.unstarted:
                    self._tell(step, {"event": "start", "pids": [pid for _, pid in sorted(step.pids.items())]})
                return
        if kind == "end":
            return  # `ended` handles it
        if kind == "exit":
            step.statuses.update(dict.fromkeys(event.get("tasks") or (), int(event.get("status") or 0)))
        if kind == "message" and " CANCELLED AT " in str(event.get("text")):
            if step.cancel_told:
                return  # each node reports it
            step.cancel_told = True
        self._tell(step, {**event, "node": self._names[rank]})
        if kind == "exit" and step.kill_on_bad and several and (event.get("status") or event.get("out_of_memory")):
            task = min(event.get("tasks") or [0])
            why = f"task {task} {said(int(event['status'] or 0))} and --kill-on-bad-exit was given"
            self._end(step, OUT_OF_MEMORY if event.get("out_of_memory") else FAILED, why, now)

    def _tell(self, step: Step, event: Mapping[str, Any]) -> None:
        if step.client is not None:
            step.events.append(event)
            self._talkative[step.number] = step

    def flush(self) -> None:
        """Send all pending events to clients, in a message per step, but only after the reply to the launch."""
        for number, step in list(self._talkative.items()):
            if step.replied and step.is_heard:
                self._send_events(step)
                del self._talkative[number]

    def _send_events(self, step: Step) -> None:
        if step.events and step.client is not None:
            self._out.send(step.client, "event", job=step.job, step=step.number, events=step.events)
        step.events = []

    def ended(self, rank: int, number: int, told: Mapping[str, Any], now: float) -> None:
        """Handle the end of a part."""
        record: Mapping[str, Any] = told["record"]
        found = self._part(rank, number)
        if found is None:
            if number not in self.steps:
                self._out.send(rank, "over", job=self.job, step=number)  # sent before, at the end of the step
            return
        step, part = found
        if part.state == ASKED:
            self.begun(rank, number, {}, now)
        self._take_standing(step, told, now)
        if record.get("state") == NODE_FAIL and not step.cause:
            self.part_lost(step, rank, f"node {self._names[rank]}: {record.get('reason', '')}", now)
            return
        step.sums.add(part.nodeid, self._names[rank], part.tasks, record)
        self._part_over(step, part, now)
        # If no leader was there to hear of the task's exit.
        if step.left and step.kill_on_bad and record.get("state") in (FAILED, OUT_OF_MEMORY):
            self._end(step, record["state"], str(record.get("reason") or ""), now)

    def _lose(self, step: Step, rank: int, part: Part, why: str, state: str, now: float) -> None:
        step.sums.lose(part.nodeid, self._names[rank], part.tasks, why, state)
        if part.state == ASKED and state != FAILED:
            step.unbegun -= 1
        self._part_over(step, part, now)

    def _part_over(self, step: Step, part: Part, now: float) -> None:
        part.state = OVER
        step.left -= 1
        if not step.left:
            self._finish(step, now)

    def _part(self, rank: int, number: int) -> tuple[Step, Part] | None:
        """Return the step and the part on this node, unless the part has ended."""
        step = self.steps.get(number)
        part = None if step is None else step.parts.get(rank)
        return None if step is None or part is None or part.state == OVER else (step, part)

    def _finish(self, step: Step, now: float) -> None:
        """Finish a step after the end of all parts: record, last event, replies."""
        state, reason = step.cause or step.sums.judged()
        figures = step.sums.figures()
        record = {
            **step.facts,
            "state": state,
            "reason": reason[:600],
            "exit_status": step.sums.exit_status(state),
            **figures,
            "started": figures["started"] or step.started or None,
            "ended": figures["ended"] or now,
        }
        del self.steps[step.number]
        self._ending.pop(step.number, None)
        self._talkative.pop(step.number, None)
        if step.call is not None:
            self._by_call.pop(step.call, None)
        kept = self._history.add(step.number, record, step.call)
        self._out.keep({"e": "ended", "number": step.number, "call": step.call, "record": kept})
        if not step.replied:
            if step.cause is not None and step.cause[0] != CANCELLED:
                self._refuse(step, {}, reason)
            self._reply(step)
        self._tell(step, {"event": "end", "record": kept})
        self._send_events(step)
        self._talkative.pop(step.number, None)
        over = {"job": step.job, "step": step.number}
        self._out.effects.append(SendEach("over", over, dict.fromkeys(step.parts)))
        for rank, call in step.waiters:
            self._out.send(rank, "reply", id=call, parameters={"record": kept})
        self._answer_viewers(step, error_reply(has_ended(record)))
        self._table.release(step.held)
        self._on_free()

    def order(self, step: Step, call: Mapping[str, Any], now: float, by: Caller | None = None) -> None:
        """Pass a client's order on to all nodes of the step.

        `by`: the order's name, where the client may repeat the order.
        """
        if call.get("method") in ("hangup", "End"):
            self.expect_end(step, now)
        if call.get("method") == "hangup":
            step.client = None
        self.orders.give(step, step.open_ranks, call, by)

    def signal(self, step: Step, number: int, now: float, by: Caller) -> None:
        """Send a signal to all tasks of a step."""
        self.orders.give(step, step.open_ranks, {"method": "Signal", "parameters": {"signal": number}}, by)
        if number == 9:
            self.expect_end(step, now)

    def cancel(self, step: Step, now: float) -> None:
        """End a step as a batch system does: SIGTERM, and later SIGKILL. Ended parts stay ended."""
        if not step.cancel_told and len(step.statuses) < step.facts["ntasks"]:
            step.cancel_told = True
            at = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now))
            text = f"nodectl: error: *** STEP {step.name} ON {step.facts['node']} CANCELLED AT {at} ***"
            self._tell(step, {"event": "message", "text": text})
        self.expect_end(step, now)
        self.orders.give(step, step.open_ranks, END)

    def _end(self, step: Step, state: str, reason: str, now: float) -> None:
        step.cause = step.cause or (state, reason)
        if not step.ending:
            self.expect_end(step, now)
            self.orders.give(step, step.open_ranks, way_to_end(step))

    def expect_end(self, step: Step, now: float) -> None:
        """Set the time for giving up parts without an end, since the step's end was requested."""
        if not step.ending:
            step.ending = True
            step.give_up = now + KILL_SECONDS
            self._ending[step.number] = step

    def _hang_up(self, rank: int, number: int) -> None:
        """Hang up a part of an unknown step."""
        common = {"job": self.job, "step": number, "call": HANG_UP}
        self._out.effects.append(SendEach("order", common, {rank: None}))

    def deadline(self) -> float | None:
        """Return the time at which the next part is given up; None for none."""
        return min((step.give_up for step in self._ending.values()), default=None)

    def tick(self, now: float) -> None:
        """Give up parts still running after the time limit for ending, and place no more steps on their nodes."""
        for step in [one for one in self._ending.values() if one.give_up <= now]:
            if not step.dropped:
                step.dropped = True
                step.give_up = now + DROP_SECONDS
                self.orders.give(step, step.open_ranks, KILL)  # for tasks that ignore SIGTERM
                self.orders.give(step, step.open_ranks, HANG_UP)
                continue
            for rank in step.open_ranks:
                why = f"node {self._names[rank]} did not end its part: Kill task failed"
                self._table.take_out(rank, "Kill task failed")
                self._lose(step, rank, step.parts[rank], why, NODE_FAIL, now)

    def node_lost(self, rank: int, reason: str, now: float) -> None:
        """Give up the parts on a lost node, and end the steps of clients there."""
        self.orders.forget(rank)
        for step in list(self.steps.values()):
            part = step.parts.get(rank)
            if part is not None and part.state != OVER:
                self.part_lost(step, rank, f"node {self._names[rank]} was lost: {reason}", now)
            goes_on = step.number in self.steps and not step.ending
            if goes_on and self._table.give_up(step.held, rank):
                self._out.keep({"e": "step", **step.as_json()})
            caller = step.call is not None and step.call[0] == rank and not step.replied
            if step.number in self.steps and (caller or step.client == rank):
                step.client = None
                self.order(step, HANG_UP, now)

    def part_lost(self, step: Step, rank: int, why: str, now: float) -> None:
        """Handle a lost part, of which no record will come."""
        part = step.parts[rank]
        tasks = f"{'task' if part.tasks.isdecimal() else 'tasks'} {part.tasks}"
        self._tell(step, {"event": "message", "text": f"nodectl: error: {why}, and {tasks} with it"})
        if step.no_kill and step.left > 1:
            self._lose(step, rank, part, why, NODE_FAIL, now)
            if not step.unbegun:
                self._all_have_begun(step)
            return
        step.cause = step.cause or (NODE_FAIL, why)
        if not step.replied:
            self._refuse(step, {}, why)
        if step.left > 1:
            self._end(step, NODE_FAIL, why, now)
        self._lose(step, rank, part, why, NODE_FAIL, now)

    def here(self, rank: int, numbers: list[int], token: int, now: float) -> None:
        """Handle a node's list of parts.

        A part missing there, requested before `token`, never reached the node or is lost.
        """
        if token <= self.begin:
            return
        there = set(numbers)
        for step in list(self.steps.values()):
            part = step.parts.get(rank)
            if part is None or part.state == OVER:
                continue
            if step.number in there:
                if step.ending:
                    self.orders.give(step, [rank], way_to_end(step))
            elif part.asked < token:
                self.part_lost(step, rank, f"node {self._names[rank]} has lost its part", now)
        for number in there - self.steps.keys():
            self._hang_up(rank, number)
