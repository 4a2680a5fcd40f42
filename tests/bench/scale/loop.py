"""An event loop in simulated time for many processes, each of which has a CPU of its own.

What a process does is timed as it does it, and the process is busy for as long. What comes meanwhile waits, and is
then taken up together, as by a loop of asyncio. Which process a callback belongs to is a variable of its context, which
tasks and timers inherit.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import select
import time
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("PROCESS")
_BETWEEN_COLLECTIONS = 100_000  # events
_FIXED = 1e-5  # seconds that a callback takes where nothing is measured


class Process:
    """One of them. `node`: where it runs; `cpu`: seconds that it has worked; `busy`: until then it works."""

    __slots__ = ("alive", "busy", "context", "cpu", "due", "inbox", "is_due", "name", "node", "pipes", "ready")

    def __init__(self, name: str, node: int) -> None:
        self.name = name
        self.node = node
        self.alive = True
        self.busy = self.cpu = 0.0
        self.is_due = False
        self.ready: deque[asyncio.Handle] = deque()  # what it has to do anyway
        self.inbox: deque[asyncio.Handle] = deque()  # what has come since
        self.pipes: dict[tuple[int, int], asyncio.Handle] = {}
        self.due: set[asyncio.Handle] = set()  # of pipes, which the inbox has already
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)


class Loop:
    """What asyncio asks of a loop, and no more. `turn`: seconds of CPU that each turn of a process takes in the kernel.
    `measured`: False for tests, where a callback always takes the same.
    """

    def __init__(self, turn: float = 0.0, *, measured: bool = True) -> None:
        self._turn = turn
        self._meter: Callable[[], float] = time.thread_time if measured else float
        self._fixed = 0.0 if measured else _FIXED
        self.network: Any = None
        self._heap: list[tuple[float, int, Process | None, Any]] = []
        self._order = count()
        self._now = 0.0
        self._begun = self._skipped = self._charged = 0.0
        self._running: Process | None = None
        self._watchers: dict[Process, None] = {}  # that have pipes
        self.kept: list[object] = []  # tasks, which asyncio holds weakly
        self.failures: list[dict[str, Any]] = []
        self.events = 0
        gc.disable()  # garbage is everybody's here: nobody's process is to pay for it

    def close(self) -> None:
        gc.enable()

    # Time.

    def time(self) -> float:
        """At which the callback began that runs."""
        return self._now

    def moment(self) -> float:
        """Now, in the midst of it."""
        return self._now + self._meter() - self._begun - self._skipped + self._charged

    def charge(self, seconds: float) -> None:
        """The process that runs takes so much CPU for what is not done here."""
        self._charged += seconds

    def pause(self) -> float:
        """What follows is no work of a process, until `resume` is given what this returns."""
        return self._meter()

    def resume(self, since: float) -> None:
        self._skipped += self._meter() - since

    # What asyncio asks of a loop.

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=_known(self))

    def create_task(self, coro: Any, *, name: object = None, context: Any = None) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=_known(self), context=context)

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, _known(self), context)
        process = handle._context[PROCESS]  # type: ignore[attr-defined]
        process.ready.append(handle)
        if process is not self._running:
            self._wake(process, self._now)
        return handle

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
        handle = asyncio.TimerHandle(when, callback, args, _known(self), context)
        heapq.heappush(self._heap, (when, next(self._order), handle._context[PROCESS], handle))  # type: ignore[attr-defined]
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    async def create_connection(self, factory: Any, host: str, port: int) -> Any:
        return await self.network.connect(factory, host, port)

    async def create_server(self, factory: Any, host: str, port: int, **_: Any) -> Any:
        return self.network.listen(factory, host, port)

    # Pipes are real: a few processes have some.

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:
        self._watch(fd, select.POLLIN, callback, args)

    def add_writer(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:
        self._watch(fd, select.POLLOUT, callback, args)

    def remove_reader(self, fd: Any) -> bool:
        return PROCESS.get().pipes.pop((fd, select.POLLIN), None) is not None

    def remove_writer(self, fd: Any) -> bool:
        return PROCESS.get().pipes.pop((fd, select.POLLOUT), None) is not None

    def _watch(self, fd: int, event: int, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        process = PROCESS.get()
        process.pipes[fd, event] = asyncio.Handle(callback, args, _known(self), None)
        self._watchers[process] = None

    def _look_at_pipes(self) -> None:
        for process in self._watchers:
            for (fd, event), handle in process.pipes.items():
                poll = select.poll()
                poll.register(fd, event)
                if handle not in process.due and poll.poll(0):
                    process.due.add(handle)
                    self.arrive(process, handle)

    # What makes the world go on.

    def kernel(self, when: float, do: Callable[..., object], *words: object) -> None:
        """Something that no process does, at that time."""
        heapq.heappush(self._heap, (when, next(self._order), None, (do, words)))

    def handle(self, process: Process, do: Callable[..., object], *words: Any) -> asyncio.Handle:
        """What `arrive` takes: the process does that when it comes to it."""
        return asyncio.Handle(do, words, _known(self), process.context)

    def arrive(self, process: Process, handle: asyncio.Handle) -> None:
        """A process finds this when it looks for what has come."""
        process.inbox.append(handle)
        if process is not self._running:
            self._wake(process, self._now)

    def _wake(self, process: Process, when: float) -> None:
        if not process.is_due:
            process.is_due = True
            heapq.heappush(self._heap, (max(when, process.busy), next(self._order), process, None))

    def within(self, process: Process, do: Callable[..., Any], *words: Any) -> None:
        """The process does that next."""
        self.call_soon(do, *words, context=process.context)

    def run(self, *, until: float | None = None, over: Callable[[], object] | None = None) -> None:
        """To that time, or until `over` says so; raises RuntimeError where nothing is left to happen before that."""
        events._set_running_loop(_known(self))
        try:
            while self._heap:
                if until is not None and self._heap[0][0] > until:
                    self._now = until
                    return
                self._step()
                if over is not None and over():
                    return
            if until is None:
                raise RuntimeError("nothing more happens")
        finally:
            events._set_running_loop(None)

    def _step(self) -> None:
        self._now, _, process, what = heapq.heappop(self._heap)
        self.events += 1
        if not self.events % _BETWEEN_COLLECTIONS:
            gc.collect(1)
        if process is None:
            do, words = what
            do(*words)
        elif what is None:
            process.is_due = False
            if process.alive:
                self._take_turn(process)
        elif not what.cancelled() and process.alive:
            self.arrive(process, what)

    def _take_turn(self, process: Process) -> None:
        batch = [*process.ready, *process.inbox]
        process.ready.clear()
        process.inbox.clear()
        process.due.clear()
        begun, meter = self._now, self._meter
        self._running = process
        self._now += self._turn
        self._begun = meter()
        for handle in batch:
            if handle.cancelled():
                continue
            self._skipped = self._charged = 0.0
            handle._run()
            since, self._begun = self._begun, meter()
            self._now += self._begun - since - self._skipped + self._charged + self._fixed
        self._running = None
        process.busy = self._now
        process.cpu += self._now - begun
        self._now = begun
        if process.ready or process.inbox:
            self._wake(process, process.busy)
        if process in self._watchers:
            self._look_at_pipes()


def played(loop: Loop, process: Process, play: Callable[[], Coroutine[Any, Any, Any]]) -> asyncio.Future[Any]:
    """What the process does from now on, with its result."""
    outcome: asyncio.Future[Any] = asyncio.Future(loop=_known(loop))

    async def act() -> None:
        try:
            outcome.set_result(await play())
        except Exception as error:  # told where it is waited for
            outcome.set_exception(error)

    loop.within(process, lambda: loop.kept.append(loop.create_task(act())))
    return outcome


def _known(loop: Loop) -> Any:
    """As asyncio's own classes take it."""
    return loop
