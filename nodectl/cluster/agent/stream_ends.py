"""Standard streams for a part's tasks, and the agent's ends. A failure leaves no stream open."""

import os
import socket
from collections.abc import Callable

from nodectl.model.wire import framing

Ends = tuple[list[int], list[int]]


def pipes(*, wanted: bool) -> Ends:
    """Return standard streams for a step, and the agent's ends; /dev/null and no ends for unwatched output.

    Raises OSError.
    """
    return _made(_pipes if wanted else _nothing)


def of_terminal() -> Ends:
    """Return the standard streams of a step with a terminal, and the agent's end. Raises OSError."""
    return _made(_terminal)


def _made(make: Callable[[list[int], list[int]], None]) -> Ends:
    theirs: list[int] = []
    ours: list[int] = []
    try:
        make(theirs, ours)
    except OSError:
        framing.close([*theirs, *ours])
        raise
    return theirs, ours


def _pipes(theirs: list[int], ours: list[int]) -> None:
    for is_input in (True, False, False):
        reader, writer = os.pipe2(os.O_CLOEXEC)
        theirs.append(reader if is_input else writer)
        ours.append(writer if is_input else reader)


def _nothing(theirs: list[int], ours: list[int]) -> None:
    theirs.append(os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC))
    _twice_more(theirs)


def _terminal(theirs: list[int], ours: list[int]) -> None:
    our_end, their_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.append(our_end.detach())
    theirs.append(their_end.detach())
    _twice_more(theirs)


def _twice_more(fds: list[int]) -> None:
    for _ in range(2):
        fds.append(os.dup(fds[0]))
