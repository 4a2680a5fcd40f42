"""Closing what a process has open: before it becomes a program, or opens what a user names."""

from nodectl.kernel import _kernel, operations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_INTERRUPT_MICROSECONDS = 50_000


def close_all_but(keep: "Iterable[int]" = ()) -> None:
    """Nothing stays open but 0, 1, 2 and these, and an exec closes these."""
    _kernel.perform([operations.close_others(keep)], None)


def close_in_time(fds: "Iterable[int]") -> None:
    """Closes sockets of ours in which what a user made may lie unread, because nobody is left to take it: the last
    close waits for that as long as its maker likes, unless a signal comes.
    """
    _kernel.close_in_time(list(fds), _INTERRUPT_MICROSECONDS)
