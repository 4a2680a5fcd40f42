"""Signals of a command that may stand in the middle of printing: they are acted upon there and then, but never while
a message to the step is half written.
"""

import _signal
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

ENDING = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT)
PASSED_ON = (_signal.SIGUSR1, _signal.SIGUSR2)


class Signals:
    """Calls `act(number)` for each signal of interest, between `held` and `release` only at the latter."""

    def __init__(self, act: "Callable[[int], None]") -> None:
        self._act = act
        self._held = 0
        self._waiting: list[int] = []
        self.fd, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (*ENDING, *PASSED_ON):
            if _signal.getsignal(number) != _signal.SIG_IGN:  # nohup's wish is ours
                _signal.signal(number, self._caught)

    def _caught(self, number: int, _frame: "FrameType | None") -> None:
        self._waiting.append(number)
        if not self._held:
            self.release()

    def hold(self) -> None:
        """What comes now waits."""
        self._held = 1

    def release(self) -> None:
        """What has come is acted upon."""
        while self._waiting:
            self._held = 1
            self._act(self._waiting.pop(0))
        self._held = 0

    def drain(self) -> None:
        """What woke the poll."""
        os.read(self.fd, 512)
