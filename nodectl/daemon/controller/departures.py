"""Jobs that are about to be over, and launches that wait for that rather than in the queue.

A client may know of the end of its step before the daemon does, and launch the next one at once. What the last job held
is then about to be free: such a launch tries again as soon as a job is over, for a second at most. Launches try in the
order in which they came. Used only from the event loop.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from nodectl.daemon.jobs.further_steps import FurtherSteps
from nodectl.daemon.jobs.registry import Registry
from nodectl.daemon.steps.live import LiveStep
from nodectl.wire.dispatch import NODE, Refused

_T = TypeVar("_T")
_PATIENCE = 1.0
BUSY = f"{NODE}.Busy"


class Departures:
    """The ends of one node's jobs that are under way."""

    def __init__(self, registry: Registry, further_steps: FurtherSteps) -> None:
        self._registry = registry
        self._further_steps = further_steps
        self._waiting: list[asyncio.Future[bool]] = []

    def any(self) -> bool:
        """True where a job has left nothing to do but to notice its end: its steps have left their records, and no
        epilog follows, which may take long.
        """
        return any(live.step.is_first and self._leaves(live) for live in self._registry.unfinished())

    def _leaves(self, first: LiveStep) -> bool:
        if first.needs_epilog:
            return False
        running = self._further_steps.running(first.step.job_id)
        return all(live.last_record is not None or live.files.has_record() for live in running)

    def over(self) -> None:
        """A job is over: who waits tries again, the first one first."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(True)

    @property
    def others_first(self) -> bool:
        """True while somebody who came earlier is about to try again."""
        return any(waiter.done() for waiter in self._waiting)

    async def attempt(self, start: Callable[[], _T]) -> _T:
        """What `start` returns. While it is refused as Busy, tries again with each job that is over, until none is
        about to be, or until the second has passed. Raises Refused.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE
        while True:
            try:
                return start()
            except Refused as error:
                if error.error != BUSY or not self.any() or not await self._next(until):
                    raise

    async def _next(self, until: float) -> bool:
        """True when a job is over, False when it is too late for that."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_at(until, _too_late, waiter)
        self._waiting.append(waiter)
        try:
            return await waiter
        finally:
            timer.cancel()
            self._waiting.remove(waiter)


def _too_late(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)
