"""Background work in the daemon's event loop, until the daemon ends."""

import asyncio
import time
from collections.abc import Coroutine


class TimeToEnd:
    """The time limit for the work before the daemon's end, in seconds; None for no limit."""

    def __init__(self, seconds: float | None) -> None:
        self._until = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Return the remaining seconds, at least 0, as a timeout of asyncio.wait."""
        return None if self._until is None else max(self._until - time.monotonic(), 0)

    def half(self) -> float | None:
        """Return half of the remaining seconds: the caller's share, where others wait after the caller."""
        left = self.left()
        return None if left is None else left / 2


class BackgroundTasks:
    """A set of asyncio tasks, kept here because the event loop alone would not keep them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def begin(self, work: Coroutine[object, object, object]) -> None:
        """Start a task."""
        self._add(asyncio.get_running_loop().create_task(work))

    def add_current(self) -> None:
        """Add the current task to the set."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # for mypy: a coroutine runs in one
        self._add(task)

    def _add(self, task: "asyncio.Task[object]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self, seconds: float | None) -> None:
        """Wait for all tasks, at most `seconds`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def settle(self, to_end: TimeToEnd) -> None:
        """Wait until no tasks are left, and cancel the remaining tasks when the time is over."""
        while self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=to_end.left())
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
