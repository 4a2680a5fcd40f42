"""A session as the daemon has it: killed at any moment it leaves nothing behind there, and touches nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace

import pytest

import descriptors
from nodectl.model.wire import frames, framing
from nodectl.model.wire.dispatch import Call, Refused, Service
from nodectl.service.config_file.reader import load
from nodectl.service.daemon.connections import supervisor
from nodectl.service.daemon.connections.connection import CallCounts, SessionChannel
from nodectl.service.daemon.connections.supervisor import ListenerSupervisor
from nodectl.service.daemon.processes.forkserver_channel import ForkserverChannel

MOST = 2
CROWD = 100
NO_FD = 999_999
PATIENCE = 60  # seconds
Method = Callable[[Call], object]


class Ends:
    """A session with one connection, and its process's ends."""

    def __init__(self, method: Method, calls: CallCounts, uid: int = 1000) -> None:
        up, self.writer = os.pipe()
        down, self.reader = socket.socketpair()
        self.up = up
        self.uid = uid
        service = Service("0", {"org.nodectl.List": ({}, method)})
        self.session = SessionChannel(uid, up, down.detach(), service, calls, 1 << 16, lambda: None, lambda _: None)
        self.add(1)

    def add(self, number: int) -> None:
        self.session.add(number, framing.Peer(os.getpid(), self.uid, self.uid, (), os.pidfd_open(os.getpid())))

    def call(self, number: int = 1) -> None:
        os.write(self.writer, frames.frame(number, frames.CALL, b'0 {"method":"org.nodectl.List"}'))

    def close(self) -> None:
        self.session.close()
        self.reader.close()
        os.close(self.writer)


def run(act: Callable[[], Coroutine[object, object, None]]) -> None:
    asyncio.run(act())


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_crowd_of_one_users_calls_does_not_go_before_anothers_one() -> None:
    served: list[int] = []

    def method(call: Call) -> object:
        served.append(call.peer.uid)
        return {}

    async def act() -> None:
        calls = CallCounts(CROWD)
        crowd, other = Ends(method, calls, 1000), Ends(method, calls, 1001)
        for number in range(2, CROWD + 1):
            crowd.add(number)
        for number in range(1, CROWD + 1):
            crowd.call(number)
        other.call()
        await turns(10 * CROWD)
        assert len(served) == CROWD + 1
        assert served.index(1001) < CROWD // 10
        crowd.close()
        other.close()

    run(act)


def test_a_session_that_ends_before_its_call_has_begun_leaves_nothing_behind() -> None:
    async def method(call: Call) -> object:
        del call
        return await asyncio.get_running_loop().create_future()

    async def act() -> None:
        calls = CallCounts(MOST)
        with descriptors.none_left():
            for _ in range(MOST):
                ends = Ends(method, calls)
                # What its pipe's reader does, and in the same turn of the loop the session is found dead.
                ends.call()
                ends.session._readable()
                ends.close()
                await turns()
        for _ in range(MOST):
            calls.begin(1000)  # none is counted any more

    run(act)


def test_a_session_that_dies_of_its_answer_does_not_take_anothers_place_in_the_loop() -> None:
    """Whoever opens a file next has the number of its pipe."""
    heard: list[bytes] = []

    async def act() -> None:
        reader, writer = os.pipe()

        def method(call: Call) -> object:
            call.hand_over({}, [])  # nobody is there: the session is closed
            os.dup2(reader, ends.up)
            asyncio.get_running_loop().add_reader(ends.up, lambda: heard.append(os.read(reader, 1)))
            return {}

        ends = Ends(method, CallCounts(MOST))
        ends.reader.close()
        ends.call()
        ends.session._readable()
        os.write(writer, b"x")
        await turns()
        assert heard == [b"x"]
        asyncio.get_running_loop().remove_reader(ends.up)
        for fd in (reader, writer, ends.up, ends.writer):
            os.close(fd)

    run(act)


def test_a_session_that_has_ended_is_forgotten_and_what_was_still_to_come_closed() -> None:
    def method(call: Call) -> object:
        raise Refused("NoSuchStep", call.method)

    async def act() -> None:
        listener = ListenerSupervisor(load("/nowhere", must_exist=False))
        try:
            listener._service = Service("0", {"org.nodectl.List": ({}, method)})
            await listener.ready()
            with descriptors.none_left():
                for number in range(10):
                    up, writer = os.pipe()
                    down, reader = socket.socketpair()
                    listener._note({"session": number, "uid": 1000}, [up, down.detach()])
                    os.close(writer)
                    reader.close()
                    await turns()
                    late = {"connection": number, "session": number, "pid": 1, "gid": 1000, "groups": []}
                    listener._note(late, [os.pidfd_open(os.getpid())])
                assert not listener._numbered
        finally:
            await listener.close()

    run(act)


def test_what_a_listener_said_before_it_died_is_heard() -> None:
    async def act() -> None:
        listener = ListenerSupervisor(load("/nowhere", must_exist=False))
        try:
            await listener.ready()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            assert listener._channel is not None
            asyncio.get_running_loop().remove_reader(listener._channel.fileno())
            was, listener._channel = listener._channel, ours
            listener._send({"ping": 5})  # which it never reads
            theirs.send(b'{"pong":4711}')
            theirs.close()
            listener._hear()
            was.close()
            assert listener._pong == 4711
        finally:
            await listener.close()

    run(act)


def test_a_forkserver_that_cannot_be_started_costs_no_descriptors() -> None:
    """Each launch tries."""
    channel = ForkserverChannel(load("/nowhere", must_exist=False), NO_FD, NO_FD, lambda _: None, list)
    with descriptors.none_left(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(3):
            fds = [os.dup(0), os.dup(0)]
            with pytest.raises(OSError, match="Bad file descriptor"):  # as for one descriptor too few
                channel.request_container({}, fds)


def test_a_reply_that_is_too_large_is_an_error_and_ends_nothing() -> None:
    sizes = [33 << 20, 20 << 20, 20 << 20, 1000]

    async def act() -> None:
        ends = Ends(lambda _: {"steps": "x" * sizes.pop(0)}, CallCounts(MOST))
        ends.reader.setblocking(False)
        inbox = framing.Inbox(64 << 20)

        async def reply() -> bytes:
            while (text := inbox.take()) is None:
                with contextlib.suppress(BlockingIOError):
                    assert inbox.receive(ends.reader)
                await asyncio.sleep(0)
            return text

        ends.call()
        told = await reply()
        assert b"TooLarge" in told
        assert b"may have" in told
        for _ in range(3):  # nobody reads now
            ends.call()
            await turns()
        assert len(await reply()) > 20 << 20
        assert b"are not read" in await reply()
        assert (
            await reply() == frames.frame(1, frames.REPLY, framing.encode({"parameters": {"steps": "x" * 1000}}))[:-2]
        )
        ends.close()

    run(act)


async def listener_with(act: Callable[[ListenerSupervisor], Coroutine[object, object, None]]) -> None:
    listener = ListenerSupervisor(load("/nowhere", must_exist=False))
    try:
        listener._service = Service("0", {})
        await listener.ready()
        await act(listener)
    finally:
        await listener.close()


@pytest.mark.parametrize("fails", ["watching it", "its socket", "its descriptors"])
def test_a_session_that_cannot_be_served_is_let_go_and_the_log_says_so(
    fails: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its process finds both ends closed, tells its clients, and the user's next connection gets another one."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    async def act(listener: ListenerSupervisor) -> None:
        with descriptors.none_left():
            up, writer = os.pipe()
            down, reader = socket.socketpair()
            fds = [up, down.detach()]
            if fails == "its descriptors":  # the kernel drops those for which there is no room
                os.close(fds.pop())
            with monkeypatch.context() as patch:
                if fails == "watching it":
                    patch.setattr(asyncio.get_running_loop(), "add_reader", fail)
                if fails == "its socket":
                    patch.setattr(socket, "socket", fail)
                listener._note({"session": 1, "uid": 1000}, fds)
            with pytest.raises(BrokenPipeError):
                os.write(writer, b"x")
            assert reader.recv(1) == b""
            os.close(writer)
            reader.close()
            late = {"connection": 1, "session": 1, "pid": 1, "gid": 1000, "groups": [], "inode": 1}
            listener._note(late, [os.pidfd_open(os.getpid())])
        assert not listener._numbered
        assert not listener._sessions

    run(lambda: listener_with(act))
    assert "serve the connections of uid 1000: " in capfd.readouterr().err


@pytest.mark.parametrize("fails", ["add_reader", "add_writer"])
def test_a_session_that_the_system_does_not_watch_any_more_is_let_go(
    fails: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its clients would wait for ever: for a call that nobody reads, or for an answer that does not fit in."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    async def act() -> None:
        text = "x" * ((1 << 16) if fails == "add_writer" else 1)
        ends = Ends(lambda _: {"text": text}, CallCounts(CROWD))
        monkeypatch.setattr(asyncio.get_running_loop(), fails, fail)
        for number in range(2, 30):
            ends.add(number)
        with contextlib.suppress(BrokenPipeError):
            for number in range(1, 30):
                ends.call(number)
                await turns(1)
            await turns(200)
        with pytest.raises(BrokenPipeError):
            os.write(ends.writer, b"x")
        ends.close()

    run(act)
    assert "serve the connections of uid 1000: Cannot allocate memory" in capfd.readouterr().err


async def nobody_has_an_account(_: int) -> bool:
    return False


def test_a_listener_that_does_not_get_the_listening_socket_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Else the daemon lives, and nobody listens."""
    send = socket.send_fds
    failed: list[bytes] = []

    def fail_once(sock: socket.socket, texts: list[bytes], fds: list[int]) -> int:
        if b"listen" in texts[0] and not failed:
            failed.append(texts[0])
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return send(sock, texts, fds)

    async def act(listener: ListenerSupervisor) -> None:
        monkeypatch.setattr(socket, "send_fds", fail_once)
        opened = asyncio.Event()

        def opens(*_: object) -> SimpleNamespace:
            opened.set()
            return SimpleNamespace(abandon=list)

        monkeypatch.setattr(supervisor, "SessionChannel", opens)
        with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as client:
            listening.bind(str(tmp_path / "sock"))
            listening.listen()
            listener.listen(listening, Service("0", {}), nobody_has_an_account)
            client.connect(str(tmp_path / "sock"))
            await asyncio.wait_for(opened.wait(), PATIENCE)

    run(lambda: listener_with(act))
    assert failed
    assert "does not get the order" in capfd.readouterr().err


def test_news_of_connections_are_heard_a_few_at_a_time() -> None:
    """They may come as fast as they are read, and others are served in between."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    heard: list[object] = []
    one = object.__new__(ListenerSupervisor)
    one._channel = ours
    one._note = lambda news, fds: heard.append(news)  # type: ignore[method-assign]
    with ours, theirs:
        for number in range(100):
            theirs.send(b'{"pong":%d}' % number)
        one._hear(supervisor._AT_ONCE)
        assert 0 < len(heard) == supervisor._AT_ONCE
        one._hear()  # of a connection that is used already all is wanted
        assert len(heard) == 100
