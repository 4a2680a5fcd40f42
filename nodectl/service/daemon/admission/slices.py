"""Budgets and time slices of calls: the most work of a single call, and when the call pauses for pending calls.

A call over many objects works in slices of 10 ms. In each turn of the event loop one slice of one call is done, however
many calls of this kind there are: all other calls are served in between. A call pays for its names in units, of which
it has a bounded number: each job, range or index to be looked at is one. Used only from the event loop.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import TypeVar

from nodectl.model.wire.dispatch import Refused

SLICE = 0.01  # seconds
_MOST = 200_000  # units of one call
_T = TypeVar("_T")


class Slices:
    """The slices of all calls, a single slice in each turn of the event loop, in the order of requests."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._planned = False

    def is_asked_for(self) -> bool:
        """Return True where calls wait for the next slice."""
        return bool(self._waiting)

    async def next(self) -> None:
        """Return when the caller's next slice begins."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._plan()
        await waiter

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._give)

    def _give(self) -> None:
        self._planned = False
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():  # its call may have been cancelled
                waiter.set_result(None)
                break
        if self._waiting:
            self._plan()


class Work:
    """The work of a call. Between two elements: `if work.is_due(): await work.rest()`."""

    def __init__(self, slices: Slices, *, most: int = _MOST, clock: Callable[[], float] = time.perf_counter) -> None:
        self._slices = slices
        self._most = self._left = most
        self._clock = clock
        self._until = 0.0 if slices.is_asked_for() else clock() + SLICE

    def spend(self, units: int) -> None:
        """Pay for elements before looking at the elements. Raises Refused."""
        self._left -= units
        if self._left < 0:
            raise Refused(
                "InvalidRequest",
                f"the names of one call mean more than {self._most} jobs, ranges and indices: name fewer of them",
                parameter="jobs",
            )

    def is_due(self) -> bool:
        """Return True where the slice is over."""
        return self._clock() >= self._until

    async def rest(self) -> None:
        """Let the event loop serve pending calls."""
        await self._slices.next()
        self._until = self._clock() + SLICE

    async def through(self, pieces: Generator[None, None, _T]) -> _T:
        """Run all pieces of a generator, slice by slice. Return the generator's result."""
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # typeshed has Any here
            if self.is_due():
                await self.rest()
