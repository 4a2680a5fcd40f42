"""The spare: a stepd forked ahead of need, for the next step without a warm runner.

The spare has served no step, and serves one. It is forked after an order, while that order's step begins; so the next
order does not wait for a fork, nor for the pages that a step's stepd copies because Python counts references in them:
the spare has them already. A stepd that was a spare without knowing the pages reports them. With its order the spare
goes on as a new process in the step's cgroup (`_kernel.move_into`), and is then like a stepd forked there.

There is a spare while steps follow each other, and it fits the stack, the container's plugin and the confinement of the
last step. Whatever happens to the spare costs a fork.
"""

import _socket
import errno
import os
import select
import time

import prctl

from nodectl.kernel import _kernel
from nodectl.kernel.own_pages import touch
from nodectl.launch.cgroup import tree
from nodectl.launch.stepd.orders import ForkedAhead, receive
from nodectl.launch.stepd.start import NO_CLONE_INTO_CGROUP
from nodectl.model.wire import lean_json
from nodectl.model.wire.framing import send_some

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
    """The forkserver's spare, at most a single process, for steps in succession within `seconds`."""

    __slots__ = ("_asked", "_begins", "_fit", "_lesson", "_link", "_pages", "_seconds", "_works")

    def __init__(self, seconds: float, *, wanted: bool) -> None:
        self._works = wanted  # until the kernel cannot
        self._seconds = seconds
        self._asked = -seconds  # when a spare was last wanted
        self._fit: Fit | None = None
        self._link: _socket.socket | None = None  # its closing ends a spare that waits
        self._begins: _socket.socket | None = None  # link of the last spare: closes when its step's tasks begin
        self._lesson: _socket.socket | None = None
        self._pages = b""

    def serve(self, order: bytes, fds: "Sequence[int]", fit: "Fit") -> int:
        """Hand the order to a fitting spare. Return the pid of the stepd, or 0 if no process has the order.

        Raises OSError if the spare does not answer, because it was stopped: then it is unknown whether it has the
        order.
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
        """Return True if another step without a runner is likely to follow soon. Called after each such step."""
        last, self._asked = self._asked, time.monotonic()
        return self._works and self._asked - last < self._seconds

    def let_step_begin(self, channel: "_socket.socket") -> None:
        """Wait some milliseconds at most for the start of the last step's tasks, or for an order.

        The next spare would compete for the CPU of the last spare and then of its task.
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
        """Fork the spare into this cgroup. Return the spare's end of the link there, None in the forkserver.

        Raises OSError.
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
        """In the spare, before all else: copy the pages which Python would copy singly later."""
        touch(self._pages)

    def wait(self, link: "_socket.socket", mount: str) -> "tuple[Mapping[str, object], list[int], ForkedAhead]":
        """In the spare: wait for the order, then move to the step's cgroup. Return order, descriptors and link.

        The process ends if no order comes.
        """
        prctl.set_name(WAITING)
        link.settimeout(self._seconds)
        try:
            data, fds = receive(link)
        except OSError:  # none has come in time; or with more descriptors than there is room for
            os._exit(0)
        if not data:
            os._exit(0)  # the forkserver has another use for the memory, or has ended
        request = lean_json.load_object(data)
        try:
            _go_on_in(tree.Group(f"{mount}{request['cgroup']}").make(), link)
        except OSError as error:
            if error.errno in NO_CLONE_INTO_CGROUP:
                link.send(_CANNOT, _socket.MSG_NOSIGNAL)
            os._exit(0)  # the forkserver tries the same itself, and reports the error
        return request, fds, ForkedAhead(link, teaches=not self._pages)

    def let_go(self) -> None:
        """Give up the spare; in a forked process, close the descriptors of the spare."""
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
                return  # the pid again: the spare was killed while it reported the pid
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
    """Go on as a new process in the cgroup.

    The old process reports the new pid to the forkserver and ends. The forkserver serves all users, and must not wait
    until a job's cgroup, which its user controls, lets a process run.
    """
    fd = group.open()
    _kernel.move_into(fd, link.fileno())
    os.close(fd)
