"""An executor whose workers are steps, each with separate CPUs, limits and confinement.

Only the caller whose function ran in a worker learns how the worker ended.

The threads of the executor, called slots, each hold at most one worker and hand it one function at a time. A worker
serves functions with the same options one after the other; it ends when it has been idle for a while, or when functions
with other options wait: the CPUs that it holds may be what they wait for.
"""

import contextlib
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from multiprocessing.connection import Connection, wait
from typing import Any, ParamSpec, TypeVar, Unpack

from nodectl.client.api import errors, worker
from nodectl.client.api.client import Client
from nodectl.client.api.keywords import StepOptions
from nodectl.client.api.operations import Turn

P = ParamSpec("P")
T = TypeVar("T")
_IDLE = 10.0  # seconds
_PATIENCE = 10.0  # for the record of a worker that has gone
_PROGRAM = "import sys; sys.path[:] = {path!r}; from nodectl.client.api.worker import main; main()"


class WorkerDied(BrokenExecutor):
    """The worker died while running the function, or could not start; str() is the reason. The other workers go on."""


class StepFuture(Future[T]):
    """A future with a way to end the function while running."""

    _worker: "Callable[[], object] | None" = None

    def kill(self) -> bool:
        """Cancel a waiting function, or end the worker of a running function.

        The outcome of a running function is then WorkerDied. Return False if the function has finished.
        """
        if self.cancel():
            return True
        end = self._worker
        if end is None or self.done():
            return False
        end()
        return True


class _Item:
    """A function waiting for a worker."""

    __slots__ = ("future", "key", "options", "order", "timeout")

    def __init__(self, order: bytes, options: Mapping[str, Any], timeout: float | None) -> None:
        self.future: StepFuture[Any] = StepFuture()
        self.order = order
        self.options = options
        self.key = repr(sorted(options.items()))
        self.timeout = timeout


class StepExecutor(Executor):
    """An executor with at most `max_workers` workers (by default the number of CPUs), which are steps of this user.

    The steps have the options given here. Functions are pickled, with cloudpickle where installed. Call `shutdown`, or
    use the executor as a context manager.
    """

    def __init__(
        self, max_workers: int | None = None, *, client: Client | None = None, idle_seconds: float = _IDLE,
        **options: Unpack[StepOptions],
    ) -> None:  # fmt: skip
        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers is at least 1")
        self._client = Client() if client is None else client
        self._own_client = client is None
        self._most = max_workers or os.cpu_count() or 1
        self._idle_seconds = idle_seconds
        self._options = _checked(options)
        self._changed = threading.Condition()
        self._items: deque[_Item] = deque()
        self._threads: set[threading.Thread] = set()  # of slots, also of those that are about to go
        self._slots = 0
        self._free = 0  # of these those that run no function
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> StepFuture[T]:
        """Queue a function; the future receives the function's outcome."""
        return self._put(fn, args, kwargs, self._options, None)

    def options(self, *, timeout: float | None = None, **options: Unpack[StepOptions]) -> "_Chosen":
        """Return an executor with further options: `options(mem="4G").submit(f)`.

        `timeout`: seconds for which a function may run; then its worker is ended, and the outcome is StepTimeout.
        """
        return _Chosen(self, {**self._options, **_checked(options)}, timeout)

    def _put(
        self, fn: Callable[..., Any], args: object, kwargs: object, options: Mapping[str, Any], timeout: float | None
    ) -> StepFuture[Any]:
        item = _Item(worker.pickler()((fn, args, kwargs)), options, timeout)
        with self._changed:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._items.append(item)
            if len(self._items) > self._free and self._slots < self._most:
                thread = threading.Thread(target=self._serve, name="StepExecutor", daemon=True)
                self._threads.add(thread)
                self._slots += 1
                self._free += 1
                thread.start()
            self._changed.notify_all()
        return item.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more functions. Workers end after the functions already queued."""
        with self._changed:
            self._closed = True
            left = [self._items.popleft() for _ in range(len(self._items))] if cancel_futures else []
            threads = list(self._threads)
            self._changed.notify_all()
        for item in left:
            item.future.cancel()
            item.future.set_running_or_notify_cancel()
        if self._own_client and not threads:
            self._client.close()
        if wait:
            for thread in threads:
                thread.join()

    # A slot.

    def _serve(self) -> None:
        """Run the thread of a slot."""
        held: _Worker | None = None
        try:
            while (wanted := self._next(held)) is not None:
                if isinstance(wanted, _Worker):
                    held = wanted if wanted.lives else None
                    continue
                if held is not None:
                    held.close()
                held = self._worker_for(wanted)
        finally:
            if held is not None:
                held.close()
            with self._changed:
                self._threads.discard(threading.current_thread())
                last = self._closed and not self._threads
            if last and self._own_client:
                self._client.close()

    def _next(self, held: "_Worker | None") -> "_Worker | _Item | None":
        """Call a waiting function in the held worker, and return the worker.

        If the held worker fits no waiting function, return a waiting function for a new worker to start; return None
        when nothing is left to do.
        """
        with self._changed:
            until = time.monotonic() + self._idle_seconds
            while True:
                self._forget_cancelled()
                item = next((one for one in self._items if held is not None and one.key == held.key), None)
                if item is not None and held is not None and held.is_there():
                    self._items.remove(item)
                    self._free -= 1
                    break
                if self._items:
                    return self._items[0]
                if self._closed or (left := until - time.monotonic()) <= 0:
                    self._slots -= 1  # at once: the next function needs another slot
                    self._free -= 1
                    return None
                self._changed.wait(left)
        try:
            held.call(item)
        finally:
            with self._changed:
                self._free += 1
        return held

    def _forget_cancelled(self) -> None:
        for item in [item for item in self._items if item.future.cancelled()]:
            self._items.remove(item)
            item.future.set_running_or_notify_cancel()

    def _worker_for(self, item: _Item) -> "_Worker | None":
        """Return a new worker for the function, or None if starting failed or the function was no longer waiting."""

        def is_wanted() -> bool:
            with self._changed:
                return any(one.key == item.key for one in self._items)

        try:
            return _Worker(self._client, item, is_wanted)
        except Exception as error:  # what the service refuses it refuses for this function; others ask again
            with self._changed:
                if item not in self._items:
                    return None  # another slot has called the function
                self._items.remove(item)
            if item.future.set_running_or_notify_cancel():
                item.future.set_exception(error)
            return None


class _Chosen(Executor):
    """An executor with further options, which shares the workers and the shutdown of a StepExecutor."""

    def __init__(self, executor: StepExecutor, options: Mapping[str, Any], timeout: float | None) -> None:
        self._executor = executor
        self._options = options
        self._timeout = timeout

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> StepFuture[T]:
        """Queue a function; the future receives the function's outcome."""
        return self._executor._put(fn, args, kwargs, self._options, self._timeout)


class _Worker:
    """A step, and this process's end of the socket pair used as the step's standard input.

    A single thread uses a worker.
    """

    def __init__(self, client: Client, item: _Item, is_wanted: Callable[[], bool]) -> None:
        self.key = item.key
        self.lives = True
        ours, theirs = socket.socketpair()
        with ours, theirs:
            path = [os.path.abspath(one) for one in sys.path]
            words = [sys.executable, "-c", _PROGRAM.format(path=path)]
            self._step = client.launch(words, item.options, stdin=theirs.fileno(), turn=Turn(is_wanted), exact=True)
            self._wire: Connection[bytes, bytes] = Connection(os.dup(ours.fileno()))
        try:
            self._wire.send_bytes(worker.preparation())
            self._wire.recv_bytes()
        except (EOFError, OSError):
            died = self._epitaph("before it took a function")
            self.close()
            raise died from None

    def is_there(self) -> bool:
        """Return True while the worker's step runs; a time limit may have ended the step."""
        return not self._step.has_ended

    def call(self, item: _Item) -> None:
        """Run the function in the worker, and give the outcome to the future."""
        future = item.future
        if not future.set_running_or_notify_cancel():
            return
        future._worker = self._step.kill
        try:
            self._wire.send_bytes(item.order)
            if not wait([self._wire], item.timeout):
                self._step.kill()
                self.close()
                future.set_exception(errors.StepTimeout(f"the function ran for more than {item.timeout:g} s"))
                return
            answer = self._wire.recv_bytes()
        except (EOFError, OSError):
            died = self._epitaph("while it ran the function")
            self.close()
            future.set_exception(died)
            return
        finally:
            future._worker = None
        self._tell(future, answer)

    @staticmethod
    def _tell(future: StepFuture[Any], answer: bytes) -> None:
        import pickle

        try:
            went_well, outcome = pickle.loads(answer)  # noqa: S301  # of a process of this user, through our own socket
        except Exception as error:
            future.set_exception(error)
            return
        if went_well:
            future.set_result(outcome)
        else:
            future.set_exception(outcome)

    def _epitaph(self, when: str) -> WorkerDied:
        try:
            result = self._step.wait(_PATIENCE)
        except errors.NodectlError:
            return WorkerDied(f"worker {self._step.name} ended {when}")
        said = "".join(f"\n{line}" for line in result.messages)
        return WorkerDied(f"worker {result.name} ended {when}: {result.state}: {result.reason}{said}")

    def close(self) -> None:
        """Close the socket, which ends the worker. After ten seconds, end the step."""
        self.lives = False
        self._wire.close()
        with contextlib.suppress(errors.NodectlError):
            self._step.wait(_PATIENCE)
        self._step.close()


def _checked(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options. Raises ValueError for options unfit for an executor.

    Answers of another user must not be unpickled, and a function is called by one task.
    """
    for name in ("uid", "gid", "label", "unbuffered"):
        if options.get(name) is not None and options[name] is not False:
            raise ValueError(f"{name} is no option of an executor")
    if options.get("ntasks", 1) != 1:
        raise ValueError("ntasks is no option of an executor: a worker is one task; give it cpus_per_task")
    return options
