"""Where the quick way has come to: `nodectl` (c/step.c) has asked for the step, and executed Python, which goes on.

The same process as the same user: what is handed over lies in a file in memory, whose descriptor a variable names. Its
first line: version, the connection, the pipes of the step's events (-1 where there are none yet), the signals that
wait, and how many bytes follow of the service's greeting, of its reply, and of the events.
"""

import _signal
import _socket
import posix as os  # the half in C: the other one is a millisecond of each step

from nodectl.client.command import LAUNCHED, Failed, environ
from nodectl.wire import framing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSION = 1
_CHUNK = 65536


class Launched:
    """`hello`: the service's greeting. `events`: what was read of them. `runs`: there is a step, and the signals that
    came since it was asked for are for it.
    """

    __slots__ = ("_fds", "_reply", "_signals", "_sock", "events", "hello", "runs")

    def __init__(self, head: bytes, parts: bytes) -> None:
        """Raises OSError, ValueError, BrokenWire."""
        version, sock, events, commands, signals, *sizes = head.split()
        if int(version) != _VERSION:
            raise ValueError("version")
        self._sock = int(sock)
        self._fds = [fd for fd in (int(events), int(commands)) if fd >= 0]
        for fd in (self._sock, *self._fds):
            os.set_inheritable(fd, False)
        self._signals = [number for number in map(int, signals.split(b",")) if number]
        hello, reply, _ = map(int, sizes)
        self.hello: Mapping[str, object] = framing.decode(parts[:hello].rstrip(b"\0"))["parameters"]  # type: ignore[assignment]
        self._reply = parts[hello : hello + reply]
        self.events = parts[hello + reply :]
        self.runs = self._reply.endswith(b"\0") and len(self._fds) == 2

    def take_up(self, inbox: framing.Inbox) -> "_socket.socket":
        """The connection; what has come on it goes into its inbox."""
        inbox.feed(self._reply)
        inbox.descriptors += self._fds
        return _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, self._sock)

    def let_signals_come(self) -> None:
        """From now on somebody takes them, those too that have come since."""
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, self._signals)


def take() -> "Launched | None":
    """What the variable leads to, which then is no more; None where there is none. Raises Failed."""
    if LAUNCHED not in environ():
        return None
    word = environ().pop(LAUNCHED)
    os.environ.pop(LAUNCHED.encode(), None)
    os.unsetenv(LAUNCHED)
    try:
        fd = int(word)
        data = b"".join(iter(lambda: os.read(fd, _CHUNK), b""))
        os.close(fd)
        head, _, parts = data.partition(b"\n")
        found = Launched(head, parts)
    except (OSError, ValueError, KeyError, framing.BrokenWire):
        raise Failed(f"{LAUNCHED}: nothing that this version of nodectl has left") from None
    if not found.runs:
        found.let_signals_come()
    return found
