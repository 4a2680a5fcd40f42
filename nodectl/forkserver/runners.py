"""The runners that are kept: stepds that serve several steps of one user, one after the other.

A runner says when it waits for another step (`nodectl/stepd/orders.py`). Nobody waits for its word: it is looked for
when there is an order. How many there are is bounded, for all users and for one, because they are charged to no job.

The forkserver has a copy of the runner's end, too. So an order lies there, with its descriptors, until the runner takes
it, also where that one has ended meanwhile: then the forkserver takes it back. What a runner has taken is its own.
"""

import _socket
import os
import select

from nodectl.forkserver.spare import Spare
from nodectl.stepd.orders import WAITS, receive
from nodectl.wire.framing import send_some

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    """The runners of one forkserver, and its spare. `most`: as many as there may be; a user may have half of them. Each
    waits some seconds for a step.
    """

    __slots__ = ("_all", "_ends", "_most", "seconds", "spare")

    def __init__(self, most: int, seconds: float) -> None:
        self.spare = Spare(seconds, wanted=most > 0)
        self.seconds = seconds
        self._most = most
        self._all: list[_Runner] = []
        self._ends = select.poll()  # of their pidfds

    def serve(self, order: bytes, fds: "Sequence[int]", whose: "Whose") -> int:
        """Hands the order to a runner of this user's that waits. Returns its pid, 0 where none waits."""
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
        """Whether one more may be kept for this user, for whom none waits that could serve the step. One that waits,
        or has ended while it did, makes room: where the user has as many as one may have, one of this user's own.
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
        """This one is kept: it has its first order. `link` is our end, `orders` a copy of the runner's."""
        self._all.append(_Runner(pid, pidfd, whose, link, orders))
        self._ends.register(pidfd, select.POLLIN)

    def not_taken(self, channel: "_socket.socket") -> "Iterator[tuple[bytes, list[int]]]":
        """Waits until something has come over the channel. Until then: the orders of runners that end without having
        taken them. A runner that lives wakes nobody.
        """
        while self._all:
            self._ends.register(channel, select.POLLIN)
            ready = {fd for fd, _ in self._ends.poll()}
            for runner in [runner for runner in self._all if runner.pidfd in ready]:
                if runner not in self._all:
                    continue  # it has made room for the order before: it had none
                data, fds = _left_by(runner)
                self._forget(runner)
                if data:
                    yield data, fds
            if channel.fileno() in ready:
                return

    def let_go(self) -> None:
        """In a fork: closes what it has of them."""
        for runner in self._all:
            runner.close()
        self._all.clear()
        self.spare.let_go()

    def _look(self, runner: _Runner) -> bool:
        """True when it waits."""
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
    """The order that it has not taken; b"" for none."""
    try:
        return receive(runner.orders, _socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b"", []
