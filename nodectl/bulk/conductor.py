"""The commands' way through the step: sent when there is room, followed to the end, printed, logged, retried.

A single poll(2) serves the step's events, signals, and the source of the commands, which is read only when the step has
room for more. So memory does not grow with the number of commands, and the writer of the source is held back.

A step exists only while there are commands: no CPUs are asked for before the first command has come, and they are given
back when none has come for a while (`docs/decisions/0058-a-bulk-without-input-holds-nothing.md`).
"""

import collections
import contextlib
import os
import select
import time
from typing import TYPE_CHECKING

from nodectl.bulk import usage, wire
from nodectl.bulk.calls import Calls
from nodectl.bulk.idleness import Idleness
from nodectl.bulk.live import Live
from nodectl.bulk.tally import Ending, Tally
from nodectl.client.command import Failed, Interrupted
from nodectl.client.signals import ENDING
from nodectl.messages import is_news
from nodectl.model.states import COMPLETED, FAILED, NODE_FAIL
from nodectl.model.wire import framing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from nodectl.bulk.commands import Again, Command, Commands
    from nodectl.bulk.joblog import JobLog
    from nodectl.bulk.outputs import Outputs
    from nodectl.bulk.progress import Progress
    from nodectl.bulk.rules import Rules
    from nodectl.client.session import Events
    from nodectl.client.signals import Signals

_MOST_HELD = 16_384  # commands that have ended, and whose output waits for that of one before them
_SETTLED = 1.0  # seconds between two looks at disks
_REST = 10  # times what a look took: until the next one
_PLENTY = 32  # commands in the step that have not begun: it does not wait for this process
_NAP = 0.01
# States of a step all of whose commands have ended: what a lost node had begun was begun again elsewhere.
COMMANDS_ENDED = (COMPLETED, NODE_FAIL)
_FEW = 16  # as much room is waited for while enough are on their way


class Conductor:
    """The commands from the first to the last.

    `tally` counts the commands' ends, `record` is the last step's own record.
    """

    _events: "Events"
    _signals: "Signals"
    _calls: Calls
    _argv_of: "Callable[[str], list[str]]"

    def __init__(
        self, commands: "Commands | Again", rules: "Rules", outputs: "Outputs", log: "JobLog | None",
        progress: "Progress", total: int, usage_log: "usage.UsageLog | None" = None, *, gives_back: bool = False,
    ) -> None:  # fmt: skip
        """Start without a step. `gives_back`: give an idle step back, because other jobs may wait for its CPUs."""
        self._commands = commands
        self._rules = rules
        self._outputs = outputs
        self._live = Live(outputs) if rules.by_line else None
        self._log = log
        self._usage_log = usage_log
        self._wants_usage = usage_log is not None or outputs.keeps_usage
        self._progress = progress
        self._total = total
        self.tally = Tally()
        self.record: Mapping[str, Any] | None = None
        self.stopped = ""  # why no more are begun, where that is not because all have been
        self.halted = False
        self.last = 0  # exit status of the command that was the last to fail before that
        self.signal = 0  # the first that ended it
        self.warned: set[str] = set()
        self._gives_back = gives_back
        self._flying: dict[int, Command] = {}
        self._again: collections.deque[Command] = collections.deque()
        self._in_order: collections.deque[Command] = collections.deque()
        self._next: Command | None = None  # taken, and not sent for want of room
        self._slots = self._window = self._most_bytes = self._bytes = 0
        self._hungry = False  # for what only a read brings
        self._told_all = False  # the step, that no more come
        self._before = (0, 0)  # commands that have ended, and failed, before this step
        self._tried = 0  # ends in this step after which a command is tried again
        self._idleness = Idleness()
        self._cut = False  # a command was, whose end would be another without that
        self._may_begin = 0.0  # --delay
        self._settles = time.monotonic() + _SETTLED

    # What is sent.

    def _has_room(self) -> bool:
        rules, flying = self._rules, len(self._flying)
        if self.stopped or not self._window or self._told_all:
            return False
        if rules.delay:
            return flying < self._slots and time.monotonic() >= self._may_begin
        return flying < (self._slots if rules.too_few else self._ahead())

    def _ahead(self) -> int:
        """Return the number of commands the step may have. Commands waiting in the step begin without a further
        request.
        """
        left = self._left()
        return self._window if left is None else min(self._window, self._slots + max(0, left - 1))

    def _left(self) -> int | None:
        return self._rules.halt.left(self.tally.failed, self.tally.succeeded, self._total)

    def _fill(self) -> None:
        """Send commands while there is room, and tell the step when no more will come."""
        self._hungry = False
        if len(self._flying) > max(self._slots, self._window - _FEW):
            return  # several at a time cost less
        for message in wire.messages(self._encoded(), self._others):
            self._calls.send(message)
        over = self._commands.over and not self._again and self._next is None
        busy = not self._gives_back or not self._hungry or self._flying or self._again or self._next
        self._idleness.note(idle=not busy)
        ends = self.stopped or over or self._idleness.is_over
        if self._window and not self._told_all and ends and not (self._flying and self._may_retry()):
            self._told_all = True
            self._hungry = False
            self._calls.call("NoMore")

    def _others(self) -> "Mapping[str, int]":
        """Return the counts of the commands that this step does not have, with which it tells how far the bulk is.

        A try that was not the last is no end of its command. Without `left` it is unknown how many will come.
        """
        left, (done, failed) = self._commands.left, self._before
        found = {"done": done + self._commands.passed - self._tried, "failed": failed - self._tried}
        return found if left is None else {**found, "left": left + len(self._again) + (self._next is not None)}

    def _may_retry(self) -> bool:
        return self._rules.retries > 1 and not self.stopped

    def _encoded(self) -> "Iterator[bytes]":
        rules = self._rules
        while self._has_room():
            command = self._next or self._take()
            if command is None:
                return
            self._next = None
            argv = self._argv_of(command.line)
            if not command.stdout:
                self._outputs.place(command)
            command.weight = wire.weight(command, argv)
            if self._flying and self._bytes + command.weight > self._most_bytes:
                self._next = command
                return
            self._bytes += command.weight
            command.tries += 1
            self._flying[command.number] = command
            if rules.delay:
                self._may_begin = time.monotonic() + rules.delay
            yield wire.encoded(command, argv, rules.seconds(), rules.slot_mark)

    def _take(self) -> "Command | None":
        if self._again:
            return self._again.popleft()
        if len(self._in_order) >= _MOST_HELD:
            return None
        command = self._commands.next()
        if command is None:
            self._hungry = not self._commands.over
        elif self._rules.in_order:
            self._in_order.append(command)
        return command

    # What is heard.

    def wait_for_command(self, signals: "Signals") -> bool:
        """Wait for a command. Raises Failed.

        Return False when no more come, or on a held signal, whose number `signal` then has.
        """
        while self._next is None and not self.signal:
            self._next = self._take()
            if self._next is not None or self._commands.over:
                break
            poll = select.poll()
            for fd in (self._commands.fd, signals.fd):
                poll.register(fd, select.POLLIN)
            ready = [fd for fd, _ in poll.poll(self._patience())]
            if number := signals.first(ENDING):
                self.signal, self.stopped = number, "signal"
            elif self._commands.fd in ready:
                self._commands.read()
            self._look()
        return self._next is not None and not self.signal

    @property
    def gave_back(self) -> bool:
        """Whether the step has ended for lack of work, while more commands may come."""
        if self.record is None or not self._told_all or self.stopped or not self.is_waiting:
            return False
        return self.record["state"] in COMMANDS_ENDED or bool(self.tally.failed and self.record["state"] == FAILED)

    @property
    def is_waiting(self) -> bool:
        """Whether only commands yet to come are left."""
        return not (self._cut or self._flying or self._again or self._next or self._commands.over)

    def run(self, events: "Events", signals: "Signals", argv_of: "Callable[[str], list[str]]") -> None:
        """Run commands until this step has ended. Raises Failed, BrokenPipeError; the step is told to end then."""
        self._events, self._signals, self._argv_of, self.record = events, signals, argv_of, None
        self._calls, self._idleness, self._told_all = Calls(events, signals), Idleness(), False
        self._before, self._tried = (self.tally.done, self.tally.failed), 0
        self._slots = self._window = self._most_bytes = self._bytes = 0
        try:
            self._signals.act_at_once(self._act)
            self._run()
        except BaseException:
            with contextlib.suppress(Failed):  # it ends with this process
                self._calls.pass_on(0, "End")
            raise
        finally:
            self._progress.hide()
        self._let_go()
        signals.only_note()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._events.fd, select.POLLIN)
        poll.register(self._signals.fd, select.POLLIN)
        while self.record is None:
            self._fill()
            source = self._commands.fd
            if self._hungry:
                poll.register(source, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(self._patience())}
            if self._hungry:
                poll.unregister(source)
            if self._signals.fd in ready:
                self._signals.release()
            if self._events.fd in ready and not self._read():
                break
            if source in ready and self._hungry:
                self._commands.read()
            self._look()
            if len(self._flying) > self._slots + _PLENTY:
                time.sleep(_NAP)  # ends that are heard of together cost less

    def _patience(self) -> float | None:
        """Return the milliseconds until the next scheduled work, None for no limit."""
        waits = [] if self._progress.seconds is None else [self._progress.seconds]
        if self._rules.delay and not self.stopped:
            waits.append(max(0.0, self._may_begin - time.monotonic()) or 0.05)
        if self._log or self._flying:
            waits.append(_SETTLED)
        for one in (self._live, self._log, self._idleness):
            if one and one.seconds is not None:
                waits.append(one.seconds)
        return min(waits) * 1000 + 1 if waits else None

    def _read(self) -> bool:
        try:
            messages, alive = self._events.read()
        except (OSError, framing.BrokenWire):
            return False
        for message in messages:
            self._tell(message.get("parameters", {}).get("event", {}))  # type: ignore[attr-defined]
        return alive

    def _tell(self, event: "Mapping[str, Any]") -> None:
        kind = event.get("event")
        if kind == "tasks":
            for row in event.get("begun", ()) if self._live else ():
                self._begun(row[0], row[1])
            for one in event.get("ended", ()):
                self._ended(one)
            for number in event.get("withdrawn", ()):
                self._withdrawn(number)
        elif kind == "start":
            self._slots, self._window, self._most_bytes = event["slots"], event["window"], event["window_bytes"]
        elif kind == "message":
            if is_news(str(event["text"]), self.warned):
                self._say(str(event["text"]))
        elif kind == "end":
            self.record = event["record"]

    def _begun(self, number: int, slot: int) -> None:
        if self._live and (command := self._flying.get(number)):
            command.slot = slot + 1
            self._live.begun(command)

    def _withdrawn(self, number: int) -> None:
        command = self._flying.pop(number, None)
        if command is not None:
            self._bytes -= command.weight
            self._cut = True
            self._over(command)

    def _ended(self, event: "Mapping[str, Any]") -> None:
        command = self._flying.pop(event["seq"], None)
        if command is None:
            return
        if self._live:
            self._live.over(command)
        self._bytes -= command.weight
        command.slot = event["slot"] + 1
        ending = Ending(event)
        if ending.failed:
            self._outputs.check()
        if ending.failed and (event.get("cut_short") or self.signal or (self.halted and self._rules.halt.at_once)):
            self._outputs.drop(command)  # it was cut short: its own result is unknown
            self._cut = True
            self._over(command)
            return
        if ending.failed and command.tries < self._rules.retries and not self.stopped:
            self._outputs.drop(command)
            command.stdout, command.slot = "", 0  # it gets a place once more
            self._again.append(command)
            self._tried += 1
            return
        command.name_slot(self._rules.slot_mark)
        if why := command.explained(event):
            self._say(why)
        if self._wants_usage:
            command.usage = usage.line_of(command, event, ending)
        command.alone = event.get("alone", False)
        received = self._outputs.ended(command)
        command.log = (event["started"], event["seconds"], received, ending.exit_value, ending.signal)
        if not self._rules.in_order:
            self._tell_end(command)
        if not ending.failed:
            self._rules.took(event["seconds"])
        self.tally.note(ending, command)
        self._over(command)
        self._halt(command)

    def _tell_end(self, command: "Command") -> None:
        """Print the output, then log the command. A logged command never runs or prints again."""
        if command.log is not None:
            self._outputs.show(command)
            if self._usage_log:
                self._usage_log.add(command.usage)
            if self._log:
                self._log.ended(command.number, *command.log, command.line)

    def _over(self, command: "Command") -> None:
        """Mark the command as over, and print the outputs ready in order."""
        command.over = True
        while self._in_order and self._in_order[0].over:
            self._tell_end(self._in_order.popleft())

    def _halt(self, command: "Command") -> None:
        if self.halted or self._left() != 0:
            return
        halt, tally = self._rules.halt, self.tally
        self.halted, self.last = True, tally.last
        self._say(f"nodectl: halt: {halt.words(tally.failed, tally.succeeded)}, the last: {command.words()}")
        self.stop("halt", at_once=halt.at_once)

    # Its end.

    def stop(self, why: str, *, at_once: bool = False) -> None:
        """Begin no more commands; with `at_once`, end the running ones, too."""
        self.stopped = self.stopped or why
        self._calls.call("End" if at_once else "Withdraw")

    def _act(self, number: int) -> None:
        """Act on a signal.

        The first ending signal goes to the running commands, and no more begin; a second ends the step; a third ends
        this command.
        """
        if number not in ENDING:
            self._calls.pass_on(number)
        elif not self.signal:
            self.signal, self.stopped = number, "signal"
            self._say("nodectl: no more commands are begun; those that run are interrupted (once more to end them)")
            self._calls.pass_on(number, "Withdraw")
        elif self.stopped != "ending":
            self.stopped = "ending"
            self._say("nodectl: ending the commands that run (once more to leave)")
            self._calls.pass_on(0, "End")
        else:
            raise Interrupted(self.signal)

    def _look(self) -> None:
        """Do the periodic work: live output, progress, log, disks."""
        running = min(len(self._flying), self._slots)
        if self._live:
            self._live.look(self._in_order[0] if self._in_order else None)
        if self._commands.over:
            self._progress.total = self._commands.count
        self._progress.tell(self.tally.done, self.tally.failed, running, self._commands.passed)
        if self._log:
            self._log.look()
        now = time.monotonic()
        if now >= self._settles:
            if log := self._log or self._usage_log:  # the one has the other settled, too
                log.settle()
            self._outputs.check()
            self._settles = now + max(_SETTLED, _REST * (time.monotonic() - now))

    def _let_go(self) -> None:
        """Discard the outputs of commands without a known end, after the step has ended."""
        for command in self._flying.values():
            self._outputs.drop(command)
            self._over(command)
        for command in list(self._in_order):
            self._over(command)

    @property
    def unfinished(self) -> bool:
        """Whether any commands have not yet run to the end."""
        return bool(self._cut or self._flying or self._again or self._next or not self._commands.over)

    def _say(self, line: str) -> None:
        self._progress.hide()
        try:
            os.write(2, line.encode("utf-8", "surrogateescape") + b"\n")
        except OSError:
            return  # stderr has no reader; the commands run on
