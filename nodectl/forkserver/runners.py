"""The runners that are kept: stepds that serve several steps of one user, one after the other.

A runner says when it waits for another step (`nodectl/stepd/orders.py`). Nobody waits for its word: it is looked for
when there is an order. How many there are is bounded, for all users and for one, because they are charged to no job.
"""

import _socket

from nodectl.forkserver.spare import Spare
from nodectl.stepd.orders import WAITS
from nodectl.wire.framing import send_some

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Whose = tuple[int, str]  # a user's id, and how far the programs of its steps are confined


class _Runner:
    __slots__ = ("link", "pid", "waits", "whose")

    def __init__(self, pid: int, whose: "Whose", link: "_socket.socket") -> None:
        self.pid = pid
        self.whose = whose
        self.link = link  # its closing ends a runner that waits
        self.waits = False


class Runners:
    """The runners of one forkserver, and its spare. `most`: as many as there may be; a user may have half of them."""

    __slots__ = ("_all", "_most", "spare")

    def __init__(self, most: int) -> None:
        self.spare = Spare(wanted=most > 0)
        self._most = most
        self._all: list[_Runner] = []

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

    def add(self, pid: int, whose: "Whose", link: "_socket.socket") -> None:
        """This one is kept: it has its first order."""
        self._all.append(_Runner(pid, whose, link))

    def let_go(self) -> None:
        """In a fork: closes what it has of them."""
        for runner in self._all:
            runner.link.close()
        self._all.clear()
        self.spare.let_go()

    def _look(self, runner: _Runner) -> bool:
        """True when it waits. Forgets it when it has ended."""
        if runner.waits:
            return True
        try:
            word = runner.link.recv(len(WAITS), _socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            word = b""
        runner.waits = word == WAITS
        if not word:
            self._forget(runner)
        return runner.waits

    def _forget(self, runner: _Runner) -> None:
        runner.link.close()
        self._all.remove(runner)
