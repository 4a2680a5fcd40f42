"""The companions, two interpreters with the lifetime of the daemon: the forkserver and the listener.

They are executed, not forked. They share nothing with the daemon but a channel, and their first order holds everything
they need. So the daemon executes them before it has imported its own modules, and their imports run beside its own.
This module imports little.
"""

import _socket
import os
import sys

from nodectl.model import lean_code
from nodectl.spank import preload, probe_variable

CHANNEL = 3  # a companion's descriptor of its channel
_OF_LOG = ("JOURNAL_STREAM",)  # by this the forkserver knows that its stderr is the journal's
_START = "import sys; sys.path[:0] = {path!r}; {boot}; main.main()"


class Companion:
    """A companion waiting for the first order: the pid, and our end of the channel."""

    __slots__ = ("channel", "pid")

    def __init__(self, pid: int, channel: int) -> None:
        self.pid = pid
        self.channel = channel


class Companions:
    """Both companions of a starting daemon."""

    __slots__ = ("forkserver", "listener")

    def __init__(self, forkserver: Companion, listener: Companion) -> None:
        self.forkserver = forkserver
        self.listener = listener


def begin() -> Companions:
    """Execute both companions. Raises OSError."""
    return Companions(begin_forkserver(), begin_listener())


def begin_forkserver() -> Companion:
    """Execute a forkserver. Raises OSError."""
    # As slurmstepd from slurmd: hooks call tools of the site's by their names.
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "LANG": "C.UTF-8",
        **probe_variable.environment(),
        **{name: os.environ[name] for name in _OF_LOG if name in os.environ},
    }
    preload.add(environment)
    return _execute("nodectl.launch.forkserver", environment)


def begin_listener() -> Companion:
    """Execute a listener, with stdout and stderr in the log. Raises OSError."""
    return _execute(
        "nodectl.service.listener", {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}, (os.POSIX_SPAWN_DUP2, 2, 1)
    )


def _execute(package: str, environment: dict[str, str], *actions: tuple[int, int, int]) -> Companion:
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    start = _START.format(path=[p for p in sys.path if p], boot=lean_code.boot(package))
    try:
        # The exec would close a descriptor already at CHANNEL: dup2 onto itself leaves the flag unchanged.
        os.set_inheritable(theirs.fileno(), theirs.fileno() == CHANNEL)
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", start],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                *actions,
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), CHANNEL),
            ],
        )
        return Companion(pid, ours.detach())
    finally:
        ours.close()
        theirs.close()
