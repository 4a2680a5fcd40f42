"""The early end of a step: signals, the time limit, and finally SIGKILL.

Runs in the stepd, as root. A signal's handler only notes what is to be done. `act` does it when nothing is half done:
the reaper's loop calls it.
"""

import os
import time

from nodectl.kernel import children, signals
from nodectl.kernel.signals import CONT, HUP, KILL, TERM
from nodectl.launch.stepd.suspension import FREEZE, TIME_LIMIT, Suspension
from nodectl.model.states import CANCELLED, RUNNING, TIMEOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from nodectl.launch.stepd.run import Run
    from nodectl.model.step import Task

_LOOK_AGAIN = 0.005
_KILL, _UNKILLABLE = "kill", "unkillable"
OUTPUT_LIMIT = 300.0  # seconds for the reading of output when no client waits for the step


class Termination:
    """The deadlines and pending signals of a step.

    `collect` looks for tasks that have ended. `give_up` stops waiting for tasks that do not end. `kill_epilogs` kills
    the scripts of tasks that have ended, and returns True if there were any.
    """

    __slots__ = (
        "_began", "_collect", "_deadlines", "_give_up", "_held", "_is_told", "_kill_epilogs", "_pid", "_run", "_stop",
        "late", "suspension",
    )  # fmt: skip

    def __init__(
        self, run: "Run", collect: "Callable[[], None]", give_up: "Callable[[], None]",
        kill_epilogs: "Callable[[], bool]",
    ) -> None:  # fmt: skip
        self._run = run
        self._collect = collect
        self._give_up = give_up
        self._kill_epilogs = kill_epilogs
        self._pid = os.getpid()
        self._is_told = False  # whether the daemon knows that the termination has begun
        self._held: list[int] = []  # signals that came before the tasks' programs began
        self._deadlines: dict[str, float] = {}
        # The reason of a request to stop, and the seconds left for reading output.
        self._stop: tuple[str, float] | None = None
        self.late: tuple[str, float] | None = None  # why and when unread output is dropped
        self.suspension = Suspension(run, self._deadlines)
        self._began = time.monotonic()
        self.suspension.limit(self._began, run.step.time_limit)

    def patience(self) -> float | None:
        """Return the seconds until the next deadline; None for never."""
        if self._held:
            return _LOOK_AGAIN  # nothing announces that a program has begun
        if not self._deadlines:
            return None
        return max(0.0, min(self._deadlines.values()) - time.monotonic())

    def act(self) -> None:
        """Act on a request to stop, on passed deadlines and on held signals."""
        if self._stop is not None:
            (reason, patience), self._stop = self._stop, None
            self.cut_short(reason, patience)
        self._act_on_time()
        held, self._held = self._held, []
        for number in held:
            self.signal(number)

    def end(self, state: str, reason: str) -> None:
        """End a running step as a batch system does: CONT and TERM now, KILL after kill_wait."""
        if self._run.state == RUNNING:
            self._end_survivors(state, reason)

    def _end_survivors(self, state: str, reason: str) -> None:
        """End the step like `end`, also where a survived signal has already set the step's state."""
        self._run.end_as(state, reason)
        if _KILL not in self._deadlines and _UNKILLABLE not in self._deadlines:
            self.stop()

    def stop(self) -> None:
        """Send CONT and TERM now and KILL after kill_wait, in any state of the step."""
        self._tell_the_daemon()
        if self.suspension.suspended:
            self.suspension.end()
        self.signal(CONT)
        self.signal(TERM)
        self._deadlines.pop(TIME_LIMIT, None)
        self._deadlines[_KILL] = time.monotonic() + self._run.step.kill_wait

    def _tell_the_daemon(self) -> None:
        """Tell the daemon once about the begin of the termination, before any process is signalled.

        The daemon informs the select plugin.
        """
        if not self._is_told:
            self._is_told = True
            self._run.links.tell_daemon({"event": "ending"})

    def limit(self, seconds: int) -> None:
        """Set another time limit, 0 for none. The time already used counts."""
        if self._run.state == RUNNING:
            self._run.step.time_limit = seconds
            self.suspension.limit(self._began, seconds)

    def _act_on_time(self) -> None:
        due = [name for name, at in self._deadlines.items() if at <= time.monotonic()]
        for name in due:
            del self._deadlines[name]
            if name == _KILL:
                self.signal(KILL)
            elif name == FREEZE:
                self.suspension.freeze()
            elif name == _UNKILLABLE:
                self._give_up()
            elif self.runs():
                self._run.announce_cancel("DUE TO TIME LIMIT")
                self._end_survivors(TIMEOUT, f"time limit of {self._run.step.time_limit} s")
            else:
                self.cut_short(
                    "its time limit was reached before its epilogs had ended and its output was read",
                    self._run.step.kill_wait,
                )

    def signal(self, number: int) -> None:
        """Send a signal to every running task. SIGKILL also goes to everything started by the tasks.

        Until a task has become its program it ignores most signals, and before its first row it would lose any, because
        Python drops pending signals after a fork. So signals are held until every task takes them.

        An interactive shell ignores SIGTERM, and ends when its terminal hangs up: SIGHUP goes to it as well.
        """
        if number == KILL and (self._run.bulk is None or self._run.state != RUNNING):
            self._tell_the_daemon()
        if number != KILL and not all(self._takes(task, number) for task in self._run.tasks):
            self._held.append(number)
            return
        for task in self._run.tasks:
            if task.pid > 0 and task.status is None:
                task.killed_by_command |= number in (TERM, KILL)
                if number == KILL and children.dumps_core(task.pid):
                    continue  # the tracker waits for the core dump
                # A command of a bulk step leads a group of its own, and its user's Ctrl-C is meant for all of it.
                if self._run.bulk is None or not signals.send_group_of_child(task.pid, number):
                    signals.send_child(task.pid, number)
                if number == TERM and self._is_shell_at_terminal(task):
                    signals.send_child(task.pid, HUP)
                    signals.send_child(task.pid, CONT)
        if number == KILL:
            self._run.kill()
            if self._run.bulk is not None and self._run.state == RUNNING:
                return  # a signal that a client has passed on: other commands follow
            self.end_epilogs()
            self._deadlines.setdefault(_UNKILLABLE, time.monotonic() + self._run.step.unkillable_timeout)

    def _is_shell_at_terminal(self, task: "Task") -> bool:
        """Return True for a task that has the step's terminal and ignores SIGTERM, as interactive shells do."""
        has_terminal = self._run.step.pty[:1] == [task.number]
        return has_terminal and self.has_begun(task) and children.ignores(task.pid, TERM)

    def end_epilogs(self) -> None:
        """Kill the scripts of ended tasks. A step with nothing else left is cancelled by this."""
        if self._kill_epilogs() and self.late is not None:
            self._run.end_as(CANCELLED, self.late[0])

    def holds_signals(self) -> bool:
        """Return True while signals wait for tasks to begin."""
        return bool(self._held)

    def _takes(self, task: "Task", number: int) -> bool:
        if task.pid <= 0 or task.status is not None:
            return task.pid > 0 or self._run.bulk is not None  # a slot of a bulk step may have no process
        hook, _ = self._run.progress.place(task.local_id + 1)
        return number == CONT or (number == TERM and hook is not None) or self.has_begun(task)

    def has_begun(self, task: "Task") -> bool:
        """Return True when the task has executed a program: the user's, or a program executed by a plugin in a hook."""
        slot = task.local_id + 1
        if not self._run.progress.is_done(slot):
            hook, _ = self._run.progress.place(slot)
            if hook is None or hook.identity != "user" or not children.has_executed(task.pid):
                return False
            self._run.progress.done(slot)
        return True

    def runs(self) -> bool:
        """Return True while a task runs or is still to come.

        Collects the tasks that have ended first: no signal reaches them.
        """
        self._collect()
        if self._run.bulk is not None:
            return self._run.bulk.goes_on()
        return any(task.status is None for task in self._run.tasks)

    def cut_short(self, reason: str, patience: float, state: str = CANCELLED) -> None:
        """End the step if a task still runs. Otherwise only drop unread output, after `patience` seconds."""
        if self.runs():
            self._end_survivors(state, reason)
            return
        at = time.monotonic() + patience
        if self.late is None or at < self.late[1]:
            self.late = reason, at

    def told_to_stop(self, *_: object) -> None:
        """Handle SIGTERM: the stepd notes a request to stop; a task still using this handler exits with 128 + 15."""
        if os.getpid() != self._pid:
            os._exit(128 + TERM)
        # `act` does it, when nothing is half done.
        self._stop = "the step runner was told to stop", self._run.step.kill_wait

    def owner_gone(self) -> None:
        """Cancel the step at once, because the process owning the step has ended. Do not wait for tasks or output."""
        reason = "the agent that asked for it has ended"
        self._run.end_as(CANCELLED, reason)
        self._deadlines[_KILL] = time.monotonic()
        self.late = reason, time.monotonic()

    def launcher_gone(self) -> None:
        """Request a stop, because the launching client has gone. Tasks already ended keep their state."""
        self._stop = self._stop or ("the client that ran it went away", OUTPUT_LIMIT)
