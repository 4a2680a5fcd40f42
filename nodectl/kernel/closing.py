"""Closing the descriptors of a process, before the process becomes a program or opens a user's path."""

import os

from nodectl.kernel import _kernel, operations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_INTERRUPT_MICROSECONDS = 50_000


def close_all_but(keep: "Iterable[int]" = ()) -> None:
    """Close all descriptors but 0, 1, 2 and `keep`, and mark `keep` to be closed at exec."""
    _kernel.perform([operations.close_others(keep)], None)


def pass_on(fds: "Collection[int]") -> None:
    """Before an exec, leave only `fds` open, and /dev/null as 0, 1 and 2. Raises OSError."""
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for number in range(3):
        os.dup2(null, number)
    close_all_but(fds)
    for fd in fds:
        os.set_inheritable(fd, True)


def close_in_time(fds: "Iterable[int]") -> None:
    """Close our sockets, interrupting any close longer than 50 ms.

    Descriptors made by a user may lie unread in them, and no process is left to take these. The last close waits for
    that as long as their maker likes, unless a signal comes.
    """
    _kernel.close_in_time(list(fds), _INTERRUPT_MICROSECONDS)
