"""What `nodectl top` shows above its table: names of users' choice are text, and a step's output is lines."""

from __future__ import annotations

import asyncio
import socket

from textual.app import App
from textual.containers import VerticalScroll
from textual.widgets import Static

from nodectl.model.wire import terminal_packets as packets
from nodectl.view.top.dialogs import Reading
from nodectl.view.top.stream import Stream


def test_brackets_are_no_markup() -> None:
    async def shown() -> tuple[str, str]:
        app: App[None] = App()
        async with app.run_test() as pilot:
            await app.push_screen(Reading("explain 8_[0-4]", ["[red]7[/red]"]))
            await pilot.pause()
            frame = app.screen.query_one(VerticalScroll)
            assert frame._border_title is not None
            return frame._border_title.plain, str(app.screen.query_one(Static).content)

    assert asyncio.run(shown()) == ("explain 8_[0-4]", "[red]7[/red]")


def connected() -> tuple[socket.socket, Stream]:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return here, Stream(there)


def test_output_comes_as_lines_by_task_without_control_characters() -> None:
    here, stream = connected()
    for kind, task, data in (
        (packets.OUT, 0, b"one\r\ntw"), (packets.OUT, 1, b"other\n"), (packets.OUT, 0, b"o\n\x1b[2J\tx\n\xff\n"),
        (packets.NOTE, 0, b"so it is"), (b"?", 0, b"unknown"),
    ):  # fmt: skip
        here.send(packets.packet(kind, data, task))
    lines = stream.read(10_000)
    assert lines == ["one", "other", "two", "\\x1b[2J    x", "\\udcff", "-- so it is --"]
    stream.close()


def test_a_line_without_an_end_is_shown_when_nothing_follows() -> None:
    here, stream = connected()
    here.send(packets.packet(packets.OUT, b"password: "))
    assert stream.read(10_000) == []
    assert stream.read(0) == ["password: "]
    here.close()
    assert (stream.read(10_000), stream.is_open) == ([], False)


def test_one_read_takes_no_more_than_can_be_shown() -> None:
    here, stream = connected()
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    here.setblocking(False)
    sent = 0
    try:
        while sent < 50:
            here.send(packets.packet(packets.OUT, b"y\n" * 1000))
            sent += 1
    except BlockingIOError:
        pass
    assert sent > 20
    assert len(stream.read(10_000)) < 20_000
    stream.close()
