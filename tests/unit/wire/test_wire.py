"""Framing and descriptors over real sockets."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import descriptors
from nodectl.model.wire import framing, peer_process

LIMIT = 4096
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_messages_come_out_one_by_one_however_they_were_cut(pair: Pair) -> None:
    ours, theirs = pair
    messages: list[dict[str, object]] = [{"n": 1}, {"text": "ä\udcff"}, {}, {"list": [1, None, True]}]
    data = b"".join(map(framing.encode, messages))
    inbox = framing.Inbox(LIMIT)
    found = []
    for byte in data:
        ours.send(bytes([byte]))
        assert inbox.receive(theirs)
        while (message := inbox.next()) is not None:
            found.append(message)
    assert found == messages
    assert not inbox.partial


@given(st.lists(st.dictionaries(st.text(max_size=5), st.integers(), max_size=5), max_size=8), st.integers(1, 50))
def test_any_cut_of_a_stream_gives_the_same_messages(messages: list[dict[str, object]], size: int) -> None:
    ours, theirs = socket.socketpair()
    inbox = framing.Inbox(1 << 16)
    found = []
    with ours, theirs:
        data = b"".join(map(framing.encode, messages))
        for at in range(0, len(data), size):
            ours.sendall(data[at : at + size])
            inbox.receive(theirs)
            while (message := inbox.next()) is not None:
                found.append(message)
    assert found == messages


def test_a_message_of_the_limit_passes_and_one_byte_more_does_not(pair: Pair) -> None:
    ours, theirs = pair
    overhead = len(framing.encode({"a": ""})) - 1
    for extra in (0, 1):
        ours.sendall(framing.encode({"a": "x" * (LIMIT - overhead + extra)}))
        inbox = framing.Inbox(LIMIT)
        if extra:
            with pytest.raises(framing.BrokenWire, match="longer than 4096 bytes"):
                framing.receive(theirs, inbox)
        else:
            assert framing.receive(theirs, inbox) is not None


def test_an_endless_message_is_given_up_at_the_limit(pair: Pair) -> None:
    ours, theirs = pair
    sender = threading.Thread(target=_send_forever, args=(ours,))
    sender.start()
    inbox = framing.Inbox(LIMIT)
    try:
        with pytest.raises(framing.BrokenWire, match="longer than"):
            framing.receive(theirs, inbox)
    finally:
        theirs.close()
        sender.join(10)
    assert not sender.is_alive()


def _send_forever(sock: socket.socket) -> None:
    try:
        while True:
            sock.sendall(b"x" * 65536, socket.MSG_NOSIGNAL)
    except OSError:
        return


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0", "no JSON value"),
        (b"garbage\0", "no JSON value|malformed"),
        (b'{"a":\0', "malformed|no JSON"),
        (b'"text"\0', "not a JSON object"),
        (b"[1]\0", "not a JSON object"),
        (b'{"a":"\xff\xfe"}\0', "not UTF-8 at byte 6"),
        (b"{}{}\0", "follows the JSON value"),
        (b"[" * 3000 + b"\0", "nested too deeply|malformed|no JSON"),
    ],
)
def test_what_is_no_message_breaks_the_connection_with_a_reason(pair: Pair, data: bytes, reason: str) -> None:
    ours, theirs = pair
    ours.sendall(data)
    with pytest.raises(framing.BrokenWire, match=reason) as caught:
        framing.receive(theirs, framing.Inbox(LIMIT))
    assert "\n" not in str(caught.value)


def test_an_end_between_messages_is_clean_and_one_inside_is_not(pair: Pair) -> None:
    ours, theirs = pair
    inbox = framing.Inbox(LIMIT)
    ours.sendall(framing.encode({"a": 1}) + b'{"b"')
    ours.close()
    assert framing.receive(theirs, inbox) == {"a": 1}
    with pytest.raises(framing.BrokenWire, match="ended inside a message"):
        framing.receive(theirs, inbox)
    other, end = socket.socketpair()
    other.close()
    with end:
        assert framing.receive(end, framing.Inbox(LIMIT)) is None


def test_descriptors_arrive_as_the_same_files_and_closed_on_exec(pair: Pair) -> None:
    ours, theirs = pair
    reader, writer = os.pipe()
    framing.send(ours, {"with": "descriptors"}, [reader, writer])
    inbox = framing.Inbox(LIMIT)
    assert framing.receive(theirs, inbox) == {"with": "descriptors"}
    taken = inbox.take_descriptors()
    try:
        assert [os.fstat(fd).st_ino for fd in taken] == [os.fstat(fd).st_ino for fd in (reader, writer)]
        assert not any(os.get_inheritable(fd) for fd in taken)
        assert inbox.take_descriptors() == []
    finally:
        for fd in (*taken, reader, writer):
            os.close(fd)


def test_descriptors_nobody_took_are_closed(pair: Pair) -> None:
    ours, theirs = pair
    with descriptors.none_left():
        before = descriptors.now()
        framing.send(ours, {}, [0, 1, 2])
        inbox = framing.Inbox(LIMIT)
        framing.receive(theirs, inbox)
        assert len(descriptors.now() - before) == 3
        inbox.close()
        inbox.close()


@pytest.mark.parametrize("count", [17, 200])
def test_too_many_descriptors_break_the_connection_and_leak_nothing(pair: Pair, count: int) -> None:
    ours, theirs = pair
    with descriptors.none_left():
        socket.send_fds(ours, [framing.encode({})], [0] * count)
        inbox = framing.Inbox(LIMIT)
        with pytest.raises(framing.BrokenWire, match="more than 16 descriptors"):
            framing.receive(theirs, inbox)
        inbox.close()


def test_a_large_message_with_descriptors_is_sent_whole(pair: Pair) -> None:
    ours, theirs = pair
    text = "x" * (3 << 20)
    sender = threading.Thread(target=framing.send, args=(ours, {"text": text}, [0]))
    sender.start()
    inbox = framing.Inbox(8 << 20)
    message = framing.receive(theirs, inbox)
    sender.join(10)
    assert message == {"text": text}
    assert len(inbox.descriptors) == 1
    inbox.close()


def test_descriptors_are_those_of_their_message_however_the_reads_fall(pair: Pair) -> None:
    """What a read cuts is followed, in the next one, by messages that brought none."""
    ours, theirs = pair
    chunk = 65536
    with open(os.devnull, "rb") as file:
        empty = len(framing.encode({"text": ""}))
        framing.send(ours, {"text": "x" * (chunk - 4 - empty)})  # four bytes of the next message come with this
        framing.send(ours, {"with": "them"}, [file.fileno()])
        framing.send(ours, {"with": "none"})
        inbox = framing.Inbox(1 << 20)
        found = []
        for _ in range(3):
            assert framing.receive(theirs, inbox) is not None
            fds = inbox.take_descriptors()
            found.append(len(fds))
            framing.close(fds)
    assert found == [0, 1, 0]


def test_the_peer_is_who_the_kernel_says(pair: Pair) -> None:
    peer = framing.peer_of(pair[0])
    assert (peer.pid, peer.uid, peer.gid) == (os.getpid(), os.geteuid(), os.getegid())
    assert set(peer_process.groups_of_peer(pair[0])) == set(os.getgroups())


def test_no_listener_is_an_error_that_names_the_path(tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "none.sock")
    with pytest.raises(FileNotFoundError) as caught:
        framing.connect(path)
    assert caught.value.filename == path


def test_processes_are_asked_for_however_many_descriptors_are_open() -> None:
    """select(2) knows no descriptor from 1024 on."""
    with subprocess.Popen(["sleep", "60"]) as process:
        low = os.pidfd_open(process.pid)
        high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 2000)
        try:
            assert framing.runs(high)
            process.kill()
            process.wait()
            assert not framing.runs(high)
        finally:
            os.close(low)
            os.close(high)
