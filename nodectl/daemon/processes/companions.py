"""The two interpreters that live as long as the daemon: the forkserver and the reception.

They are executed, not forked: they share nothing with the daemon but a channel, and their first order tells them all
that they need. So the daemon executes them before it has imported itself, and their imports run beside its own. This
module imports little.
"""

import _socket
import os
import sys

from nodectl.spank import preload, probe_variable

CHANNEL = 3  # a companion's descriptor of it
_OF_LOG = ("JOURNAL_STREAM",)  # by which it knows that its stderr is the journal's
_START = "import sys; sys.path[:0] = {path!r}; from {package} import main; main.main()"


class Companion:
    """A companion that waits for its first order: its pid, and our end of its channel."""

    __slots__ = ("channel", "pid")

    def __init__(self, pid: int, channel: int) -> None:
        self.pid = pid
        self.channel = channel


class Companions:
    """Both, for a daemon that begins."""

    __slots__ = ("forkserver", "reception")

    def __init__(self, forkserver: Companion, reception: Companion) -> None:
        self.forkserver = forkserver
        self.reception = reception


def begin() -> Companions:
    """Executes both. Raises OSError."""
    return Companions(begin_forkserver(), begin_reception())


def begin_forkserver() -> Companion:
    """Executes a forkserver. Raises OSError."""
    # As slurmstepd from slurmd: hooks call tools of the site's by their names.
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "LANG": "C.UTF-8",
        **probe_variable.environment(),
        **{name: os.environ[name] for name in _OF_LOG if name in os.environ},
    }
    preload.add(environment)
    return _execute("nodectl.forkserver", environment)


def begin_reception() -> Companion:
    """Executes a reception; what it prints goes to the log. Raises OSError."""
    return _execute("nodectl.reception", {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}, (os.POSIX_SPAWN_DUP2, 2, 1))


def _execute(package: str, environment: dict[str, str], *actions: tuple[int, int, int]) -> Companion:
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        # One that is CHANNEL already would be closed by the exec: dup2 onto itself leaves the flag as it is.
        os.set_inheritable(theirs.fileno(), theirs.fileno() == CHANNEL)
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", _START.format(path=[p for p in sys.path if p], package=package)],
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
