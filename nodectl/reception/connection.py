"""One connection of a desk: what has come and is not answered, what is to go out."""

import _socket
import errno
import select

from nodectl.wire import frames, framing

_MOST_QUEUED = 64
_BEGUN_MS = 10_000  # what a stalled machine may take to start a step runner, or to drop what was meant for it


class Client:
    """One connection. `fds` came with the call under way, `theirs` will go with its reply."""

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
        self.way: _socket.socket | None = None  # to where the call's descriptors have gone
        self.not_handed_over = 0  # the errno, where the kernel refused to send the call's descriptors
        self.answer = b""  # the reply, should the daemon end before it gives one
        self.ending = False  # closes when `out` has been written
        self.sent_all = False  # it sends nothing more, and may still read
        self.gone = False

    @property
    def waiting(self) -> int:
        """Bytes of calls that are whole and have not been passed on."""
        return sum(len(text) for text, _ in self.calls)

    def take_what_came(self) -> list[int]:
        """The descriptors of the call that is over; the caller closes them."""
        fds, self.fds = self.fds, []
        self.not_handed_over = 0
        if self.way is not None:
            fds.append(self.way.detach())
            self.way = None
        return fds

    def check_bounds(self) -> None:
        """What waits behind a call is no more than one message may be. Raises BrokenWire."""
        if len(self.calls) > _MOST_QUEUED:
            raise framing.BrokenWire(f"more than {_MOST_QUEUED} calls without waiting for a reply")
        if len(self.calls) > 1 and self.waiting > self._longest:
            raise framing.BrokenWire(f"calls of more than {self._longest} bytes without waiting for a reply")
        if sum(len(fds) for _, fds in self.calls) > framing.MAX_DESCRIPTORS:
            raise framing.BrokenWire(f"more than {framing.MAX_DESCRIPTORS} descriptors without waiting for a reply")

    def hand_over(self, fds: list[int], answer: bytes) -> None:
        """Send the call's descriptors where the first of `fds` leads; those of a launch when it is answered, because
        others may still have the end to which they go. `answer` is for when the daemon gives none.
        """
        self.way = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fds[0])
        self.theirs += fds[1:]
        self.answer = answer
        if not self.launching:
            self.send_what_came()

    def answered(self) -> int:
        """The call is over: sends the descriptors of a launch. Returns the errno where the kernel refused to, or 0."""
        if self.launching and self.way is not None:
            self.send_what_came()
        self.busy = self.launching = False
        return self.not_handed_over

    def send_what_came(self) -> None:
        """Where the kernel does not send them, `not_handed_over` says why."""
        assert self.way is not None  # noqa: S101  # the daemon has told it
        try:
            framing.hand_over(self.way, self.fds)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the process that was to get them has ended
        except OSError as error:
            self.not_handed_over = error.errno or errno.EIO

    def has_begun(self) -> bool:
        """True when a step runner has the other end of the way, and gets the descriptors; False when nobody has it, and
        no step will begin.
        """
        if self.way is None:
            return False
        poll = select.poll()
        poll.register(self.way.fileno(), select.POLLIN)
        try:
            begun = bool(poll.poll(_BEGUN_MS)) and self.way.recv(1) == frames.BEGUN
        except OSError:
            return False
        if begun:
            self.send_what_came()
        return begun
