"""Output and input of a step over nodes: all of it arrives, once and in its order, and nobody keeps much of it."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from nodectl.cluster.agent.feed import Feed, Intake
from nodectl.cluster.agent.inlets import Inlet
from nodectl.cluster.agent.outlets import Outlet, window_of
from nodectl.cluster.agent.sinks import Sink

WINDOW = 64 << 10
ENOUGH = 20.0  # seconds, for a machine that is busy


class Way:
    """Between an outlet and an inlet: messages arrive later, in order; `loses` says which do not."""

    def __init__(self, loses: Callable[[], bool] = lambda: False) -> None:
        self.loses = loses
        self.inlet: Inlet | None = None
        self.outlet: Outlet | None = None
        self.over = asyncio.Event()
        self.most = 0

    def down(self, header: Mapping[str, Any], body: bytes) -> None:
        if not self.loses():
            asyncio.get_running_loop().call_soon(self._arrive, header, body)

    def _arrive(self, header: Mapping[str, Any], body: bytes) -> None:
        assert self.inlet is not None
        self.inlet.take(header, body)

    def up(self, told: Mapping[str, object]) -> None:
        if not self.loses():
            asyncio.get_running_loop().call_soon(self._hear, told)

    def _hear(self, told: Mapping[str, object]) -> None:
        assert self.outlet is not None
        self.outlet.heard(told)

    def between(self, source: int, sink: Sink, *, labelled: bool = False) -> None:
        self.inlet = Inlet(sink, self.up, WINDOW)
        self.outlet = Outlet(source, self.down, WINDOW, self.over.set, labelled=labelled)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(ENOUGH):
            await work()

    asyncio.run(bounded())


async def write_all(fd: int, data: bytes) -> None:
    """As a task would, which waits at a full pipe."""
    os.set_blocking(fd, False)
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            await asyncio.sleep(0)


async def read_all(fd: int, *, size: int | None = None) -> bytes:
    os.set_blocking(fd, False)
    found = bytearray()
    while size is None or len(found) < size:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            await asyncio.sleep(0)
            continue
        if not data:
            break
        found += data
    return bytes(found)


async def keep_writing(fd: int) -> None:
    while True:
        await write_all(fd, b"anybody?\n")
        await asyncio.sleep(0)


@pytest.fixture
def lines() -> bytes:
    dice = random.Random(7)  # noqa: S311
    return b"".join(b"%d %s\n" % (number, b"x" * dice.randrange(200)) for number in range(20_000))


def test_a_stream_arrives_whole(lines: bytes) -> None:
    async def work() -> None:
        (source, tasks), (client, sink) = os.pipe(), os.pipe()
        way = Way()
        way.between(source, target := Sink(sink))
        got = asyncio.create_task(read_all(client))
        await write_all(tasks, lines)
        os.close(tasks)
        await asyncio.sleep(0.05)  # its end may be seen before that of the part
        assert way.outlet is not None
        way.outlet.finish()
        await way.over.wait()
        target.flush(lambda: None)
        assert await got == lines

    run(work)


@pytest.mark.parametrize("seed", range(8))
def test_what_a_broken_link_has_lost_is_sent_again(lines: bytes, seed: int) -> None:
    async def work() -> None:
        dice = random.Random(seed)  # noqa: S311
        (source, tasks), (client, sink) = os.pipe(), os.pipe()
        broken = False
        way = Way(lambda: broken and dice.random() < 0.7)
        way.between(source, target := Sink(sink))
        got = asyncio.create_task(read_all(client, size=len(lines)))
        given = asyncio.create_task(write_all(tasks, lines))
        assert way.outlet is not None
        assert way.inlet is not None
        for _ in range(20):
            broken = not broken
            await asyncio.sleep(dice.random() / 200)
            if not broken:  # as the mesh tells both ends
                way.outlet.ask()
                way.inlet.ask()
        broken = False
        way.outlet.ask()
        await given
        way.outlet.finish()
        await way.over.wait()
        target.flush(lambda: None)
        assert await got == lines

    run(work)


def test_a_stream_goes_on_whose_reader_takes_a_window_in_parts() -> None:
    async def work() -> None:
        (source, tasks), (client, sink) = os.pipe(), os.pipe()
        others = os.write(sink, b"y" * 12_288)
        much = b"x" * (3 * WINDOW)
        way = Way()
        given = asyncio.create_task(write_all(tasks, much))
        await asyncio.sleep(0)  # the window is one piece
        way.between(source, Sink(sink))
        await asyncio.sleep(0.02)  # the rest of it is no quarter
        assert (await read_all(client, size=others + len(much)))[others:] == much
        await given

    run(work)


def test_who_does_not_read_costs_a_window_and_makes_tasks_wait() -> None:
    async def work() -> None:
        (source, tasks), (client, sink) = os.pipe(), os.pipe()
        way = Way()
        way.between(source, Sink(sink))
        os.set_blocking(tasks, False)
        written = idle = 0
        while idle < 200:
            try:
                written += os.write(tasks, b"x" * 4095 + b"\n")
                idle = 0
            except BlockingIOError:
                idle += 1
                await asyncio.sleep(0.001)
        assert written <= WINDOW + 3 * 65536, "two pipes, and the window"
        os.close(client)

    run(work)


def test_tasks_are_told_when_nobody_reads_any_more() -> None:
    async def work() -> None:
        (source, tasks), (client, sink) = os.pipe(), os.pipe()
        way = Way()
        way.between(source, Sink(sink))
        os.close(client)
        told = asyncio.create_task(keep_writing(tasks))
        with pytest.raises(BrokenPipeError):
            await told
        await way.over.wait()

    run(work)


def test_labelled_lines_are_never_parted() -> None:
    async def work() -> None:
        (source, tasks), (client, sink) = os.pipe(), os.pipe()
        way = Way()
        way.between(source, Sink(sink), labelled=True)
        await write_all(tasks, b"1: half a li")
        await asyncio.sleep(0.1)
        os.set_blocking(client, False)
        with pytest.raises(BlockingIOError):
            os.read(client, 100)
        await write_all(tasks, b"ne\n")
        assert await read_all(client, size=15) == b"1: half a line\n"

    run(work)


def test_a_prompt_without_a_newline_is_seen() -> None:
    async def work() -> None:
        (source, tasks), (client, sink) = os.pipe(), os.pipe()
        way = Way()
        way.between(source, Sink(sink))
        await write_all(tasks, b"name? ")
        assert await read_all(client, size=6) == b"name? "

    run(work)


def test_a_file_has_all_when_the_end_is_told(tmp_path: Path, lines: bytes) -> None:
    async def work() -> None:
        source, tasks = os.pipe()
        file = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
        way = Way()
        way.between(source, target := Sink(file))
        await write_all(tasks, lines)
        assert way.outlet is not None
        way.outlet.finish()
        await way.over.wait()
        flushed = asyncio.Event()
        target.flush(flushed.set)
        await flushed.wait()
        assert (tmp_path / "out").read_bytes() == lines

    run(work)


def test_what_others_hold_open_does_not_keep_a_part_from_its_end() -> None:
    async def work() -> None:
        (source, tasks), (client, sink) = os.pipe(), os.pipe()
        way = Way()
        way.between(source, Sink(sink))
        await write_all(tasks, b"last words\n")  # by a process that has left the step, and has it open still
        assert way.outlet is not None
        way.outlet.finish()
        await way.over.wait()
        assert await read_all(client, size=11) == b"last words\n"

    run(work)


def test_ten_thousand_nodes_have_no_gigabytes_on_their_way() -> None:
    assert 10_000 * window_of(10_000) <= 128 << 20
    assert window_of(3) == 256 << 10


class Inputs:
    """A client's input on its way to some nodes, each with the reading end of its tasks' pipe."""

    def __init__(self, stdin: int, count: int) -> None:
        self.lost = False
        self.pipes = [os.pipe() for _ in range(count)]
        self.nodes = [Intake(writer, self._answer(rank)) for rank, (_, writer) in enumerate(self.pipes)]
        self.feed = Feed(stdin, range(count), self._send)

    def _answer(self, rank: int) -> Callable[[Mapping[str, object]], None]:
        def answer(told: Mapping[str, object]) -> None:
            if not self.lost:
                asyncio.get_running_loop().call_soon(self.feed.heard, rank, told)

        return answer

    def _send(self, ranks: Any, header: Mapping[str, object], data: bytes) -> None:
        for rank in list(ranks):
            if not self.lost:
                asyncio.get_running_loop().call_soon(self.nodes[rank].take, header, data)


@pytest.fixture
def text(lines: bytes) -> bytes:
    return lines[: 1 << 20]


def test_all_nodes_get_all_input(tmp_path: Path, text: bytes) -> None:
    async def work() -> None:
        (tmp_path / "in").write_bytes(text)
        inputs = Inputs(os.open(tmp_path / "in", os.O_RDONLY), 3)
        found = await asyncio.gather(*(read_all(reader) for reader, _ in inputs.pipes))
        assert found == [text, text, text]

    run(work)


def test_a_node_that_has_closed_its_input_keeps_nobody_waiting(text: bytes) -> None:
    async def work() -> None:
        stdin, client = os.pipe()
        inputs = Inputs(stdin, 2)
        os.close(inputs.pipes[0][0])
        given = asyncio.create_task(write_all(client, text))
        assert await read_all(inputs.pipes[1][0], size=len(text)) == text
        await given
        os.close(client)
        assert await read_all(inputs.pipes[1][0]) == b""

    run(work)


def test_the_slowest_node_sets_the_pace_of_input(text: bytes) -> None:
    async def work() -> None:
        stdin, client = os.pipe()
        inputs = Inputs(stdin, 2)
        given = asyncio.create_task(write_all(client, text))
        quick = asyncio.create_task(read_all(inputs.pipes[0][0], size=len(text)))
        await asyncio.sleep(0.2)
        assert not quick.done()
        assert not given.done()
        assert await read_all(inputs.pipes[1][0], size=len(text)) == text
        assert await quick == text
        await given

    run(work)


def test_input_that_was_lost_is_sent_again(text: bytes) -> None:
    async def work() -> None:
        stdin, client = os.pipe()
        inputs = Inputs(stdin, 1)
        given = asyncio.create_task(write_all(client, text))
        got = asyncio.create_task(read_all(inputs.pipes[0][0], size=len(text)))
        for _ in range(10):
            inputs.lost = not inputs.lost
            await asyncio.sleep(0.003)
            if not inputs.lost:
                inputs.nodes[0].ask()
        inputs.lost = False
        inputs.nodes[0].ask()
        assert await got == text
        await given

    run(work)


def test_input_of_a_slow_reader_outlives_links_that_are_cut(text: bytes) -> None:
    async def work() -> None:
        stdin, client = os.pipe()
        inputs = Inputs(stdin, 1)
        given = asyncio.create_task(write_all(client, text))
        reader, _ = inputs.pipes[0]
        for _ in range(10):  # nobody reads meanwhile
            inputs.nodes[0].ask()
            inputs.feed.resumed(0)
            await asyncio.sleep(0.005)
        assert await read_all(reader, size=len(text)) == text
        await given
        os.close(client)
        assert await read_all(reader) == b""

    run(work)


@pytest.mark.parametrize("ends", [False, True])
def test_input_of_which_a_node_has_heard_nothing_is_sent_again(*, ends: bool) -> None:
    async def work() -> None:
        stdin, client = os.pipe()
        inputs = Inputs(stdin, 1)
        inputs.lost = True
        await write_all(client, b"first words\n")
        if ends:
            os.close(client)
        await asyncio.sleep(0.02)
        inputs.lost = False
        inputs.feed.resumed(0)  # the node does not know that there was something, and does not ask
        assert await read_all(inputs.pipes[0][0], size=None if ends else 12) == b"first words\n"

    run(work)


def test_what_is_missing_is_asked_for_once() -> None:
    async def work() -> None:
        _, sink = os.pipe()
        _, tasks = os.pipe()
        told: list[Mapping[str, object]] = []
        for end in (Inlet(Sink(sink), told.append, WINDOW), Intake(tasks, told.append)):
            for at in range(1, 1000):  # of which the first byte was lost
                end.take({"at": at}, b"x")
            assert [one["have"] for one in told if one.get("again")] == [0]
            end.take({"at": 1000, "end": False}, b"")  # who is asked has not heard it
            end.take({"at": 0}, b"x" * 10)
            end.take({"at": 11}, b"x")
            assert [one["have"] for one in told if one.get("again")] == [0, 0, 10]
            told.clear()

    run(work)
