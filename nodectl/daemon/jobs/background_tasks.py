"""Work that goes on in the daemon's event loop while nobody waits for it, until the daemon ends."""

import asyncio
from collections.abc import Coroutine


class BackgroundTasks:
    """A set of asyncio tasks, which the event loop alone would not keep."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def begin(self, work: Coroutine[object, object, object]) -> None:
        """Starts a task."""
        self._add(asyncio.get_running_loop().create_task(work))

    def add_current(self) -> None:
        """The task that calls is one of them from now on."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # for mypy: a coroutine runs in one
        self._add(task)

    def _add(self, task: "asyncio.Task[object]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self, seconds: float) -> None:
        """Waits for all of them, no longer than this."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def settle(self, seconds: float | None) -> None:
        """Waits until there are none, and cancels those that take longer than `seconds` (None: any time)."""
        while self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
