"""The scheduler's rounds in the event loop: when the scheduler looks at the queue, and for how long at a time.

A round begins when something has changed, or when time alone may have changed something. A round runs in slices, so
that it never holds up the loop for long; the longer a round takes, the less often one begins. An idle queue costs
nothing. After an error the decisions made so far are still carried out, and the whole queue is looked at again a little
later, so that no job waits forever because of another user's job. Used only from the event loop.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator

from nodectl.scheduler.decisions import Decision
from nodectl.scheduler.scheduler import Scheduler
from nodectl.service.daemon.admission.slices import SLICE

_LONGEST_REST = 60.0  # the clock may be set meanwhile
_LEAST_REST = 0.001
_AGAIN = 5.0  # after an error
_MOST_DECISIONS = 32  # of a slice: to carry them out, and to write them, takes longer than to decide


class Rounds:
    """The rounds of the scheduler. `carry_out` is called with the decisions of a slice, `over` after a round."""

    def __init__(
        self, scheduler: Scheduler, carry_out: Callable[[list[Decision]], None], over: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._scheduler = scheduler
        self._carry_out = carry_out
        self._over = over
        self._clock = clock
        self._round: Iterator[Decision | None] | None = None
        self._wanted = False
        self._timer: asyncio.TimerHandle | None = None
        self._rested = 0.0  # until when, by the loop's clock
        self._took = 0.0
        self._ended = False

    def kick(self) -> None:
        """Begin a round soon, because something has changed; during a round, begin the next round afterwards."""
        if self._wanted or self._ended:
            return
        self._wanted = True
        if self._round is None:
            self._begin_at(self._rested)

    def end(self) -> None:
        """Stop the rounds, because the daemon ends."""
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
            self._round = self._scheduler.schedule(self._clock())
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
                self._scheduler.changed()  # the scheduler forgot the rest of this round
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
        """Append the decisions of a slice to `decisions`. Return True where the round is over."""
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
        now = self._clock()
        due = self._scheduler.next_time(now)
        if due is not None:
            self._begin_at(max(loop.time() + min(max(due - now, 0.0), _LONGEST_REST), self._rested))
