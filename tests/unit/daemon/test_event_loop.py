"""The daemon's selector behaves as the standard library's."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector, EpollSelector

import pytest

from nodectl.daemon.processes.event_loop import Numbers, make

Pipe = tuple[int, int]


@pytest.fixture(params=[EpollSelector, Numbers])
def selector(request: pytest.FixtureRequest) -> Iterator[BaseSelector]:
    made: BaseSelector = request.param()
    yield made
    made.close()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def found(selector: BaseSelector) -> list[tuple[int, int, object]]:
    return sorted((key.fd, events, key.data) for key, events in selector.select(0))


def test_what_is_ready_is_told_with_its_data(selector: BaseSelector, pipe: Pipe) -> None:
    reader, writer = pipe
    selector.register(reader, EVENT_READ, "in")
    selector.register(writer, EVENT_WRITE, "out")
    assert found(selector) == [(writer, EVENT_WRITE, "out")]
    os.write(writer, b"x")
    assert found(selector) == sorted([(reader, EVENT_READ, "in"), (writer, EVENT_WRITE, "out")])
    selector.modify(reader, EVENT_READ, "again")
    selector.unregister(writer)
    assert found(selector) == [(reader, EVENT_READ, "again")]
    assert selector.get_key(reader).data == "again"
    assert list(selector.get_map()) == [reader]


def test_who_names_a_descriptor_by_its_object_is_told() -> None:
    selector, (one, other) = Numbers(), socket.socketpair()
    with one, other, pytest.raises(TypeError, match="not the number of a descriptor"):
        selector.register(one, EVENT_READ)
    selector.close()


def test_end_of_the_other_side_wakes_who_reads(selector: BaseSelector) -> None:
    reader, writer = os.pipe()
    selector.register(reader, EVENT_READ, None)
    assert not found(selector)
    os.close(writer)
    assert found(selector) == [(reader, EVENT_READ, None)]
    selector.unregister(reader)
    os.close(reader)


def test_descriptor_that_was_closed_can_be_taken_out(selector: BaseSelector) -> None:
    reader, writer = os.pipe()
    selector.register(reader, EVENT_READ, None)
    os.close(reader)
    selector.unregister(reader)
    with pytest.raises(KeyError):
        selector.get_key(reader)
    os.close(writer)


def test_descriptor_is_taken_once(selector: BaseSelector, pipe: Pipe) -> None:
    selector.register(pipe[0], EVENT_READ, None)
    with pytest.raises(KeyError):
        selector.register(pipe[0], EVENT_READ, None)
    for change in (selector.unregister, selector.get_key):
        with pytest.raises(KeyError):
            change(pipe[1])


def test_loop_calls_back_and_ends(pipe: Pipe) -> None:
    loop = make()
    got: list[bytes] = []

    def read() -> None:
        got.append(os.read(pipe[0], 10))
        loop.remove_reader(pipe[0])
        loop.stop()

    loop.add_reader(pipe[0], read)
    loop.call_later(0.001, os.write, pipe[1], b"late")
    loop.run_forever()
    loop.close()
    assert got == [b"late"]
