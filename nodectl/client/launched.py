"""The state of the quick way: `nodectl` (c/step.c) has asked for the step, and executed Python, which continues.

The same process as the same user. The state lies in a file in memory, whose descriptor a variable names. Its first
line: version, the connection, the pipes of the step's events (-1 where there are none yet), the signals blocked, the
signals which came since the step was asked for, and the number of bytes to follow of the service's greeting, of its
reply, and of the events.
"""

import _socket
import posix as os  # the half in C: the other one is a millisecond of each step
from typing import TYPE_CHECKING

from nodectl.client.command import LAUNCHED, Failed, environ
from nodectl.client.signals import Signals
from nodectl.model.wire import framing

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSION = 2
_CHUNK = 65536


class Launched:
    """A launch begun by the quick way.

    `hello`: the service's greeting. `events`: event bytes already read. `signals`: the signals held for the step.
    """

    __slots__ = ("_fds", "_reply", "_sock", "events", "hello", "signals")

    def __init__(self, head: bytes, parts: bytes) -> None:
        """Parse the state. Raises OSError, ValueError, BrokenWire."""
        version, sock, events, commands, blocked, came, *sizes = head.split()
        if int(version) != _VERSION:
            raise ValueError("version")
        self._sock = int(sock)
        self._fds = [fd for fd in (int(events), int(commands)) if fd >= 0]
        for fd in (self._sock, *self._fds):
            os.set_inheritable(fd, False)
        hello, reply, _ = map(int, sizes)
        self.hello: Mapping[str, object] = framing.decode(parts[:hello].rstrip(b"\0"))["parameters"]  # type: ignore[assignment]
        self._reply = parts[hello : hello + reply]
        self.events = parts[hello + reply :]
        self.signals = Signals(_numbers(came), _numbers(blocked))

    def take_up(self, inbox: framing.Inbox) -> "_socket.socket":
        """Return the connection; put the data already received into the inbox."""
        inbox.feed(self._reply)
        inbox.descriptors += self._fds
        return _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, self._sock)


def _numbers(text: bytes) -> list[int]:
    return [number for number in map(int, text.split(b",")) if number]


def take() -> "Launched | None":
    """Read the state named by the variable, and remove the variable; return None where not set. Raises Failed."""
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
        return Launched(head, parts)
    except (OSError, ValueError, KeyError, framing.BrokenWire):
        raise Failed(f"{LAUNCHED}: nothing that this version of nodectl has left") from None
