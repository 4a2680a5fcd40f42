"""Child processes of the agent for copying between a pipe and a client's file.

Reading or writing a file may take as long as its server likes, and the agent must not wait. A child ends with its pipe,
or with the agent.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import NoReturn

import prctl

from nodectl.kernel import signals
from nodectl.kernel.closing import close_all_but

_CHUNK = 65536


def to(fd: int) -> tuple[int, int]:
    """Return the non-blocking end of a pipe and the pid of the child copying from the pipe to `fd`. Raises OSError."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    return writer, _start(reader, fd, theirs=reader, ours=writer)


def from_(fd: int) -> tuple[int, int]:
    """Return the non-blocking end of a pipe and the pid of the child copying from `fd` to the pipe. Raises OSError."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    return reader, _start(fd, writer, theirs=writer, ours=reader)


def _start(source: int, target: int, *, theirs: int, ours: int) -> int:
    """Fork the child and return the pid."""
    agent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(ours)
        os.close(theirs)
        raise
    if pid == 0:
        _copy(source, target, agent)
    os.close(theirs)
    os.set_blocking(ours, False)
    return pid


def _copy(source: int, target: int, agent: int) -> NoReturn:
    """Run the child process."""
    status = 1
    try:
        prctl.set_pdeathsig(signal.SIGKILL)
        if os.getppid() != agent:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # of terminal or agent: data under way is still written
        os.dup2(source, 0, inheritable=False)
        os.dup2(target, 1, inheritable=False)
        close_all_but()
        while data := os.read(0, _CHUNK):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(1, rest) :]
        status = 0
    finally:
        os._exit(status)


def when_ended(pid: int, then: Callable[[], None]) -> None:
    """Reap the child and call `then` at the child's end."""
    loop = asyncio.get_running_loop()
    pidfd = os.pidfd_open(pid)

    def ended() -> None:
        loop.remove_reader(pidfd)
        os.close(pidfd)
        os.waitpid(pid, os.WNOHANG)
        then()

    loop.add_reader(pidfd, ended)


def end(pid: int) -> None:
    """Kill the child, which may hang."""
    signals.send_child(pid, signals.KILL)
    when_ended(pid, lambda: None)
