"""Who gets to a PMIx server, and that what they say gets there whole."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.mpi import entrance

LARGE = os.urandom(1 << 22)


def listening(address: str | tuple[str, int]) -> socket.socket:
    """A socket that listens there."""
    one = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    one.bind(address)
    one.listen()
    return one


@contextlib.contextmanager
def serving(outer: socket.socket, path: Path) -> Iterator[None]:
    """An entrance at work."""
    own, other = socket.socketpair()
    thread = threading.Thread(target=entrance.Entrance(outer, str(path)).serve, args=[own.fileno()])
    thread.start()
    try:
        yield
    finally:
        other.close()
        thread.join()
        own.close()


@pytest.fixture
def led(tmp_path: Path) -> Iterator[tuple[tuple[str, int], socket.socket]]:
    """The address of an entrance at work, and the socket to which it leads."""
    outer, inner = listening(("127.0.0.1", 0)), listening(str(tmp_path / "inner"))
    with outer, inner:
        address = outer.getsockname()
        with serving(outer, tmp_path / "inner"):
            yield address, inner


def read_all(one: socket.socket) -> bytes:
    """What comes until the end."""
    return b"".join(iter(lambda: one.recv(1 << 16), b""))


def test_much_goes_both_ways_at_once_and_each_end_is_told(led: tuple[tuple[str, int], socket.socket]) -> None:
    address, inner = led
    with socket.create_connection(address) as client, inner.accept()[0] as server:
        talk = [threading.Thread(target=one.sendall, args=[LARGE]) for one in (client, server)]
        for thread in talk:
            thread.start()
        found: list[bytes] = []
        reads = threading.Thread(target=lambda: found.append(read_all(server)))
        reads.start()
        talk[0].join()
        client.shutdown(socket.SHUT_WR)
        reads.join()
        server_said = client.recv(len(LARGE), socket.MSG_WAITALL)
        talk[1].join()
        server.close()
        assert found == [LARGE]
        assert server_said == LARGE
        assert read_all(client) == b""


def test_others_are_led_while_one_does_not_read(led: tuple[tuple[str, int], socket.socket]) -> None:
    address, inner = led
    with socket.create_connection(address) as lazy, inner.accept()[0] as server:
        server.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                server.send(LARGE)
        with socket.create_connection(address) as client, inner.accept()[0] as second:
            client.sendall(b"x")
            assert second.recv(1) == b"x"
        assert lazy.recv(1) == LARGE[:1]


def test_nobody_is_let_in_whose_connection_is_not_in_the_kernels_table(
    led: tuple[tuple[str, int], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entrance, "_TABLE", "/nowhere")
    with socket.create_connection(led[0]) as client, contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""


def test_nobody_is_let_in_who_is_another_user(
    led: tuple[tuple[str, int], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: uid)
    with socket.create_connection(led[0]) as client, contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""


@pytest.mark.skipif(os.getuid() != 0, reason="the kernel says root of a socket that nobody has any more")
def test_nobody_is_let_in_who_has_gone(tmp_path: Path) -> None:
    with listening(("127.0.0.1", 0)) as outer, listening(str(tmp_path / "inner")) as inner:
        with socket.create_connection(outer.getsockname()) as gone:
            gone.sendall(b"a stranger's")
        with socket.create_connection(outer.getsockname()) as client, serving(outer, tmp_path / "inner"):
            client.sendall(b"mine")
            client.shutdown(socket.SHUT_WR)
            with inner.accept()[0] as server:
                assert read_all(server) == b"mine"


class Full(socket.socket):
    """A socket for whose connections there are no descriptors, so many times."""

    times = 0

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        """As accept(2)."""
        if self.times:
            self.times -= 1
            raise OSError(errno.EMFILE, "too many")
        return super().accept()


def test_who_comes_while_there_is_no_room_waits_for_no_others_end(tmp_path: Path) -> None:
    with (
        listening(("127.0.0.1", 0)) as plain,
        listening(str(tmp_path / "inner")) as inner,
        Full(fileno=plain.detach()) as outer,
        serving(outer, tmp_path / "inner"),
        socket.create_connection(outer.getsockname()),
        inner.accept()[0],
    ):
        outer.times = 2
        inner.settimeout(60)
        with socket.create_connection(outer.getsockname()) as client, inner.accept()[0] as server:
            client.sendall(b"x")
            assert server.recv(1) == b"x"
        assert outer.times == 0
