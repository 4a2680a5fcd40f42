"""A session on its own: what it does when nobody comes, and what it says when the daemon has gone."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
from collections.abc import Iterator

import pytest

from nodectl.model.wire import frames, framing
from nodectl.service.listener import session
from nodectl.service.listener.connection import ClientConnection
from nodectl.service.listener.main import SessionProcess as Place

PATIENCE = 20
HELLO = framing.encode({"method": "org.nodectl.Hello"})
LAUNCH = framing.encode({"method": "org.nodectl.Launch"})
WITHDRAW = framing.encode({"method": "org.nodectl.Withdraw", "oneway": True})


class Around:
    """A session that serves in a thread, and whoever it has to do with."""

    def __init__(self) -> None:
        entrance, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.down, theirs_down = socket.socketpair()
        self.up, theirs_up = os.pipe()
        entrance.setblocking(False)
        self.place = Place(1, entrance, os.pidfd_open(os.getpid()))
        self._end = theirs_up
        ends = (theirs.detach(), theirs_up, theirs_down.detach())
        self._serving = threading.Thread(target=session.UserSession(*ends, most=8, longest=1 << 16).serve)
        self._serving.start()
        self._numbers = 0
        self._inbox = framing.Inbox(1 << 20)

    def connect(self) -> socket.socket | None:
        """A client's end; None when the session takes nobody any more."""
        ours, theirs = socket.socketpair()
        ours.settimeout(PATIENCE)
        self._numbers += 1
        with theirs:
            return ours if self.place.give(self._numbers, theirs) else None

    def heard(self) -> tuple[int, bytes, bytes]:
        while (data := self._inbox.take()) is None:
            self._inbox.feed(os.read(self.up, 65536))
        return frames.split(data)

    def reply(self, number: int, text: bytes, fds: list[int]) -> None:
        for word, sent in ((frames.HAND, fds), (frames.REPLY, [])):
            framing.send_some(self.down, frames.frame(number, word, text), sent)

    def ended(self) -> bool:
        self._serving.join(PATIENCE)
        return not self._serving.is_alive()

    def close(self) -> None:
        self.down.close()
        self.place.close()
        assert self.ended()
        for fd in (self.up, self._end, self.place.pidfd):
            os.close(fd)


@pytest.fixture
def around() -> Iterator[Around]:
    made = Around()
    yield made
    made.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_IDLE_MS", 50)


def test_a_session_with_connections_takes_others_however_long_nobody_came(
    around: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else four long steps of a user would have been all: of sessions that end there may be four."""
    first = around.connect()
    assert first is not None
    with first:
        first.sendall(HELLO)
        assert around.heard()[1] == frames.CALL
        monkeypatch.setattr(session, "_IDLE_MS", 0)
        framing.send_some(around.down, frames.frame(1, frames.REPLY, b"{}"))
        assert framing.receive(first, framing.Inbox(1 << 16)) == {}
        second = around.connect()
        assert second is not None
        with second:
            second.sendall(HELLO)
            assert around.heard()[:2] == (2, frames.CALL)


@pytest.mark.usefixtures("impatient")
def test_a_session_that_nobody_comes_to_ends_and_takes_nobody_any_more() -> None:
    made = Around()
    assert made.ended()
    assert made.connect() is None
    assert made.place.entrance is None
    made.close()


def test_who_wanted_no_answer_gets_no_descriptors_with_the_next(around: Around) -> None:
    client = around.connect()
    assert client is not None
    with client:
        client.sendall(LAUNCH + HELLO)
        assert around.heard()[1] == frames.CALL
        way, streams = socket.socketpair()
        reader, writer = os.pipe()
        with way, streams:
            around.reply(1, b"", [way.fileno(), writer])
        os.close(writer)
        assert around.heard()[1] == frames.CALL
        framing.send_some(around.down, frames.frame(1, frames.REPLY, b"{}"))
        inbox = framing.Inbox(1 << 16)
        assert framing.receive(client, inbox) == {}
        assert inbox.take_descriptors() == []
        assert os.read(reader, 1) == b""  # the session has closed its end, and the step learns that nobody is there
        os.close(reader)


@pytest.mark.parametrize("moment", ["before the reply", "with the reply", "with the daemon"])
def test_the_step_runner_sees_that_its_client_has_gone_before_it_gets_the_streams(
    around: Around, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Else the program of a client that died in the job's prolog ran until the session had closed its own ends."""
    told: list[bool] = []
    hand_over, kept = ClientConnection.hand_over, framing.hand_over
    way, streams = socket.socketpair()
    reader, writer = os.pipe()
    client = around.connect()
    assert client is not None

    def die(connection: ClientConnection, fds: list[int], answer: bytes) -> None:
        os.close(writer)
        if moment != "before the reply":  # what the session knows only when it looks
            client.close()
        if moment == "with the daemon":
            around.down.close()
        else:
            framing.send_some(around.down, frames.frame(1, frames.REPLY, b"{}"))
        hand_over(connection, fds, answer)

    def look(sock: socket.socket, fds: list[int]) -> None:
        poll = select.poll()
        poll.register(reader, 0)
        told.append(bool(poll.poll(0)))
        kept(sock, fds)

    monkeypatch.setattr(ClientConnection, "hand_over", die)
    monkeypatch.setattr(framing, "hand_over", look)
    client.sendall(LAUNCH)
    assert around.heard()[1] == frames.CALL
    if moment == "before the reply":
        client.close()
        assert around.heard()[:2] == (1, frames.GONE)
    if moment == "with the daemon":
        streams.send(frames.BEGUN)
    framing.send_some(around.down, frames.frame(1, frames.HAND, b"{}"), [way.fileno(), writer])
    way.close()
    streams.settimeout(PATIENCE)
    while streams.recv(1):
        pass
    assert all(told)
    os.close(reader)
    streams.close()


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ETOOMANYREFS, "more descriptors of yours are on their way"), (errno.ENOBUFS, "No buffer space available")],
)
def test_a_call_whose_descriptors_could_not_be_passed_on_is_refused_in_words(
    around: Around, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    """The client was told that its step runs, and the step then failed with "the streams of its client never came"."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    client = around.connect()
    assert client is not None
    with client:
        client.sendall(LAUNCH)
        assert around.heard()[1] == frames.CALL
        monkeypatch.setattr(framing, "hand_over", refuse)
        way, streams = socket.socketpair()
        reader, writer = os.pipe()
        with way, streams:
            around.reply(1, b"{}", [way.fileno(), writer])
        os.close(writer)
        inbox = framing.Inbox(1 << 16)
        assert words in str(framing.receive(client, inbox))
        assert inbox.take_descriptors() == []
        assert os.read(reader, 1) == b""  # what the daemon has begun learns that nobody is there
        os.close(reader)
        client.sendall(HELLO)  # the connection goes on
        assert around.heard()[1] == frames.CALL


def test_a_launch_that_waits_for_its_turn_when_the_daemon_ends_is_not_taken(
    around: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_MOST_BACKLOG", -1)  # the daemon takes nothing: nothing more is passed on
    client = around.connect()
    assert client is not None
    with client:
        client.sendall(LAUNCH)
        other = around.connect()
        assert other is not None
        with other:  # served in turn: what the first sent has been read when this one is gone
            other.shutdown(socket.SHUT_WR)
            assert around.heard()[:2] == (2, frames.GONE)
        around.down.close()
        assert "ServiceEnded" in str(framing.receive(client, framing.Inbox(1 << 16)))


def test_a_launch_is_withdrawn_once_and_then_the_connection_ends(around: Around) -> None:
    client = around.connect()
    assert client is not None
    with client:
        client.sendall(LAUNCH)
        assert around.heard()[1] == frames.CALL
        client.sendall(WITHDRAW + WITHDRAW)
        assert around.heard()[:2] == (1, frames.WITHDRAW)
        framing.send_some(around.down, frames.frame(1, frames.WITHDRAWN))
        inbox = framing.Inbox(1 << 16)
        assert "Withdrawn" in str(framing.receive(client, inbox))
        assert framing.receive(client, inbox) is None
        assert around.heard()[:2] == (1, frames.GONE)
        framing.send_some(around.down, frames.frame(1, frames.REPLY, b"{}"))  # the launch is over


def test_what_comes_behind_a_launch_that_is_withdrawn_too_late_is_answered(around: Around) -> None:
    client = around.connect()
    assert client is not None
    with client:
        client.sendall(LAUNCH)
        assert around.heard()[1] == frames.CALL
        client.sendall(WITHDRAW)
        assert around.heard()[:2] == (1, frames.WITHDRAW)
        framing.send_some(around.down, frames.frame(1, frames.REPLY, b'{"parameters":{}}'))
        inbox = framing.Inbox(1 << 16)
        assert framing.receive(client, inbox) == {"parameters": {}}
        assert around.heard()[:2] == (1, frames.CALL)
        framing.send_some(around.down, frames.frame(1, frames.REPLY))
        client.sendall(HELLO)
        assert around.heard()[1] == frames.CALL
        framing.send_some(around.down, frames.frame(1, frames.REPLY, b"{}"))
        assert framing.receive(client, inbox) == {}


def test_a_launch_that_is_withdrawn_before_the_daemon_has_it_never_comes_there(around: Around) -> None:
    client = around.connect()
    assert client is not None
    with client:
        client.sendall(HELLO + LAUNCH + WITHDRAW)
        assert around.heard()[1] == frames.CALL
        framing.send_some(around.down, frames.frame(1, frames.REPLY, b"{}"))
        inbox = framing.Inbox(1 << 16)
        assert framing.receive(client, inbox) == {}
        assert "Withdrawn" in str(framing.receive(client, inbox))
        assert around.heard()[:2] == (1, frames.GONE)


def test_who_has_only_closed_its_own_way_gets_every_reply(around: Around) -> None:
    """As who pipes requests into socat(1)."""
    client = around.connect()
    assert client is not None
    with client:
        client.sendall(HELLO + HELLO)
        assert around.heard()[1] == frames.CALL
        client.shutdown(socket.SHUT_WR)
        inbox = framing.Inbox(1 << 16)
        framing.send_some(around.down, frames.frame(1, frames.REPLY, b'{"parameters":{"is":1}}'))
        assert "1" in str(framing.receive(client, inbox))
        assert around.heard()[1] == frames.CALL
        framing.send_some(around.down, frames.frame(1, frames.REPLY, b'{"parameters":{"is":2}}'))
        assert "2" in str(framing.receive(client, inbox))
        assert framing.receive(client, inbox) is None
        assert around.heard()[:2] == (1, frames.GONE)


def test_who_closed_its_own_way_first_and_the_other_then_has_gone(around: Around) -> None:
    client = around.connect()
    assert client is not None
    with client:
        client.sendall(HELLO)
        assert around.heard()[1] == frames.CALL
        client.shutdown(socket.SHUT_WR)
        with_other = around.connect()
        assert with_other is not None
        with with_other:  # served in turn: that the first sends nothing more is known when this one is heard
            with_other.sendall(HELLO)
            assert around.heard()[:2] == (2, frames.CALL)
        assert around.heard()[:2] == (2, frames.GONE)
    assert around.heard()[:2] == (1, frames.GONE)
    framing.send_some(around.down, frames.frame(1, frames.REPLY, b"{}"))


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EIO])
def test_a_call_that_cannot_be_passed_on_is_answered_with_an_error_and_all_connections_end(
    around: Around, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Only a broken pipe means that the daemon has gone. Nobody waits for the answer to a call that nobody got."""
    others = around.connect()
    client = around.connect()
    assert others is not None
    assert client is not None
    others.sendall(HELLO)
    assert around.heard()[1] == frames.CALL
    write = os.write

    def fail(fd: int, data: bytes) -> int:
        if fd == around._end:
            raise OSError(number, os.strerror(number))
        return write(fd, data)

    monkeypatch.setattr(os, "write", fail)
    client.sendall(LAUNCH)
    for sock in (client, others):
        answer = framing.receive(sock, framing.Inbox(1 << 16))
        assert answer is not None
        assert answer["error"] == "org.nodectl.InternalError"
        assert os.strerror(number) in str(answer["parameters"])
        assert sock.recv(1) == b""
        sock.close()
    assert around.ended()
    assert os.read(around.up, 1) == b""  # so the daemon knows
    around._end = os.dup(0)


def test_what_the_daemon_says_and_cannot_be_read_ends_all_connections_in_words(
    around: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = around.connect()
    assert client is not None
    client.sendall(HELLO)
    number, _, _ = around.heard()

    def fail(*_: object) -> bool:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    receive = framing.Inbox.receive
    monkeypatch.setattr(framing.Inbox, "receive", fail)
    around.reply(number, b"{}", [])
    assert around.ended()
    monkeypatch.setattr(framing.Inbox, "receive", receive)
    answer = framing.receive(client, framing.Inbox(1 << 16))
    assert answer is not None
    assert answer["error"] == "org.nodectl.InternalError"
    client.close()
    around._end = os.dup(0)


@pytest.mark.parametrize("first", [True, False])
def test_a_session_of_a_uid_without_account_keeps_only_a_share_of_a_users_room(
    around: Around, monkeypatch: pytest.MonkeyPatch, *, first: bool
) -> None:
    """Whether it learns of its share before the bytes come or after that."""
    given: list[int] = []
    monkeypatch.setattr(session, "limit_memory", given.append)  # of the process that runs the tests
    monkeypatch.setattr(session, "_MOST_UNREAD", 1 << 18)
    if first:
        around.place.share(8)
    clients = [client for _ in range(2) if (client := around.connect()) is not None]
    poll = select.poll()
    for client in clients:
        client.sendall(b"x" * 20_000)
        poll.register(client, select.POLLIN)
    if not first:
        around.place.share(8)
    refused = next(client for client in clients if client.fileno() == poll.poll(PATIENCE * 1000)[0][0])
    reply = framing.receive(refused, framing.Inbox(1 << 16))
    assert "messages of more than 32768 bytes of yours are not whole yet" in str(reply)
    assert given == [session._MOST_OF_A_SHARE // 8]
    for client in clients:
        client.close()


def test_a_process_with_a_share_of_memory_gets_no_more() -> None:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            session.limit_memory(8 << 20)
            try:
                bytes(256 << 20)  # more than may be left in the heap of the process that runs the tests
            except MemoryError:
                status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
