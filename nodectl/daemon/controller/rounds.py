"""The scheduler's rounds in the event loop: when it looks at the queue, and for how long at a time.

A round is begun when something has changed, or when time alone may have changed something. It goes on in slices, so
that the loop is never held up for long; a queue that takes long to look at is looked at less often. At rest nothing is
done. After an error what was decided is carried out all the same, and all of the queue is looked at again a little
later: nobody waits for ever because of somebody else's job. Used only from the event loop.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator

from nodectl.daemon.admission.slices import SLICE
from nodectl.scheduler.decisions import Decision
from nodectl.scheduler.scheduler import Scheduler

_LONGEST_REST = 60.0  # the clock may be set meanwhile
_LEAST_REST = 0.001
_AGAIN = 5.0  # after an error
_MOST_DECISIONS = 32  # of a slice: to carry them out, and to write them, takes longer than to decide


class Rounds:
    """`carry_out` is called with the decisions of a slice, `over` at the end of a round."""

    def __init__(
        self, scheduler: Scheduler, carry_out: Callable[[list[Decision]], None], over: Callable[[], None]
    ) -> None:
        self._scheduler = scheduler
        self._carry_out = carry_out
        self._over = over
        self._round: Iterator[Decision | None] | None = None
        self._wanted = False
        self._timer: asyncio.TimerHandle | None = None
        self._rested = 0.0  # until when, by the loop's clock
        self._took = 0.0
        self._ended = False

    def kick(self) -> None:
        """Something has changed: a round begins soon, and another one if one is under way."""
        if self._wanted or self._ended:
            return
        self._wanted = True
        if self._round is None:
            self._begin_at(self._rested)

    def end(self) -> None:
        """The daemon ends."""
        self._ended = True
        self._round = None
        if self._timer is not None:
            self._timer.cancel()

    def _begin_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(max(when, loop.time()), self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._wanted = False
        self._took = 0.0
        with self._begun_anew_on_error():
            self._round = self._scheduler.schedule(time.time())
            self._look()

    def _slice(self) -> None:
        if self._round is not None:
            with self._begun_anew_on_error():
                self._look()

    @contextlib.contextmanager
    def _begun_anew_on_error(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            if not self._ended:
                self._round, self._wanted = None, True
                self._begin_at(asyncio.get_running_loop().time() + _AGAIN)
                self._scheduler.changed(time.time())  # what this round had still to look at, it knows no more
            raise

    def _look(self) -> None:
        began = time.perf_counter()
        decisions: list[Decision] = []
        try:
            over = self._decide(decisions, began + SLICE)
        finally:
            if decisions:
                self._carry_out(decisions)  # also those before an error: they are in the scheduler's books
        self._took += time.perf_counter() - began
        if over:
            self._finish()
        else:
            asyncio.get_running_loop().call_soon(self._slice)

    def _decide(self, decisions: list[Decision], until: float) -> bool:
        """True where the round is over."""
        for decision in self._round or ():
            if decision is not None:
                decisions.append(decision)
            if time.perf_counter() >= until or len(decisions) >= _MOST_DECISIONS:
                return False
        return True

    def _finish(self) -> None:
        self._round = None
        loop = asyncio.get_running_loop()
        self._rested = loop.time() + max(self._took, _LEAST_REST)
        self._over()
        if self._wanted:
            self._begin_at(self._rested)
            return
        now = time.time()
        due = self._scheduler.next_time(now)
        if due is not None:
            self._begin_at(max(loop.time() + min(max(due - now, 0.0), _LONGEST_REST), self._rested))
