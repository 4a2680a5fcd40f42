"""Closing what a process has open: before it becomes a program, or opens what a user names."""

import os

from nodectl import _kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_STREAMS = 3


def close_all_but(keep: "Iterable[int]" = ()) -> None:
    """Nothing stays open but 0, 1, 2 and these, and an exec closes these."""
    low = _STREAMS
    for fd in sorted(set(keep)):
        if fd >= low:
            os.closerange(low, fd)
            low = fd + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))
    _kernel.cloexec_from(_STREAMS)  # also what was opened when more might be open
