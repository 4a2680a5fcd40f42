"""Jobs about to end, and the launches waiting for the end of a job instead of in the queue.

A client may learn of the end of its step before the daemon does, and launch the next step at once. The resources of the
last job are then about to become free: the launch tries again as soon as a job is over, for at most a second. Launches
try in the order in which they came. Used only from the event loop.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from nodectl.model.wire.dispatch import NODE, Refused
from nodectl.service.daemon.jobs.further_steps import FurtherSteps
from nodectl.service.daemon.jobs.registry import Registry
from nodectl.service.daemon.steps.live import LiveStep

_T = TypeVar("_T")
_PATIENCE = 1.0
BUSY = f"{NODE}.Busy"


class Departures:
    """The node's jobs about to end."""

    def __init__(self, registry: Registry, further_steps: FurtherSteps) -> None:
        self._registry = registry
        self._further_steps = further_steps
        self._waiting: list[asyncio.Future[bool]] = []

    def any(self) -> bool:
        """Return True where a job has ended, but the daemon has not yet noticed the end.

        The steps of the job have left their records, and no epilog follows, which could take long.
        """
        return any(live.step.is_first and self._leaves(live) for live in self._registry.unfinished())

    def _leaves(self, first: LiveStep) -> bool:
        if first.needs_epilog:
            return False
        running = self._further_steps.running(first.step.job_id)
        return all(live.last_record is not None or live.files.has_record() for live in running)

    def over(self) -> None:
        """Wake the waiting launches, in the order of arrival, because a job is over."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(True)

    @property
    def others_first(self) -> bool:
        """True while an earlier launch is about to try again."""
        return any(waiter.done() for waiter in self._waiting)

    async def attempt(self, start: Callable[[], _T]) -> _T:
        """Return the result of `start`. While `start` is refused as Busy, try again whenever a job is over.

        Give up when no job is about to end, or after one second. Raises Refused.
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
        """Return True when a job is over, False when the time is up."""
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
