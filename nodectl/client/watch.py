"""The wait of a run for the step's end: print the step's events, pass signals on.

Lean, because each step pays for it.
"""

import _signal
import posix as os  # the half in C: the other one is a millisecond of each step
import select
import time

from nodectl.client.command import Program
from nodectl.client.signals import FORWARDED
from nodectl.model.wire import framing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from nodectl.client.session import Events
    from nodectl.client.signals import Signals
    from nodectl.client.srun.manners import Manners

    class Started(Protocol):
        """A launched step."""

        events: Events
        signals: Signals
        name: str
        ntasks: int


# What it says; where it was called by srun's name, in srun's words.
_LINES = {
    "started": "step {step}: tasks running, pids {pids}",
    "first": "First task exited {wait}s ago",
    "terminating": "Terminating step {step}",
    "states": "interrupt (one more within 1 sec to end step {step})",
    "sent": "interrupt sent to step {step} (one more within 1 sec to end it)",
    "ending": "forcing termination of step {step} (one more within 1 sec to kill it)",
    "killing": "killing step {step}",
    "state": "step {step}: {tasks}: {state}",
}
_QUICK = 1.0  # seconds between SIGINTs that together mean: end it


class Watch:
    """The watch over a step until the end.

    Each event goes to `tell`, each signal of this process since the step was asked for goes to `take_signal`. `say`
    prints a line.
    """

    def __init__(self, step: "Started", node: str, *, verbose: int, manners: "Manners | None" = None) -> None:
        self._step = step
        self.events = step.events
        self.tell: Callable[[Mapping[str, object]], None] = self._tell
        self.take_signal: Callable[[int], None] = self._pass_on
        self.say: Callable[[str], None] = _print
        self._name = step.name
        self._node = node
        self._verbose = verbose
        self._manners = manners
        self.warned: set[str] = set()
        self._ended: set[int] = set()  # tasks
        self._endings: set[object] = set()  # wait statuses that were told, where each is told once
        self._deadline: float | None = None  # --wait's
        self._interrupted = -_QUICK
        self._interrupts = 0  # each within a second of the one before
        self.record: Mapping[str, object] | None = None
        self.signals = step.signals
        # While the step starts, and not when it says something: nodectl may have been replaced by then.
        from nodectl.messages import WARNING, is_news

        self._is_news, self._warning = is_news, WARNING
        self._lines = _LINES
        self._worded: Callable[[str], str] = str
        if Program.is_slurms():
            from nodectl.client.srun import wording

            self._lines, self._worded = wording.LINES, wording.said
            if verbose:  # before a task can say anything
                self._tell_line("launched")

    def until_end(self) -> "Mapping[str, object] | None":
        """Wait for the step's end and return the record, or None when the step runner went away without a record."""
        self.begin()
        poll = select.poll()
        poll.register(self.events.fd, select.POLLIN)
        poll.register(self.signals.fd, select.POLLIN)
        while self.record is None and self.serve({fd for fd, _ in poll.poll(self.patience())}):
            pass
        return self.record

    def begin(self) -> None:
        """Handle events and signals which came before polling."""
        self._hear(self.events.take)
        if self.record is None:
            self._take_signals()

    def serve(self, ready: set[int]) -> bool:
        """Handle the descriptors reported by poll(2), or the timeout. Return False when the step runner has gone."""
        if self.signals.fd in ready:
            self._take_signals()
        if self.events.fd in ready and not self._hear(self.events.read):
            return False
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._deadline = None
            self._end_the_last()
        return True

    def _take_signals(self) -> None:
        for number in self.signals.take():
            self.take_signal(number)

    def patience(self) -> float | None:
        """Return the milliseconds until the end of --wait, None for no limit."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic()) * 1000 + 1

    def _end_the_last(self) -> None:
        """Kill the tasks still running at the end of --wait."""
        if self._manners is not None:
            self._tell_line("first", wait=self._manners.wait)
            self._manners.wait = 0  # once
        self._tell_states()
        self._tell_line("terminating")
        self._call("Signal", signal=int(_signal.SIGKILL), forwarded=True)

    def _hear(self, take: "Callable[[], tuple[list[Mapping[str, object]], bool]]") -> bool:
        try:
            messages, alive = take()
            for message in messages:
                event = message.get("parameters", {}).get("event", {})  # type: ignore[attr-defined]
                self.tell(event)
        except (OSError, framing.BrokenWire):
            return False
        return alive

    def _tell(self, event: "Mapping[str, object]") -> None:
        kind = event.get("event")
        if kind == "message":
            self._tell_message(str(event["text"]))
        elif kind == "exit":
            self._tell_exit(event)
        elif kind == "start" and self._verbose and "started" in self._lines:
            self._tell_line("started", pids=event["pids"])
        elif kind == "end":
            self.record = event["record"]  # type: ignore[assignment]

    def _tell_message(self, text: str) -> None:
        if Program.quiet and text.startswith(self._warning):
            return
        if self._is_news(text, self.warned):
            self.say(self._worded(text))
            if " CANCELLED AT " in text and "aborted" in self._lines:
                self._tell_line("aborted")

    def _tell_exit(self, event: "Mapping[str, object]") -> None:
        manners, status = self._manners, event["status"]
        self._ended.update(event["tasks"])  # type: ignore[arg-type]  # a list of numbers
        if manners is not None and manners.wait and self._deadline is None and len(self._ended) < self._step.ntasks:
            self._deadline = time.monotonic() + manners.wait
        if not (status or event.get("out_of_memory")) or status in self._endings:
            return
        if manners is not None and manners.reduced:
            self._endings.add(status)
        ending = "Out Of Memory" if event.get("out_of_memory") else _ending(int(str(status)))
        node = event.get("node", self._node)  # of several
        self.say(f"nodectl: error: {node}: {_tasks(event['tasks'])}: {ending}")

    def _pass_on(self, number: int) -> None:
        if number == _signal.SIGINT:
            self._interrupt()
        elif number in FORWARDED:
            self._call("Signal", signal=number, forwarded=True)

    def _interrupt(self) -> None:
        """Handle a Ctrl-C.

        The first prints the state of the tasks, or is passed on to them with -X; a second within a second ends the
        step; a third kills the step without waiting.
        """
        now, manners = time.monotonic(), self._manners
        if now - self._interrupted >= _QUICK:
            self._interrupts = 1 if manners is not None and manners.quit_on_interrupt else 0
        self._interrupted = now
        self._interrupts += 1
        if self._interrupts > 2:
            self._tell_line("killing")
            self._call("Signal", signal=int(_signal.SIGKILL), forwarded=True)
        elif self._interrupts == 2:
            self._tell_line("ending")
            self._call("End")
        elif manners is not None and manners.disable_status:
            self._tell_line("sent")
            self._call("Signal", signal=int(_signal.SIGINT), forwarded=True)
        else:
            self._tell_line("states")
            self._tell_states()

    def _tell_states(self) -> None:
        running = set(range(self._step.ntasks)) - self._ended
        for numbers, state in ((running, "running"), (self._ended, "exited")):
            if numbers:
                self._tell_line("state", tasks=_tasks(numbers), state=state)

    def _tell_line(self, what: str, **values: object) -> None:
        ranks = f"0-{self._step.ntasks - 1}" if self._step.ntasks > 1 else "0"
        values |= {"step": self._name, "job": self._name.partition(".")[0], "node": self._node, "ranks": ranks}
        for line in f"nodectl: {self._lines[what]}".split("\n"):
            self.say(line.format(ntasks=self._step.ntasks, **values))

    def _call(self, method: str, **parameters: object) -> None:
        try:
            self.events.call(method, **parameters)
        except OSError:
            return  # it has ended: its last event is on the way


def _print(line: str) -> None:
    try:
        os.write(2, Program.said(line).encode("utf-8", "surrogateescape") + b"\n")
    except OSError:
        return  # stderr has no reader; the step runs on


def _tasks(ranks: object) -> str:
    """Return "task 3", or "tasks 0-2,5"."""
    numbers = sorted(ranks)  # type: ignore[call-overload]
    runs: list[list[int]] = []  # as nodectl/model/cpu_list.py has it: a command that waits imports nothing
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)
    return f"task{'s' if len(numbers) > 1 else ''} {text}"


def _ending(status: int) -> str:
    """Return srun's words for a wait status."""
    if os.WIFSIGNALED(status):
        core = " (core dumped)" if os.WCOREDUMP(status) else ""
        return f"{_signal.strsignal(os.WTERMSIG(status))}{core}"
    return f"Exited with exit code {os.WEXITSTATUS(status)}"
