"""The stepd's connections, in this process: pipes as a launching client has them."""

import os
import select
import socket
from collections.abc import Mapping
from pathlib import Path

from nodectl.launch.stepd.connections import Links
from nodectl.model.wire import framing, lean_json
from nodectl.model.wire.dispatch import STEP


def test_the_reply_to_a_client_that_went_away_is_not_written_to_a_file_that_was_opened_since(tmp_path: Path) -> None:
    """A call collects ended tasks: their ends are told to a client that no longer reads, and hooks open files."""
    orders, their_orders = os.pipe2(os.O_CLOEXEC)
    their_news, news = os.pipe2(os.O_CLOEXEC)
    opened: list[int] = []

    def collects(_: object) -> Mapping[str, object]:
        links.broadcast({"event": "exit"})
        while not {orders, news} <= set(opened):
            opened.append(os.open(tmp_path / str(len(opened)), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC))
        return {}

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "step.sock"))
    links = Links(listener.detach(), select.poll(), lambda: {f"{STEP}.Signal": ({}, collects)})
    links.adopt_launcher(orders, news, os.getuid())
    os.write(their_orders, framing.encode({"method": f"{STEP}.Signal", "parameters": {}}))
    os.close(their_news)
    links.handle(orders, select.POLLIN)
    assert not any(os.fstat(fd).st_size for fd in opened)
    for fd in (their_orders, *opened):
        os.close(fd)


def test_the_last_event_is_the_record_and_ends_the_call_of_the_client(tmp_path: Path) -> None:
    orders, their_orders = os.pipe2(os.O_CLOEXEC)
    their_news, news = os.pipe2(os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "step.sock"))
    links = Links(listener.detach(), select.poll(), dict)
    links.adopt_launcher(orders, news, os.getuid())
    record = {"state": "FAILED", "reason": 'killed "x" \udcff'}
    links.broadcast({"event": "exit"})
    links.broadcast_end(lean_json.dumps(record))
    links.close()
    told = [lean_json.load_object(text) for text in os.read(their_news, 4096).split(b"\0")[:-1]]
    assert told == [
        {"parameters": {"event": {"event": "exit"}}, "continues": True},
        {"parameters": {"event": {"event": "end", "record": record}}},
    ]
    for fd in (their_orders, their_news):
        os.close(fd)
