"""`nodectl run --pty`: the step's terminal is shown at ours, which is raw from the start of the tasks to their end.

What is typed before belongs to this command: Ctrl-C gives up a step that waits for its turn.
"""

import _signal
import _socket
import select

from nodectl.client.terminal import Copying, Terminal, fatal, window
from nodectl.wire import terminal_packets as packets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nodectl.client.run_options import Parsed
    from nodectl.client.session import Session
    from nodectl.client.watch import Watch


class Screen:
    """Made before the launch, in which the session passes on a socket in the place of this process's streams."""

    def __init__(self, session: "Session", parsed: "Parsed") -> None:
        ours, self._theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        theirs = self._theirs.fileno()
        session.streams = (theirs, theirs, theirs)
        size = memoryview(window() or bytes(packets.WINDOW_SIZE)).cast("H").tolist()
        parsed.values["pty"] = [parsed.values["pty"], *size]
        self._terminal = Terminal()
        self._copying = Copying(ours)
        self._has_begun = False
        self._late: list[str] = []  # told behind what the tasks have said
        self._is_late = False
        self._fatal: set[int] = set()

    def until_end(self, watch: "Watch") -> "Mapping[str, object] | None":
        """As the watch's own, which knows the step that was launched."""
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
        """What would end this process or stop it must not leave the terminal raw."""
        self._fatal = fatal()
        for number in (_signal.SIGWINCH, _signal.SIGTSTP, _signal.SIGCONT, *self._fatal):
            if _signal.getsignal(number) != _signal.SIG_IGN:
                _signal.signal(number, lambda *_: None)

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
        if number == _signal.SIGTSTP:
            self._terminal.suspend()
        elif number == _signal.SIGCONT:
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
            self._has_begun = True
            self._copying.tell_window()
            self._terminal.make_raw()

    def _say(self, line: str, say: "Callable[[str], None]") -> None:
        """Lines of our own need a terminal that ends them."""
        if self._is_late:
            self._late.append(line)
            return
        self._terminal.restore()
        say(line)
        if self._has_begun:
            self._terminal.make_raw()
