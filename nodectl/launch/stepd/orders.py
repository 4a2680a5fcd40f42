"""The orders of a stepd: how the stepd learns which step to run, and how a kept stepd gets another step.

A stepd without plugins that could leave anything behind is kept: it serves further steps of the same user, never of
another one. It waits outside of all jobs' cgroups, with nothing open but the socket to its forkserver. It ends when no
order comes, when the forkserver has ended, or when the last step may have left something behind.
`nodectl/service/daemon/processes/warm_runners.py` decides which steps may use a kept stepd. Runs in the forkserver and
in the stepd, as root.
"""

import _signal
import _socket
import gc
import os

import prctl

from nodectl import messages
from nodectl.kernel import children, pseudo_file
from nodectl.kernel.closing import close_all_but
from nodectl.kernel.own_pages import own_pages
from nodectl.launch import container
from nodectl.launch.stepd.run import Descriptors
from nodectl.launch.streams import client_streams
from nodectl.model.step import Step
from nodectl.model.wire import lean_json
from nodectl.model.wire.framing import LONGEST_ORDER, MAX_DESCRIPTORS, DescriptorsLost, receive_packet
from nodectl.spank import job_info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodectl.launch.stepd.run import Run

WAITS = b"waits"  # a stepd's message to its forkserver
WAITING = "nodectl-runner"  # the name of a process that waits
_MOST_STEPS = 1000  # that one stepd serves: its end gives back any unknown leak of a step
_OF_ONE_STEP = 1  # the oldest garbage generation that holds a step's objects


class Unreadable(Exception):
    """The step's spec file is missing or malformed."""


class ForkedAhead:
    """The socket to the forkserver, in a stepd forked ahead of the order (`nodectl/launch/forkserver/spare.py`).

    The stepd reports over it that its tasks have started, and, until the forkserver knows them, which pages it has
    touched.
    """

    __slots__ = ("_link", "_teaches")

    def __init__(self, link: "_socket.socket", *, teaches: bool) -> None:
        self._link = link
        self._teaches = teaches

    def fd(self) -> int:
        """Return the socket's descriptor, which no task needs."""
        return self._link.fileno()

    def tasks_begin(self) -> None:
        """Tell the forkserver about the start of the tasks: the fork of the next spare now disturbs nothing."""
        if not self._teaches:
            try:
                self._link.shutdown(_socket.SHUT_RDWR)
            except OSError:
                pass  # the forkserver has ended, or did not wait so long

    def step_ends(self) -> None:
        """Tell the forkserver which pages the stepd has touched."""
        if not self._teaches:
            return
        try:
            self._link.send(own_pages(), _socket.MSG_NOSIGNAL | _socket.MSG_DONTWAIT)
        except OSError:
            pass  # the forkserver has ended, or a plugin has given the stepd a root without a /proc


class Order:
    """An order to run a step.

    `stem` is the path of the step's files without their suffixes, `runners` the cgroup of stepds that are in no step's
    cgroup.
    """

    __slots__ = ("fds", "runners", "stem", "step")

    def __init__(self, request: "Mapping[str, object]", fds: "list[int]") -> None:
        """Read the step's spec file. Raises Unreadable."""
        spec = str(request["spec"])
        try:
            self.step = Step.from_json(lean_json.load_object(pseudo_file.read(spec)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Unreadable(f"the file of a step cannot be read: {spec}: {error}") from None
        self.runners = str(request["runners"])
        self.stem = spec.removesuffix(".json")
        job_info.STEPS[0] = os.path.dirname(spec)
        if not request["trace"]:
            fds = [-1, *fds[1:]]  # it is open without a trace, too, for its lock
        others = [*fds]
        lifeline = others.pop() if self.step.within else -1
        views = others.pop() if self.step.has_viewers else -1
        self.fds = Descriptors(others, request.get("client"), lifeline, views)  # type: ignore[arg-type]  # our own daemon's words


def receive(channel: "_socket.socket", flags: int = 0) -> tuple[bytes, list[int]]:
    """Receive an order with the descriptors; b"" when no sender is left. Raises OSError.

    Raises DescriptorsLost where this process has no room for the descriptors. Then the order, with all of them, stays
    in the channel (MSG_PEEK).
    """
    flags |= _socket.MSG_PEEK
    try:
        data, fds = receive_packet(channel, LONGEST_ORDER, MAX_DESCRIPTORS, flags)
    except ConnectionResetError:
        # The sender ended without reading our last word. This is reported once; earlier orders can still be read.
        data, fds = receive_packet(channel, LONGEST_ORDER, MAX_DESCRIPTORS, flags)
    if data:
        drop(channel)
    return data, fds


def drop(channel: "_socket.socket") -> None:
    """Remove the order that `receive` has found from the channel. Raises OSError."""
    try:
        channel.recv(1)
    except ConnectionResetError:  # as above: the sender has ended meanwhile, and its order is still there
        channel.recv(1)


class Orders:
    """The socket over which a kept stepd gets further orders, each within some seconds of the last step's end."""

    __slots__ = ("_left", "_link", "_seconds", "_waits")

    def __init__(self, link: "_socket.socket", seconds: float) -> None:
        self._link = link
        self._seconds = seconds
        self._left = _MOST_STEPS
        self._waits = False

    def step_over(self, run: "Run") -> None:
        """Decide whether the stepd waits for another step, after the result of a step is saved and sent.

        If the step has left nothing behind, the stepd tells the forkserver that it waits, and closes everything of the
        step. Otherwise the stepd is to end in the step's cgroup, like a stepd that is not kept: closing its descriptors
        may take long, and emptying the cgroup kills this stepd, too.
        """
        self._left -= 1
        self._waits = self._left > 0 and _is_clean(run)
        if not self._waits:
            if run.group is not None:
                run.helpers_group().add(0)
            return
        _signal.set_wakeup_fd(-1)
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
        messages.listen(messages.to_log)
        container.forget(run.step.job_id)
        try:
            self._link.send(WAITS, _socket.MSG_NOSIGNAL | _socket.MSG_DONTWAIT)
        except OSError:
            self._waits = False  # the forkserver has ended
            return
        run.links.close()
        run.fds.client = None  # none of its descriptors is open any more
        close_all_but((*pseudo_file.held(), self._link.fileno()))
        prctl.set_name(WAITING)

    def next(self) -> Order | None:
        """Wait for another order. Returns None when there is none: the stepd is to end."""
        if not self._waits:
            return None
        gc.collect(_OF_ONE_STEP)  # the last step's objects; all others are frozen, or stay
        self._link.settimeout(self._seconds)
        try:
            data, fds = receive(self._link)
        except TimeoutError:
            self._link.shutdown(_socket.SHUT_RD)  # from here on the forkserver is refused
            self._link.setblocking(False)
            data, fds = self._last()
        except DescriptorsLost:
            return None  # the forkserver takes the order back when this process has ended
        return Order(lean_json.load_object(data), fds) if data else None

    def _last(self) -> tuple[bytes, list[int]]:
        """Receive an order sent in the last moment before the refusal of orders."""
        try:
            return receive(self._link)
        except (BlockingIOError, DescriptorsLost):
            return b"", []


def _is_clean(run: "Run") -> bool:
    """Return True if nothing is left of the step but memory of the step's user and descriptors made by root."""
    return (
        not run.caller.threaded
        and not run.unkillable
        and children.next_to_collect() == children.NO_CHILD
        and not _has_another_share()
        and not run.fds.of_user
        and (run.client_streams < 0 or not client_streams.are_left(run.client_streams))
    )


def _has_another_share() -> bool:
    """Return True if a task has changed the session's share of the CPUs (sched(7), autogroups), as any process may.

    The session is this process's, and that of all tasks that it will start.
    """
    try:
        return not pseudo_file.read("/proc/self/autogroup").endswith(b" nice 0\n")
    except OSError:
        return False  # a kernel without
