"""The asyncio client, for use in a single event loop.

Awaited calls may be cancelled; a cancelled `run` ends the step.
"""

import asyncio
import contextlib
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar, Unpack

from nodectl.client.api import conversation, errors, operations, values
from nodectl.client.api.async_session import AsyncSession, may_ask_again
from nodectl.client.api.client import Path
from nodectl.client.api.control import Control
from nodectl.client.api.keywords import JobOptions, StepOptions
from nodectl.client.api.operations import MethodCall, Operation, Reply, StepName, Turn
from nodectl.client.api.settings import ApiSettings, Heard
from nodectl.client.api.streams import PIPE, Stream, Streams
from nodectl.client.command import BadOption, Failed
from nodectl.client.session import Events
from nodectl.model.step_number import step_word

T = TypeVar("T")


class AsyncClient:
    """A Client with awaitable methods. Starts no private node."""

    def __init__(self, socket: Path | None = None, config: Path | None = None) -> None:
        self._settings = ApiSettings(socket, config)
        self._idle: deque[AsyncSession] = deque()
        with errors.translated():
            first = self._session()
        self.path = first.path
        self._idle.append(first)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Steps run on until closed."""
        while self._idle:
            self._idle.pop().close()

    # Steps.

    async def run(
        self, argv: Sequence[Path], *, input: bytes | None = None, stdin: Stream = None,  # noqa: A002  # subprocess's name
        stdout: Stream = None, stderr: Stream = None, capture_output: bool = False, check: bool = False,
        env: Mapping[str, str] | None = None, **options: Unpack[StepOptions],
    ) -> values.Result:  # fmt: skip
        """Run a step and wait for the end. Raises NodectlError.

        Cancelling the call, as asyncio.timeout does, ends the step.
        """
        if capture_output:
            stdout = stderr = PIPE
        if input is not None:
            stdin = PIPE
        async with await self.start(argv, stdin=stdin, stdout=stdout, stderr=stderr, env=env, **options) as step:
            result = await step.communicate(input)
        if check and result.exit_status:
            raise errors.StepFailed(result)
        return result

    async def start(
        self, argv: Sequence[Path], *, stdin: Stream = None, stdout: Stream = None, stderr: Stream = None,
        env: Mapping[str, str] | None = None, **options: Unpack[StepOptions],
    ) -> "AsyncStep":  # fmt: skip
        """Start a step, waiting for a turn if needed. Cancelling the call gives the turn up. Raises NodectlError."""
        with errors.translated():
            asked, turn = operations.request_of_step(argv, env, options, self.path), Turn()
            with Streams(stdin, stdout, stderr, ntasks=int(str(asked.request["ntasks"]))) as streams:
                try:
                    job, number, events, calls = await self._do(operations.launch(asked, streams, turn))
                except BaseException:
                    await self._give_up(turn)
                    raise
                streams.let_go()
                step = AsyncStep(self, job, number, Events(events, calls))
                try:
                    await step.open(streams)
                except BaseException:
                    step.close()
                    raise
                return step

    async def wait(self, step: StepName) -> values.Result:
        """Wait for the end of any step visible to this user, and return the result."""
        return values.result((await self._do(operations.of_step("Wait", step)))["record"])

    async def steps(self, *, ended: int = 0) -> list[values.StepInfo]:
        """Return the running steps and the latest `ended` ended steps."""
        return await self._do(operations.steps(ended))

    async def step(self, step: StepName) -> values.StepInfo:
        """Return a running or ended step."""
        return values.step_info((await self._do(operations.of_step("Show", step)))["record"])

    async def signal(self, step: StepName, number: int) -> None:
        """Send a signal to a step's tasks; SIGKILL reaches all processes started by the tasks."""
        await self._do(operations.of_step("Signal", step, signal=int(number)))

    async def trace(self, step: StepName) -> list[values.TraceCall]:
        """Return the calls of the step's launch and end."""
        return await self._do(operations.trace(step))

    # Jobs.

    async def submit(
        self, script: Path, arguments: Sequence[str] = (), *, text: str | None = None,
        env: Mapping[str, str] | None = None, **options: Unpack[JobOptions],
    ) -> int:  # fmt: skip
        """Queue a batch script, the file `script`, or `text` under that name, and return the job's number."""
        return await self._do(operations.submit(script, arguments, text, env, options))

    async def wait_for_job(self, number: int) -> values.JobInfo:
        """Wait until a job, not an array, has ended, and return the job."""
        return await self._do(operations.wait_for_job(number))

    async def jobs(
        self, jobs: Sequence[str] | None = None, *, users: Sequence[str] | None = None,
        states: Sequence[str] | None = None, names: Sequence[str] | None = None,
    ) -> list[values.JobInfo]:  # fmt: skip
        """Return the jobs not yet ended, the next to start first."""
        return await self._do(operations.jobs({"jobs": jobs, "users": users, "states": states, "names": names}))

    async def job(self, name: str | int) -> values.JobInfo:
        """Return a job; the service remembers ended jobs for some time."""
        return await self._do(operations.job(name))

    async def cancel(self, *names: str | int) -> list[str]:
        """Cancel waiting or running jobs, named like 7 or "7_3", and return the names of the jobs found."""
        return await self._do(operations.cancel(names))

    # What they have in common.

    async def _do(self, operation: Operation[T]) -> T:
        """Run an operation and return the result, like `conversation.drive`. Raises NodectlError."""
        try:
            call = next(operation)
            while True:
                try:
                    found = await (self._acquire(call, operation) if call.acquires else self._answer(call))
                except Failed as failed:
                    call = operation.throw(failed)
                else:
                    call = operation.send(found)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # the operation's
        except (Failed, BadOption) as error:
            raise errors.public(error) from None

    async def _acquire(self, call: MethodCall, operation: Operation[T]) -> Reply:
        """Return the answer to a call. If cancelled, give the answer to the operation first.

        A second cancellation ends that wait; then the lease of what the service has given ends by itself.
        """
        answering = asyncio.ensure_future(self._answer(call))
        try:
            return await asyncio.shield(answering)
        except asyncio.CancelledError:
            with contextlib.suppress(Failed, errors.NodectlError):
                operation.send(await answering)
            raise

    async def _answer(self, call: MethodCall) -> Reply:
        if call.pause:
            await asyncio.sleep(call.pause)
        session = self._idle.pop() if self._idle else self._session()
        keep = False
        try:
            while True:
                try:
                    reply = await session.request(call.method, call.fds, call.parameters)
                    keep = not session.followed
                    return Reply(reply, session.take_descriptors())
                except Failed as failed:
                    if may_ask_again(call.method, failed, call.fds) and session.follow():
                        continue
                    keep = errors.of_connection(failed).name != errors.NO_SERVICE
                    raise
        finally:  # after a cancellation the answer may come later: no other call may take it
            if keep:
                self._idle.append(session)
            else:
                session.close()

    def _session(self) -> AsyncSession:
        try:
            return AsyncSession(self._settings, start_private=False)
        except Failed as failed:
            raise errors.of_connection(failed) from None

    async def _give_up(self, turn: Turn) -> None:
        if turn.job:
            with contextlib.suppress(errors.NodectlError):  # over already; else its lease ends
                await self.cancel(turn.job)


class AsyncStep(Control):
    """A Step for asyncio; with PIPE, `stdin` is an asyncio.StreamWriter, `stdout` and `stderr` are StreamReaders."""

    def __init__(self, client: AsyncClient, job: int, step: int, events: Events) -> None:
        self._client = client
        self.job = job
        self.step = step
        self.name = f"{job}.{step_word(step)}"
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self._heard = Heard()
        self._over = asyncio.Event()
        self._events: Events | None = events
        self._transports: list[asyncio.BaseTransport] = []
        self._awaited = 0  # by how many
        self._loop = asyncio.get_running_loop()
        self._look()

    def _look(self) -> None:
        """Register the reader of the step's events with the event loop.

        The loop holds a strong reference to the step only while a caller waits for the step, so a step forgotten by its
        program ends.
        """
        if self._events is not None and not (self._heard.over or self._loop.is_closed()):
            read = self._read if self._awaited else _if_there(weakref.WeakMethod(self._read))
            self._loop.add_reader(self._events.fd, read)

    @contextlib.contextmanager
    def _is_awaited(self) -> Iterator[None]:
        self._awaited += 1
        self._look()
        try:
            yield
        finally:
            self._awaited -= 1
            self._look()

    async def open(self, streams: Streams) -> None:
        """Turn this process's ends of the step's pipes into asyncio streams."""
        if (stdin := conversation.opened(streams, 0)) is not None:
            protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
            transport, _ = await self._loop.connect_write_pipe(lambda: protocol, stdin)
            self._transports.append(transport)
            self.stdin = asyncio.StreamWriter(transport, protocol, None, self._loop)
        self.stdout = await self._reader(streams, 1)
        self.stderr = await self._reader(streams, 2)

    async def _reader(self, streams: Streams, number: int) -> asyncio.StreamReader | None:
        if (file := conversation.opened(streams, number)) is None:
            return None
        reader = asyncio.StreamReader()
        transport, _ = await self._loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
        self._transports.append(transport)
        return reader

    async def __aenter__(self) -> "AsyncStep":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_events", None) is not None and not self._loop.is_closed():
            if not self._heard.over:
                warnings.warn(f"step {self.name} was not closed, and is ended", ResourceWarning, 2, self)
            self.close()

    @property
    def pids(self) -> Sequence[int]:
        """The pids of the step's tasks, from the events read so far."""
        return self._heard.pids

    async def wait(self) -> values.Result:
        """Wait until the step has ended, and return the result. Cancelling the call does not end the step."""
        with self._is_awaited():
            await self._over.wait()
        if self._heard.record is None:  # its runner is gone, and the service knows more
            return await self._client.wait((self.job, self.step))
        return values.result(self._heard.record, self._heard.messages)

    async def communicate(self, input: bytes | None = None) -> values.Result:  # noqa: A002  # subprocess's name
        """Write `input` to the step, read the PIPEs, and wait for the end."""
        with self._is_awaited():
            async with asyncio.TaskGroup() as group:
                readers = [group.create_task(self._all_of(reader)) for reader in (self.stdout, self.stderr)]
                if self.stdin is not None:
                    group.create_task(self._give(self.stdin, input or b""))
            return conversation.with_output(await self.wait(), *(reader.result() for reader in readers))

    @staticmethod
    async def _all_of(reader: asyncio.StreamReader | None) -> bytes | None:
        return None if reader is None else await reader.read()

    @staticmethod
    async def _give(writer: asyncio.StreamWriter, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # the pipe has no reader any more
            writer.write(data)
            await writer.drain()
        writer.close()

    def close(self) -> None:
        """Close the step's streams, and end the step if still running."""
        for transport in self._transports:
            transport.close()
        events, self._events = self._events, None
        if events is not None:
            self._loop.remove_reader(events.fd)
            events.close()
            self._heard.over = True
            self._over.set()

    def _read(self) -> None:
        if self._events is not None:
            conversation.read(self._heard, self._events)
            if self._heard.over:
                self._loop.remove_reader(self._events.fd)
                self._over.set()

    def _call(self, method: str, **parameters: object) -> None:
        if self._events is not None:
            with contextlib.suppress(OSError):  # it has ended
                self._events.call(method, **parameters)


def _if_there(method: weakref.WeakMethod[Callable[[], None]]) -> Callable[[], None]:
    """Return a function which calls the method only if the method's object still exists."""

    def call() -> None:
        if (called := method()) is not None:
            called()

    return call
