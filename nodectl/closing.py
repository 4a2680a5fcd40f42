"""Closing what a process has open: before it becomes a program, or opens what a user names."""

import _signal
import os

from nodectl import _kernel, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_STREAMS = 3
_INTERRUPT_SECONDS = 0.05


def close_all_but(keep: "Iterable[int]" = ()) -> None:
    """Nothing stays open but 0, 1, 2 and these, and an exec closes these."""
    low = _STREAMS
    for fd in sorted(set(keep)):
        if fd >= low:
            os.closerange(low, fd)
            low = fd + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))
    _kernel.cloexec_from(_STREAMS)  # also what was opened when more might be open


def close_in_time(fds: "Iterable[int]") -> None:
    """Closes sockets of ours in which what a user made may lie unread, because nobody is left to take it: the last
    close waits for that as long as its maker likes, unless a signal comes.
    """
    before = _signal.signal(_signal.SIGALRM, lambda *_: None)
    _signal.setitimer(_signal.ITIMER_REAL, _INTERRUPT_SECONDS, _INTERRUPT_SECONDS)
    try:
        wire.close(fds)
    finally:
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        _signal.signal(_signal.SIGALRM, before or _signal.SIG_DFL)
