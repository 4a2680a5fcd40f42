"""A command asks for Hello before it needs the answer: what the service may do meanwhile."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodectl.client.command import Failed, GlobalOptions
from nodectl.client.session import Session
from nodectl.model.wire import framing
from nodectl.model.wire.names import NODE

HELLO = {"node": "node1"}
REFUSAL = {"error": f"{NODE}.Refused", "parameters": {"reason": "too many connections"}}
Service = Callable[[socket.socket], None]


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "nodectl.sock"))
        sock.listen()
        yield sock


def connected(listener: socket.socket) -> tuple[Session, socket.socket]:
    settings = GlobalOptions()
    settings.socket = listener.getsockname()
    session = Session(settings)
    return session, listener.accept()[0]


def answer(listener: socket.socket) -> threading.Thread:
    """The service that follows one that has gone: it answers one call."""

    def serve() -> None:
        with listener.accept()[0] as sock:
            asked = framing.receive(sock, framing.Inbox(1 << 16))
            assert asked is not None
            framing.send(sock, {"parameters": {**HELLO, "asked": asked["method"]}})

    listener.settimeout(60)
    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_answer_that_is_there_already_is_taken_and_not_asked_for_again(listener: socket.socket) -> None:
    session, service = connected(listener)
    session.ask("Hello")
    framing.send(service, {"parameters": HELLO})
    assert session.call("Hello") == HELLO
    inbox = framing.Inbox(1 << 16)
    session.close()
    assert framing.receive(service, inbox) == {"method": f"{NODE}.Hello", "parameters": {}}
    assert framing.receive(service, inbox) is None
    service.close()


@pytest.mark.parametrize("unread", [True, False])
def test_service_that_ends_after_it_was_asked_is_followed_by_the_next(listener: socket.socket, unread: bool) -> None:
    session, service = connected(listener)
    session.ask("Hello")
    if not unread:
        service.recv(1 << 16)
    service.close()
    next_service = answer(listener)
    assert session.call("Hello") == {**HELLO, "asked": f"{NODE}.Hello"}
    next_service.join()
    session.close()


def test_service_that_ends_before_it_is_asked_is_followed_by_the_next(listener: socket.socket) -> None:
    session, service = connected(listener)
    service.close()
    session.ask("Hello")
    next_service = answer(listener)
    assert session.call("Hello") == {**HELLO, "asked": f"{NODE}.Hello"}
    next_service.join()
    session.close()


@pytest.mark.parametrize("early", [True, False])
def test_refused_connection_says_why(listener: socket.socket, early: bool) -> None:
    session, service = connected(listener)
    if not early:
        session.ask("Hello")
    framing.send(service, REFUSAL)
    service.close()
    if early:
        session.ask("Hello")
    with pytest.raises(Failed, match="too many connections"):
        session.call("Hello")
    session.close()


def test_service_that_is_gone_for_good_is_named_so(listener: socket.socket) -> None:
    session, service = connected(listener)
    session.ask("Hello")
    service.close()
    listener.close()
    with pytest.raises(Failed, match="Hello: the service went away before it answered"):
        session.call("Hello")
    session.close()
