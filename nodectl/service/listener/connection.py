"""A connection of a session process: the client's unanswered calls and the bytes to send."""

import _socket
import errno
import select

from nodectl.model.wire import frames, framing

_MOST_QUEUED = 64
_BEGUN_MS = 10_000  # limit for a stalled machine to start a step runner, or to drop the order for one


class ClientConnection:
    """A client's connection. `fds` came with the present call; `theirs` are the descriptors to send with the reply."""

    __slots__ = (
        "_longest",
        "answer",
        "busy",
        "calls",
        "ending",
        "fds",
        "gone",
        "inbox",
        "launching",
        "not_handed_over",
        "number",
        "out",
        "sent_all",
        "sock",
        "theirs",
        "way",
        "withdraws",
    )  # fmt: skip

    def __init__(self, number: int, sock: "_socket.socket", limit: int) -> None:
        sock.setblocking(False)
        self.number = number
        self.sock = sock
        self.inbox = framing.Inbox(limit)
        self._longest = limit
        self.calls: list[tuple[bytes, list[int]]] = []
        self.out = bytearray()
        self.busy = False
        self.launching = self.withdraws = False
        self.fds: list[int] = []
        self.theirs: list[int] = []
        self.way: _socket.socket | None = None  # the socket to which the call's descriptors go
        self.not_handed_over = 0  # the errno, where the kernel refused to send the call's descriptors
        self.answer = b""  # the reply, if the daemon ends without a reply
        self.ending = False  # closes when `out` has been written
        self.sent_all = False  # the client sends nothing more, and may still read
        self.gone = False

    @property
    def waiting(self) -> int:
        """The size in bytes of the whole calls not yet passed on."""
        return sum(len(text) for text, _ in self.calls)

    def take_what_came(self) -> list[int]:
        """Return the descriptors of the finished call. The caller closes the descriptors."""
        fds, self.fds = self.fds, []
        self.not_handed_over = 0
        if self.way is not None:
            fds.append(self.way.detach())
            self.way = None
        return fds

    def close_theirs(self) -> None:
        """Close the descriptors of the reply. The daemon has made them, so that nothing delays this."""
        framing.close(self.theirs)
        self.theirs = []

    def is_over(self) -> bool:
        """Return True if both directions of the connection are closed, whether or not poll(2) has told so before."""
        poll = select.poll()
        poll.register(self.sock.fileno(), 0)
        return bool(poll.poll(0))

    def check_bounds(self) -> None:
        """Check the limits on calls, bytes and descriptors queued behind a call. Raises BrokenWire."""
        if len(self.calls) > _MOST_QUEUED:
            raise framing.BrokenWire(f"more than {_MOST_QUEUED} calls without waiting for a reply")
        if len(self.calls) > 1 and self.waiting > self._longest:
            raise framing.BrokenWire(f"calls of more than {self._longest} bytes without waiting for a reply")
        if sum(len(fds) for _, fds in self.calls) > framing.MAX_DESCRIPTORS:
            raise framing.BrokenWire(f"more than {framing.MAX_DESCRIPTORS} descriptors without waiting for a reply")

    def hand_over(self, fds: list[int], answer: bytes) -> None:
        """Send the call's descriptors to the socket `fds[0]`; keep the rest of `fds` for the reply.

        A launch's descriptors are sent when the launch is answered, because other processes may still have the
        receiving end. `answer` is the reply to use if the daemon gives none.
        """
        self.way = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fds[0])
        self.theirs += fds[1:]
        self.answer = answer
        if not self.launching:
            self.send_what_came()

    def answered(self) -> int:
        """End the call; for a launch, send the descriptors. Return 0, or the errno if the kernel refused to send."""
        if self.launching and self.way is not None:
            self.send_what_came()
        self.busy = self.launching = False
        return self.not_handed_over

    def send_what_came(self) -> None:
        """Send the call's descriptors. If the kernel refuses, `not_handed_over` is the errno."""
        assert self.way is not None  # noqa: S101  # the daemon has told it
        try:
            framing.hand_over(self.way, self.fds)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the receiving process has ended
        except OSError as error:
            self.not_handed_over = error.errno or errno.EIO

    def has_begun(self) -> bool:
        """Return True if a step runner holds the receiving end and waits for the descriptors.

        Return False if no process holds it, so that no step will begin.
        """
        if self.way is None:
            return False
        poll = select.poll()
        poll.register(self.way.fileno(), select.POLLIN)
        try:
            return bool(poll.poll(_BEGUN_MS)) and self.way.recv(1) == frames.BEGUN
        except OSError:
            return False
