"""`nodectl run --pty`: show the step's terminal at ours, which is raw from the start to the end of the tasks.

Keys typed before that belong to this command: Ctrl-C gives up a step that waits for its turn.
"""

import select
import signal
import socket
import sys
from typing import TYPE_CHECKING

from nodectl.client.terminal import Copying, Terminal, fatal, window
from nodectl.model.wire import terminal_packets as packets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nodectl.client.run_options import Parsed
    from nodectl.client.session import Session
    from nodectl.client.watch import Watch


class StepTerminal:
    """The step's terminal at ours.

    Made before the launch, so that the session passes on a socket as the task's streams.
    """

    def __init__(self, session: "Session", parsed: "Parsed") -> None:
        ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs = self._theirs.fileno()
        session.streams = (theirs, theirs, theirs)
        size = memoryview(window() or bytes(packets.WINDOW_SIZE)).cast("H").tolist()
        self._task = parsed.values["pty"]
        parsed.values["pty"] = [self._task, *size]
        self._terminal = Terminal()
        self._copying = Copying(ours)
        self._has_begun = False
        self._late: list[str] = []  # lines to print after the tasks' output
        self._is_late = False
        self._fatal: set[int] = set()

    def until_end(self, watch: "Watch") -> "Mapping[str, object] | None":
        """Run the watch of the launched step to the end, as `Watch.until_end`. Return the record."""
        self._theirs.close()
        tell, take_signal, say = watch.tell, watch.take_signal, watch.say
        watch.tell = lambda event: self._tell(event, tell)
        watch.take_signal = lambda number: self._take_signal(number, take_signal)
        watch.say = lambda line: self._say(line, say)
        self._listen()
        try:
            watch.begin()
            while watch.record is None and self._turn(watch):
                pass
            self._copying.finish()
        finally:
            self._terminal.restore()
            self._copying.close()
        for line in self._late:
            say(line)
        return watch.record

    def _listen(self) -> None:
        """Catch the signals to end or stop this process, which would leave the terminal raw."""
        self._fatal = fatal()
        for number in (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT, *self._fatal):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda *_: None)

    def _turn(self, watch: "Watch") -> bool:
        poll = select.poll()
        poll.register(watch.events.fd, select.POLLIN)
        poll.register(watch.signals.fd, select.POLLIN)
        if self._has_begun:
            self._copying.register(poll)
        ready = dict(poll.poll(watch.patience()))
        goes_on = watch.serve(set(ready))
        for fd, mask in ready.items():
            self._copying.handle(fd, mask)
        return goes_on

    def _take_signal(self, number: int, pass_on: "Callable[[int], None]") -> None:
        if number == signal.SIGTSTP:
            self._terminal.suspend()
        elif number == signal.SIGCONT:
            if self._has_begun:
                self._terminal.resume()
        elif number in self._fatal:
            self._terminal.die_of(number)
        else:
            pass_on(number)
        self._copying.tell_window()

    def _tell(self, event: "Mapping[str, object]", tell: "Callable[[Mapping[str, object]], None]") -> None:
        self._is_late = event.get("event") == "exit"
        tell(event)
        self._is_late = False
        if event.get("event") == "start":
            _tell_of_others(self._task, len(event.get("pids", ())))  # type: ignore[arg-type]  # a list
            self._has_begun = True
            self._copying.tell_window()
            self._terminal.make_raw()

    def _say(self, line: str, say: "Callable[[str], None]") -> None:
        """Print a line of the command itself, with the terminal restored meanwhile, or after the end."""
        if self._is_late:
            self._late.append(line)
            return
        self._terminal.restore()
        say(line)
        if self._has_begun:
            self._terminal.make_raw()


def _tell_of_others(task: object, ntasks: int) -> None:
    """Tell a person that tasks without the terminal show nothing."""
    if ntasks > 1 and sys.stderr.isatty():
        from nodectl.client import waiting  # few such steps have several tasks

        waiting.say(f"--pty: task {task} of {ntasks} has the terminal; the others read and show nothing (/dev/null)")
