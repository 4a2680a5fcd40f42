"""`nodectl alloc`: wait for an allocation, run a command or a shell in the allocation on this side, then end the job.

This process launches the job's extern step, which holds the job, and tells the service when to end it. So the job goes
on while the service restarts, and ends in any case when this process does.
"""

import os
import pwd
import select
import signal
from collections.abc import Sequence
from typing import Any

from nodectl.cli.send_signal import signal_of
from nodectl.client import waiting
from nodectl.client.command import BadOption, GlobalOptions, Program
from nodectl.client.foreground import Foreground
from nodectl.client.job_command import JobCommand, run_command
from nodectl.client.job_environment import of_allocation
from nodectl.client.session import Events
from nodectl.client.signals import FORWARDED, Signals
from nodectl.model.wire import framing

_HOLD = ("sleep", "infinity")
_ENDED_BY_JOB = 1
_COUNT = ("ntasks", "ntasks_per_node")  # either sets the number of tasks of steps without their own


def main(settings: GlobalOptions, words: Sequence[str]) -> int:
    """Run the whole command. Return the exit status."""
    return run_command("alloc", settings, words, _allocate)


def _allocate(command: JobCommand) -> int:
    if not command.read():
        return 0
    values = command.parsed.values
    patience: Any = values.pop("immediate", None)
    no_shell = values.pop("no_shell", False)
    kill = _kill_signal(values.pop("kill_command", None))
    argv = command.parsed.argv
    if no_shell and argv:
        raise BadOption("--no-shell has no command beside it: give either")
    shell = not argv
    argv = argv or [_shell()]
    values.setdefault("name", "interactive" if shell else os.path.basename(argv[0]))
    command.parsed.argv = list(argv)
    counted = not values.keys().isdisjoint(_COUNT)
    request, options = command.request()
    session = command.session
    job = waiting.job(session, {**request, "environment": waiting.told(request)}, options, patience, "alloc")
    streams = {"stdin": "none", "stdout": "none", "stderr": "none"}
    request |= {"argv": list(_HOLD), "job": job, **streams}
    if no_shell:
        session.call("Launch", request=request)
        waiting.say(f"Granted job allocation {job}")
        session.let_signals_go()
        return 0
    _, _, events = session.launch(request)
    waiting.say(f"Granted job allocation {job}")
    record: Any = session.call("ShowJob", job=str(job))["record"]
    environment = of_allocation(job, record, request, os.path.abspath(session.path), counted=counted)
    held = HeldAllocation(job, events, session.hold_signals(), signal.SIGHUP if shell and kill is None else kill)
    return held.run(argv, environment)


def _shell() -> str:
    """Return the user's shell."""
    try:
        return os.environ.get("SHELL") or pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    except KeyError:
        return "/bin/sh"


def _kill_signal(text: object) -> signal.Signals | None:
    """Return the signal for --kill-command, None without the option. Raises BadOption."""
    if text is None:
        return None
    try:
        return signal.Signals(signal_of(str(text))) if text else signal.SIGTERM
    except ValueError as error:
        raise BadOption(f"--kill-command: {error}") from None


class HeldAllocation:
    """An allocation and the command inside, which receives all signals since the request for the job.

    `kill`: the signal for the command when the job ends first.
    """

    def __init__(self, job: int, events: Events, signals: Signals, kill: signal.Signals | None) -> None:
        self._job = job
        self._events = events
        self._kill = kill
        self._over = False  # the job
        self._reason = ""
        self._signals = signals
        signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes the poll, as other signals do

    def run(self, argv: Sequence[str], environment: dict[str, str]) -> int:
        """Run the command to the end. Return the exit status."""
        command = Foreground(argv, environment)
        poll = select.poll()
        poll.register(self._events.fd, select.POLLIN)
        poll.register(self._signals.fd, select.POLLIN)
        while not command.look():
            if came := self._signals.take():
                for number in came:
                    if number in FORWARDED:
                        command.signal(number)
                continue  # it may have been SIGCHLD
            ready = {fd for fd, _ in poll.poll()}
            if self._events.fd in ready and not self._read():
                poll.unregister(self._events.fd)
                what = "Job allocation" if Program.is_slurms() else "job"
                waiting.say(f"{what} {self._job} has been revoked{f': {self._reason}' if self._reason else ''}")
                if self._kill is not None:
                    command.signal(self._kill)
        if not self._over:
            self._relinquish()
        return command.status if command.status is not None else _ENDED_BY_JOB

    def _relinquish(self) -> None:
        """End the job regularly, because the record would otherwise show a dead client."""
        waiting.say(f"Relinquishing job allocation {self._job}")
        try:
            self._events.call("End")
            while self._read():
                pass
        except OSError:
            return  # the job has ended by itself

    def _read(self) -> bool:
        """Read events. Return False when the job has ended."""
        try:
            messages, alive = self._events.read()
        except (OSError, framing.BrokenWire):
            messages, alive = [], False
        for message in messages:
            event: Any = message.get("parameters", {}).get("event", {})  # type: ignore[attr-defined]
            if event.get("event") == "end":
                self._reason = str(event["record"].get("reason") or "")
                alive = False
        self._over = not alive
        return alive
