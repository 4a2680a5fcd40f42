"""The client's streams in their socket: several take copies, and the last of them leaves nothing there."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from nodectl.kernel import _kernel, operations
from nodectl.launch.streams import client_streams
from nodectl.plugin_host.tracing import progress
from nodectl.plugin_host.tracing.progress import Progress

TAKERS = 3
PROGRAM = [
    operations.environment({}),
    operations.argv(["true"]),
    operations.execute(["/bin/true"], is_path=True, what="execute: ", behind=""),
]


@pytest.fixture
def streams() -> Iterator[socket.socket]:
    """The three, in a socket; whose other end the client's process has."""
    way, streams = socket.socketpair()
    with way, streams, open(os.devnull, "rb") as null:
        socket.send_fds(way, [b"\0"], [null.fileno()] * 3)
        yield streams


@pytest.fixture
def memory() -> Progress:
    fd = progress.make(TAKERS)
    try:
        memory = Progress(fd, TAKERS)
    finally:
        os.close(fd)
    memory.expect_takers(TAKERS)
    return memory


def take(streams: socket.socket, memory: Progress, task: int, *, forked: bool = False) -> int:
    """A task takes them, and executes a program: in a fork, or in our memory. Its wait status."""
    taking = operations.take_streams(streams.fileno(), operations.LAST_TAKES_ALL)
    context = -1, -1, task, "", memory.memory, task + 1, 1
    if not forked:
        pid, kept = _kernel.start([taking, *PROGRAM], context, -1)
        status = os.waitpid(pid, 0)[1]
        del kept
        return status
    pid = os.fork()
    if pid == 0:
        _kernel.perform([taking, *PROGRAM], context)
        os._exit(99)
    return os.waitpid(pid, 0)[1]


@pytest.mark.parametrize("forked", [(False, False, False), (True, True, True), (True, False, True)])
def test_the_last_of_several_leaves_nothing(streams: socket.socket, memory: Progress, forked: tuple[bool, ...]) -> None:
    for task, is_fork in enumerate(forked):
        assert client_streams.has_come(streams.fileno())
        assert take(streams, memory, task, forked=is_fork) == 0
    assert not client_streams.has_come(streams.fileno())
    assert not client_streams.are_left(streams.fileno())


def test_one_that_dies_before_leaves_them_there(streams: socket.socket, memory: Progress) -> None:
    """It can be killed by its user from the moment on in which it is that user's: a runner has to see it."""
    for task in range(TAKERS - 1):
        assert take(streams, memory, task) == 0
    assert client_streams.are_left(streams.fileno())


def test_they_are_not_closed_by_who_leaves_nothing(memory: Progress) -> None:
    """Its copies are open: the close is the program's end's, for which nobody waits."""
    memory.expect_takers(1)
    reader, writer = os.pipe()
    way, streams = socket.socketpair()
    with way, streams:
        socket.send_fds(way, [b"\0"], [reader, writer, writer])
        pid = os.fork()
        if pid == 0:
            taking = operations.take_streams(streams.fileno(), operations.LAST_TAKES_ALL)
            into = [operations.stream(n, -2 - n, "", shared=False, what="", behind="") for n in range(3)]
            program = [
                operations.environment({}),
                operations.argv(["echo", "there"]),
                operations.execute(["/bin/echo"], is_path=True, what="execute: ", behind=""),
            ]
            _kernel.perform([taking, *into, *program], (-1, -1, 0, "", memory.memory, 1, 1))
            os._exit(99)
        os.close(writer)
        assert os.waitpid(pid, 0)[1] == 0
        assert os.read(reader, 100) == b"there\n"
        assert os.read(reader, 100) == b"", "nobody has the other end any more"
        os.close(reader)


@pytest.mark.parametrize("size", [0, 3, 6])
def test_without_a_count_they_are_not_taken(streams: socket.socket, size: int) -> None:
    taking = operations.take_streams(streams.fileno(), operations.LAST_TAKES_ALL)
    pid, kept = _kernel.start([taking, *PROGRAM], (-1, -1, 0, "", memoryview(bytearray(size)), 0, 1), -1)
    assert os.waitpid(pid, 0)[1] == 1 << 8
    del kept
    assert client_streams.has_come(streams.fileno())


def test_a_count_has_all_the_places_of_the_tasks_before_it() -> None:
    for ntasks in range(9):
        fd = progress.make(ntasks)
        memory = Progress(fd, ntasks)
        os.close(fd)
        memory.expect_takers(0xFFFFFFFF)
        view, last = memory.inheritance(ntasks)
        assert view[last] == 0
        assert memory.place(ntasks) == (None, 0)
