"""The spare: a stepd that is forked ahead of need, for the next step that no runner serves.

It has served nobody, and serves one step. It is forked behind an order, while that one's step begins; so the next order
does not wait for a fork, nor for the pages that a step's stepd copies because Python counts references in them: the
spare has them already. Which these are a stepd says that was a spare without knowing them. With its order it goes on as
a new process in the step's cgroup (`_kernel.move_into`), and is what a stepd is that was forked there.

It is there while steps follow each other, and fits the stack, the container's plugin and the confinement of the last
one. Whatever happens to it costs a fork.
"""

import _socket
import errno
import os
import select
import time

import prctl

from nodectl.cgroup import tree
from nodectl.kernel import _kernel
from nodectl.kernel.own_pages import touch
from nodectl.stepd.orders import ForkedAhead, receive
from nodectl.stepd.start import NO_CLONE_INTO_CGROUP
from nodectl.wire import lean_json
from nodectl.wire.framing import send_some

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Fit = tuple[str, str, object]  # how programs are confined; the container's plugin; the stack as it was made ready

WAITING = "nodectl-spare"  # the name of its process
_LONGEST_ANSWER = 5.0  # seconds: less than clients wait for an answer
_BEGINS_WITHIN = 5  # milliseconds; a step that takes longer does not compete for CPUs with itself
_CANNOT = b"cannot"
_LONGEST_WORD = 64
_LONGEST_LESSON = 1 << 17


class Spare:
    """The forkserver's one spare, or none: for steps of which the next one comes within some seconds."""

    __slots__ = ("_asked", "_begins", "_fit", "_lesson", "_link", "_pages", "_seconds", "_works")

    def __init__(self, seconds: float, *, wanted: bool) -> None:
        self._works = wanted  # until the kernel cannot
        self._seconds = seconds
        self._asked = -seconds  # when one was last wanted
        self._fit: Fit | None = None
        self._link: _socket.socket | None = None  # its closing ends a spare that waits
        self._begins: _socket.socket | None = None  # of the last one: it ends when the tasks of its step begin
        self._lesson: _socket.socket | None = None
        self._pages = b""

    def serve(self, order: bytes, fds: "Sequence[int]", fit: "Fit") -> int:
        """Hands the order to the spare, if there is one that fits. Returns the pid of its stepd, or 0: then nobody has
        the order. Raises OSError where nobody knows, because it is there and does not answer: somebody has stopped it.
        """
        link, self._link = self._link, None
        if link is None:
            return 0
        if self._fit is None or self._fit[:2] != fit[:2] or self._fit[2] is not fit[2]:
            link.close()
            return 0
        try:
            send_some(link, order, fds)
        except OSError:
            link.close()
            return 0  # it has ended
        word = _answer(link)
        self._works = word != _CANNOT
        if not word.isdigit():
            link.close()
            return 0
        if self._pages or self._lesson is not None:
            self._begins = link
        else:
            link.setblocking(False)  # its step may run for days
            self._lesson = link
        return int(word)

    def is_wanted(self) -> bool:
        """Asked after each step that had to have a stepd of its own: whether another such step is likely to follow."""
        last, self._asked = self._asked, time.monotonic()
        return self._works and self._asked - last < self._seconds

    def let_step_begin(self, channel: "_socket.socket") -> None:
        """Waits until the tasks of the last step begin, or for an order, some milliseconds at most. The next spare
        would have the CPU on which the first one goes on, and then that of its task.
        """
        link, self._begins = self._begins, None
        poll = select.poll()
        poll.register(channel, select.POLLIN)
        if link is not None:
            poll.register(link, select.POLLIN)
        poll.poll(_BEGINS_WITHIN)
        if link is not None:
            link.close()

    def fork(self, group: tree.Group, fit: "Fit") -> "_socket.socket | None":
        """Forks it into this cgroup. Returns its end of the link in its process, None in the forkserver. Raises
        OSError.
        """
        self._learn()
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            pid = group.make().fork()
        except OSError as error:
            ours.close()
            theirs.close()
            self._works = error.errno not in NO_CLONE_INTO_CGROUP
            raise
        if pid == 0:
            ours.close()
            return theirs
        theirs.close()
        self._link, self._fit = ours, fit
        return None

    def settle(self) -> None:
        """In its process, before all else: Python would copy these pages one after the other."""
        touch(self._pages)

    def wait(self, link: "_socket.socket", mount: str) -> "tuple[Mapping[str, object], list[int], ForkedAhead]":
        """In its process: waits for the order, and goes on in the step's cgroup. Returns the order and its descriptors.
        Ends where no order comes.
        """
        prctl.set_name(WAITING)
        link.settimeout(self._seconds)
        try:
            data, fds = receive(link)
        except TimeoutError:
            os._exit(0)
        if not data:
            os._exit(0)  # the forkserver has another use for the memory, or has ended
        request = lean_json.load_object(data)
        try:
            _go_on_in(tree.Group(f"{mount}{request['cgroup']}").make(), link)
        except OSError as error:
            if error.errno in NO_CLONE_INTO_CGROUP:
                link.send(_CANNOT, _socket.MSG_NOSIGNAL)
            os._exit(0)  # the forkserver tries what failed, and reports it
        return request, fds, ForkedAhead(link, teaches=not self._pages)

    def let_go(self) -> None:
        """There is none any more; in a fork: closes what it has of it."""
        for link in (self._link, self._lesson, self._begins):
            if link is not None:
                link.close()
        self._link = self._lesson = self._begins = None

    def _learn(self) -> None:
        if self._lesson is None:
            return
        try:
            pages = self._lesson.recv(_LONGEST_LESSON)
            if pages.isdigit():
                return  # its number once more: the spare was killed as it told it
            self._pages = pages
        except BlockingIOError:
            return  # its step still runs
        except OSError:
            self._pages = b""
        self._lesson.close()
        self._lesson = None


def _answer(link: "_socket.socket") -> bytes:
    link.settimeout(_LONGEST_ANSWER)
    try:
        return link.recv(_LONGEST_WORD)
    except TimeoutError:
        link.close()
        raise OSError(errno.ETIMEDOUT, "it was forked ahead of need, and does not answer") from None
    except OSError:
        return b""  # it has ended


def _go_on_in(group: tree.Group, link: "_socket.socket") -> None:
    """What tells the forkserver the new number is the process that ends: the forkserver serves everybody, and when a
    job's cgroup lets a process run is its user's business.
    """
    fd = group.open()
    _kernel.move_into(fd, link.fileno())
    os.close(fd)
