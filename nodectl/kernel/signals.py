"""The only place that sends signals to processes. A signal goes to a process, not to a number.

The kernel reuses numbers, and a signal of root's to a reused number kills the wrong process. A descriptor stands for a
process as long as it is open (pidfd_open(2)). A number from a list is checked once more when there is a descriptor for
it: if the number means another process by then, the descriptor's process has gone. A child's number is not reused until
the child is collected. Whole cgroups are killed by cgroup.kill (`cgroup/tree.py`).
"""

import _signal
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import TypeVar

    T = TypeVar("T")

HUP, INT, KILL, TERM, CONT, STOP, TSTP = 1, 2, 9, 15, 18, 19, 20
_ENDING = (HUP, INT, TERM)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1  # seconds


def put_off() -> None:
    """Block SIGHUP, SIGINT and SIGTERM in this process and in processes started from now on."""
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _ENDING)


def admit() -> None:
    """Unblock SIGHUP, SIGINT and SIGTERM. Pending signals arrive at once."""
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _ENDING)


def is_told_to_end() -> bool:
    """Return True if a blocked SIGHUP, SIGINT or SIGTERM is pending."""
    return not _signal.sigpending().isdisjoint(_ENDING)


async def until_end(serving: "Awaitable[T]") -> "T":
    """Await `serving`, then block SIGHUP, SIGINT and SIGTERM: for `asyncio.run` in a process with work left afterwards.

    A user may send the signal to end twice; an event loop that closes gives its signals their defaults back, and the
    second signal would cut off the rest.
    """
    try:
        return await serving
    finally:
        put_off()


def send(pidfd: int, number: int) -> bool:
    """Send a signal to the process of this descriptor. Returns False when the process has gone. Raises OSError."""
    try:
        _signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    return True


def send_listed(pid: int, number: int, belongs: "Callable[[int], bool]") -> bool:
    """Send a signal to a process listed under this number. Returns False when the process has gone. Raises OSError.

    `belongs(pid)` checks that the process is still where it was found.
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
    """Send a signal to every process named by `listed`; with SIGKILL list again until no new process is named."""
    known: set[int] = set()
    while fresh := set(listed()) - known:
        for pid in fresh:
            send_listed(pid, number, belongs)
        if number != KILL:
            return
        known |= fresh


def kill_each(listed: "Callable[[], list[int]]", belongs: "Callable[[int], bool]", *, rounds: int) -> list[int]:
    """Send SIGKILL to every process named by `listed`, until none is left. Returns the processes left at the end."""
    pause = _FIRST_PAUSE
    for _ in range(rounds):
        if not listed():
            return []
        send_each(listed, KILL, belongs)
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
    return listed()


def send_child(pid: int, number: int) -> bool:
    """Send a signal to a child of the caller's, unless already collected. Raises OSError."""
    try:
        return send_listed(pid, number, _is_child)
    except OSError:  # no descriptor is left
        if _is_child(pid):
            os.kill(pid, number)
            return True
        return False


def send_group_of_child(pid: int, number: int) -> bool:
    """Send a signal to the process group led by a child. Returns False if there is none. Raises OSError."""
    try:
        if _is_child(pid):
            os.killpg(pid, number)
            return True
    except ProcessLookupError:
        pass  # it has no group of its own yet
    return False


def kill_own_group() -> None:
    """Kill the caller's process group, with the caller."""
    os.killpg(0, KILL)


def _is_child(pid: int) -> bool:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
