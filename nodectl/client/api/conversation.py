"""The I/O of the blocking client: drive operations, read a step's events, serve a step's streams."""

import os
import select
import selectors
import time
from collections.abc import Callable
from dataclasses import replace
from typing import IO, Protocol, TypeVar

from nodectl.client.api import values
from nodectl.client.api.errors import StepTimeout, of_connection
from nodectl.client.api.late_handlers import LateHandlers
from nodectl.client.api.operations import MethodCall, Operation, Reply
from nodectl.client.api.settings import ApiSettings, Heard
from nodectl.client.api.streams import Streams
from nodectl.client.command import Failed
from nodectl.client.session import Events, Session
from nodectl.model.wire import framing

T = TypeVar("T")
_CHUNK = 1 << 16


class Talking(Protocol):
    """A step with a name and streams."""

    name: str
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None


def connect(settings: ApiSettings, *, private: bool = False) -> Session:
    """Open a session. Raises Failed."""
    try:
        return Session(settings, start_private=private)
    except Failed as failed:
        raise of_connection(failed) from None


def drive(operation: Operation[T], answer: Callable[[MethodCall], Reply]) -> T:
    """Run an operation, let `answer` answer each call, and return the result. Raises Failed, BadOption.

    Ctrl-C interrupts it, but not before the operation has the answer to a call that acquires.
    """
    try:
        call = next(operation)
        while True:
            with LateHandlers(wanted=call.acquires):
                try:
                    found = answer(call)
                except Failed as failed:
                    call = operation.throw(failed)
                else:
                    call = operation.send(found)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # the operation's


def opened(streams: Streams, number: int) -> IO[bytes] | None:
    """Return this process's end of a pipe as a file, which takes ownership; None where there is no pipe."""
    end, streams.ends[number] = streams.ends[number], None
    return None if end is None else os.fdopen(end, "wb" if number == 0 else "rb")


def listen(heard: Heard, events: Callable[[], Events], timeout: float | None) -> bool:
    """Read events until the step has ended or time is up; return True if the step has ended."""
    until = None if timeout is None else time.monotonic() + timeout
    while not heard.over:
        poll = select.poll()
        poll.register(events().fd, select.POLLIN)
        left = None if until is None else max(until - time.monotonic(), 0.0) * 1000
        if not poll.poll(left):
            return False
        read(heard, events())
    return True


def read(heard: Heard, events: Events) -> None:
    """Read the events available and pass the messages to `heard`; a broken connection counts as the end."""
    try:
        messages, alive = events.read()
    except (OSError, framing.BrokenWire):
        messages, alive = [], False
    heard.take(messages, alive=alive)


def exchange(
    step: Talking, heard: Heard, events: Events, given: bytes | None, timeout: float | None
) -> tuple[bytes | None, bytes | None]:
    """Write `given` to the step and read the step's pipes until the end; return stdout and stderr.

    Raises StepTimeout. A process left behind by the step may hold a pipe; its later output is not waited for.
    """
    until = None if timeout is None else time.monotonic() + timeout
    pieces: dict[int, list[bytes]] = {file.fileno(): [] for file in (step.stdout, step.stderr) if file is not None}
    rest = memoryview(given or b"")
    with selectors.DefaultSelector() as selector:
        for fd in (events.fd, *pieces):
            selector.register(fd, selectors.EVENT_READ)
        if step.stdin is not None:
            os.set_blocking(step.stdin.fileno(), False)
            selector.register(step.stdin, selectors.EVENT_WRITE)
        while selector.get_map():
            left = None if until is None else max(until - time.monotonic(), 0.0)
            ready = selector.select(0.0 if heard.over else left)
            if not ready and not heard.over:
                raise StepTimeout(f"step {step.name} has not ended within {timeout:g} s")
            if not ready:
                break
            for key, _ in ready:
                if key.fileobj is step.stdin:
                    rest = _write(step.stdin, rest)
                    finished = not rest
                elif key.fd == events.fd:
                    read(heard, events)
                    finished = heard.over
                else:
                    pieces[key.fd].append(chunk := os.read(key.fd, _CHUNK))
                    finished = not chunk
                if finished:
                    selector.unregister(key.fileobj)
                if finished and key.fileobj is step.stdin:
                    step.stdin.close()
    out, err = (None if file is None else b"".join(pieces[file.fileno()]) for file in (step.stdout, step.stderr))
    return out, err


def _write(file: IO[bytes], rest: memoryview) -> memoryview:
    """Write a chunk and return the rest; return an empty rest when the reader is gone."""
    try:
        return rest[os.write(file.fileno(), rest[:_CHUNK]) :] if rest else rest
    except BlockingIOError:
        return rest
    except BrokenPipeError:
        return rest[:0]


def with_output(result: values.Result, stdout: bytes | None, stderr: bytes | None) -> values.Result:
    """Return the result with the captured output added."""
    return replace(result, stdout=stdout, stderr=stderr)
