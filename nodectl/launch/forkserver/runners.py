"""The warm runners: stepds which serve several steps of a user in succession.

A runner says when it waits for another step (`nodectl/launch/stepd/orders.py`). The forkserver never waits for that
message; it looks for it when there is an order. The number of runners is bounded, for all users and for each, because
they are charged to no job.

The forkserver keeps a copy of the runner's end, too. So an order lies there, with its descriptors, until the runner
takes it, even if the runner has ended meanwhile: then the forkserver takes the order back. An order that a runner has
taken is the runner's own.
"""

import _socket
import os
import select

from nodectl.kernel import _kernel
from nodectl.launch.forkserver.spare import Spare
from nodectl.launch.stepd.orders import WAITS, receive
from nodectl.model.wire.framing import DescriptorsLost, send_some

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Whose = tuple[int, str]  # a user's id, and how far the programs of its steps are confined


class _Runner:
    __slots__ = ("link", "orders", "pid", "pidfd", "waits", "whose")

    def __init__(self, pid: int, pidfd: int, whose: "Whose", link: "_socket.socket", orders: "_socket.socket") -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.whose = whose
        self.link = link  # its closing ends a runner that waits
        self.orders = orders  # the runner's end
        self.waits = False

    def close(self) -> None:
        self.link.close()
        self.orders.close()
        os.close(self.pidfd)


class Runners:
    """The warm runners of a forkserver, and the spare.

    `most` limits all runners; a user may have half of that number. Each runner waits `seconds` for a step.
    """

    __slots__ = ("_all", "_ends", "_most", "seconds", "spare")

    def __init__(self, most: int, seconds: float) -> None:
        self.spare = Spare(seconds, wanted=most > 0)
        self.seconds = seconds
        self._most = most
        self._all: list[_Runner] = []
        self._ends = select.poll()  # of their pidfds

    def serve(self, order: bytes, fds: "Sequence[int]", whose: "Whose") -> int:
        """Hand the order to a waiting runner of this user. Return the runner's pid, or 0 if no runner waits."""
        for runner in reversed(self._all):
            if runner.whose != whose or not self._look(runner):
                continue
            runner.waits = False
            try:
                send_some(runner.link, order, fds)
            except OSError:
                self._forget(runner)  # it has ended
                continue
            return runner.pid
        return 0

    def has_room(self, uid: int) -> bool:
        """Return True if a new runner may be kept for a user without a waiting runner fit for the step.

        If the limit is reached, a runner that waits, or that ended while waiting, is dropped: one of this user's where
        the user has reached the limit of a user, else any.
        """
        for runner in self._all.copy():
            self._look(runner)
        own = [runner for runner in self._all if runner.whose[0] == uid]
        has_most = len(own) >= (self._most + 1) // 2
        if has_most or len(self._all) >= self._most:
            idle = next((runner for runner in (own if has_most else self._all) if runner.waits), None)
            if idle is None:
                return False
            self._forget(idle)
        return True

    def add(self, pid: int, pidfd: int, whose: "Whose", link: "_socket.socket", orders: "_socket.socket") -> None:
        """Keep a runner, which has the first order already. `link` is our end, `orders` a copy of the runner's end."""
        self._all.append(_Runner(pid, pidfd, whose, link, orders))
        self._ends.register(pidfd, select.POLLIN)

    def not_taken(
        self, channel: "_socket.socket", refuse: "Callable[[DescriptorsLost], None]"
    ) -> "Iterator[tuple[bytes, list[int]]]":
        """Wait until the channel is readable. Yield the orders of runners which end before taking an order.

        A live runner does not wake the forkserver. `refuse` is called for an order whose descriptors the forkserver has
        no room for. When the last runner has ended and no order has come, the forkserver is at rest and returns free
        memory to the kernel: a quarter of a megabyte, which stepds would copy.
        """
        if not self._all:
            return
        while self._all:
            self._ends.register(channel, select.POLLIN)
            ready = dict(self._ends.poll())
            has_come = ready.pop(channel.fileno(), 0)
            for runner in [runner for runner in self._all if runner.pidfd in ready] if ready else ():
                if runner not in self._all:
                    continue  # dropped for the order before; it had no order
                try:
                    data, fds = _left_by(runner)
                except DescriptorsLost as lost:
                    refuse(lost)
                    data, fds = b"", []
                self._forget(runner)
                if data:
                    yield data, fds
            if has_come:
                return
        _kernel.trim()

    def let_go(self) -> None:
        """In a forked process: close all descriptors of runners and of the spare."""
        for runner in self._all:
            runner.close()
        self._all.clear()
        self.spare.let_go()

    def _look(self, runner: _Runner) -> bool:
        """Return True if the runner waits for a step."""
        if runner.waits:
            return True
        try:
            runner.waits = runner.link.recv(len(WAITS), _socket.MSG_DONTWAIT) == WAITS
        except BlockingIOError:
            return False
        return runner.waits

    def _forget(self, runner: _Runner) -> None:
        self._ends.unregister(runner.pidfd)
        runner.close()
        self._all.remove(runner)


def _left_by(runner: _Runner) -> "tuple[bytes, list[int]]":
    """Return the order which the runner has not taken, b"" for none. Raises DescriptorsLost."""
    try:
        return receive(runner.orders, _socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b"", []
