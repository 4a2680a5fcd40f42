"""The signals of a command, from just before a request which starts something.

Before, a signal ends the command as it ends any program. From then on no signal ends the command where it stands: each
is noted, in order, and handled where the command takes it. The signal belongs to the step or job asked for: it is
passed on to the step, or the turn is given up, or a launch without an answer is withdrawn. Lean: `nodectl run` imports
this module for each step launched by Python.
"""

import _signal
import posix as os  # the half in C: the other one is a millisecond of each step
import select
import time

from nodectl.client.command import Interrupted
from nodectl.model.wire import framing
from nodectl.model.wire.names import NODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Collection, Iterable
    from types import FrameType
    from typing import Protocol

    class Beside(Protocol):
        """A second source to read meanwhile, as long as `fd` is not -1."""

        fd: int

        def read(self) -> None:
            """Read once."""


ENDING = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT)
PASSED_ON = (_signal.SIGUSR1, _signal.SIGUSR2)
FORWARDED = (*ENDING, *PASSED_ON)
_CHUNK = 512
_GRACE = 5.0  # seconds for an answer, once the command is to end: the service hangs


class TooLate(Exception):
    """The time for an answer is over."""


class Signals:
    """The signals of this process, held from construction on.

    `came`: the signals which came before, in order; `blocked`: the signals blocked until now, which are unblocked. `fd`
    is readable when signals have come.
    """

    __slots__ = ("_act", "_before", "_came", "_held", "_writer", "beside", "fd")

    def __init__(self, came: "Iterable[int]" = (), blocked: "Iterable[int]" = ()) -> None:
        self._act: Callable[[int], None] | None = None
        self._held = False
        self.beside: Beside | None = None  # read while this process waits for an answer
        self._came = list(came)
        self.fd, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # Before the handlers: an earlier signal is noted, or still ends the command.
        _signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._before = {number: _signal.getsignal(number) for number in FORWARDED}
        for number, handler in self._before.items():
            if handler != _signal.SIG_IGN:  # nohup's wish is ours
                _signal.signal(number, self._caught)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, blocked)

    def let_go(self) -> None:
        """Let signals end the command again. Raises Interrupted if a signal has come."""
        for number, handler in self._before.items():
            if handler is not None:
                _signal.signal(number, handler)
        _signal.set_wakeup_fd(-1)
        self.end_if_any()
        os.close(self.fd)
        os.close(self._writer)

    def first(self, numbers: "Collection[int]" = FORWARDED) -> int:
        """Return the first signal of `numbers` among the signals not yet taken; 0 for none."""
        self._look()
        return next((number for number in self._came if number in numbers), 0)

    def end_if_any(self) -> None:
        """Raise Interrupted if a signal has come, because nothing was asked for."""
        if number := self.first() or (_signal.SIGINT if Interrupted.has_come else 0):
            raise Interrupted(number)

    def take(self) -> list[int]:
        """Return the signals since the last call, in order, including signals handled elsewhere in this process."""
        self._look()
        came, self._came = self._came, []
        return came

    def _look(self) -> None:
        try:
            self._came += os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return

    # For callers that a signal may interrupt while they print.

    def act_at_once(self, act: "Callable[[int], None]") -> None:
        """Let the signal's handler call `act(number)` at once, unless signals are held."""
        self._act = act
        self.release()

    def only_note(self) -> None:
        """Only note signals again, because there is no step to pass a signal on to."""
        self._act = None

    def hold(self) -> None:
        """Keep signals until `release`."""
        self._held = True

    def release(self) -> None:
        """Act on the held signals."""
        while True:
            self._held = True
            while self.first():
                number = self._came.pop(0)
                if self._act is not None and number in FORWARDED:
                    self._act(number)
            self._held = False
            if not self.first():  # a handler would have acted by itself
                return

    def _caught(self, _number: int, _frame: "FrameType | None") -> None:
        if self._act is not None and not self._held:
            self.release()

    # For callers that wait.

    def answer(self, sock: "_socket.socket", method: str, until: float | None) -> "PendingAnswer":
        """Return the wait for the answer to `method`, until this time of the monotonic clock."""
        return PendingAnswer(self, sock, method, until)

    def rest(self, seconds: float) -> None:
        """Sleep. Raises Interrupted."""
        self.end_if_any()
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        poll.poll(seconds * 1000)
        self.end_if_any()


class PendingAnswer:
    """A wait for an answer, see `Signals.answer`; called before each read of the answer."""

    __slots__ = ("_is_to_end", "_method", "_signals", "_sock", "_until")

    def __init__(self, signals: Signals, sock: "_socket.socket", method: str, until: float | None) -> None:
        self._signals = signals
        self._sock = sock
        self._method = method
        self._until = until
        self._is_to_end = False

    def __call__(self) -> None:
        """Wait until there is data to read. Raises Interrupted, TooLate."""
        while True:
            self._heed()
            beside = self._signals.beside
            ready = self._ready(-1 if beside is None else beside.fd)
            if self._sock.fileno() in ready:
                return
            if beside is not None and beside.fd in ready:
                beside.read()
            if not ready and self._is_to_end:
                raise Interrupted(self._signals.first(ENDING))
            if not ready:
                raise TooLate

    def _ready(self, beside: int) -> list[int]:
        poll = select.poll()
        for fd in (self._sock.fileno(), self._signals.fd, beside):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        left = None if self._until is None else max(0.0, self._until - time.monotonic()) * 1000 + 1
        return [fd for fd, _ in poll.poll(left)]

    def _heed(self) -> None:
        """Act on a signal which ends.

        The wait for a turn ends at once. A launch is withdrawn: if the step has begun, the answer says so, and the
        signal is for the step. Any other call is waited for, but with a limit.
        """
        if self._method == "Await":
            self._signals.end_if_any()
        if self._is_to_end or not self._signals.first(ENDING):
            return
        self._is_to_end = True
        self._until = min(self._until or float("inf"), time.monotonic() + _GRACE)
        if self._method == "Launch":
            try:
                framing.send(self._sock, {"method": f"{NODE}.Withdraw", "parameters": {}, "oneway": True})
            except OSError:
                return  # the caller still reads what the service sent before
