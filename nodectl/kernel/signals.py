"""Sending signals to processes: nowhere else is it done. A signal goes to a process, not to a number: numbers are given
anew, and root's signal to one that is another's kills whoever has it now.

A descriptor stands for a process as long as it is open (pidfd_open(2)). A number from a list is looked at once more
when there is a descriptor for it: if it means another process by then, the descriptor's has gone. A child's number is
nobody else's until the child is collected. Whole cgroups are killed by cgroup.kill (`cgroup/tree.py`).
"""

import _signal
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import TypeVar

    T = TypeVar("T")

HUP, INT, TERM, KILL, CONT, STOP = 1, 2, 15, 9, 18, 19
_ENDING = (HUP, INT, TERM)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1  # seconds


def put_off() -> None:
    """From now on SIGHUP, SIGINT and SIGTERM do not end this process. Those whom it starts inherit that."""
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _ENDING)


def admit() -> None:
    """They come again, and those that have come meanwhile do so at once."""
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _ENDING)


def is_told_to_end() -> bool:
    """Whether one of them has come that was put off."""
    return not _signal.sigpending().isdisjoint(_ENDING)


async def until_end(serving: "Awaitable[T]") -> "T":
    """What `asyncio.run` is to run where a process has something to do after it. Who ends a process may say so twice;
    an event loop that closes gives its signals their defaults back, and the second one would cut off the rest.
    """
    try:
        return await serving
    finally:
        put_off()


def send(pidfd: int, number: int) -> bool:
    """To the process that the descriptor stands for. False when it has gone. Raises OSError."""
    try:
        _signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    return True


def send_listed(pid: int, number: int, belongs: "Callable[[int], bool]") -> bool:
    """To a process that was found under this number and still belongs where it was looked for: `belongs(pid)`. False
    when there is none any more. Raises OSError.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        return belongs(pid) and send(pidfd, number)
    finally:
        os.close(pidfd)


def send_each(listed: "Callable[[], Iterable[int]]", number: int, belongs: "Callable[[int], bool]") -> None:
    """To every process that `listed` names, and with SIGKILL to those that it names when it is asked once more."""
    known: set[int] = set()
    while fresh := set(listed()) - known:
        for pid in fresh:
            send_listed(pid, number, belongs)
        if number != KILL:
            return
        known |= fresh


def kill_each(listed: "Callable[[], list[int]]", belongs: "Callable[[int], bool]", *, rounds: int) -> list[int]:
    """SIGKILL to every process that `listed` names, until it names none; those that it still names at the end."""
    pause = _FIRST_PAUSE
    for _ in range(rounds):
        if not listed():
            return []
        send_each(listed, KILL, belongs)
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
    return listed()


def send_child(pid: int, number: int) -> bool:
    """To a child of the caller's, where it has not been collected. Raises OSError."""
    try:
        return send_listed(pid, number, _is_child)
    except OSError:  # no descriptor is left
        if _is_child(pid):
            os.kill(pid, number)
            return True
        return False


def send_group_of_child(pid: int, number: int) -> bool:
    """To the process group that such a child leads; False where it leads none. Raises OSError."""
    try:
        if _is_child(pid):
            os.killpg(pid, number)
            return True
    except ProcessLookupError:
        pass  # it has no group of its own yet
    return False


def kill_own_group() -> None:
    """The caller and its process group end."""
    os.killpg(0, KILL)


def _is_child(pid: int) -> bool:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
