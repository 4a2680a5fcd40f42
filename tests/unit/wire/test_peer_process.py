"""Whose a connection is: proven by the kernel or by who holds its other end."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.wire import framing, peer_process

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """A connection: what was accepted, and the client's end."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        client.connect(str(tmp_path / "socket"))
        with listener.accept()[0] as accepted:
            yield accepted, client


def inode(pair: Pair) -> int:
    return os.fstat(pair[0].fileno()).st_ino


def test_who_connected_is_known_as_a_process(pair: Pair) -> None:
    peer = framing.Peer(os.getpid(), 0, 0, (), framing.pidfd_of_peer(pair[0]), inode(pair))
    peer_process.prove(peer)
    assert peer.lives()
    peer.let_go()


def test_who_holds_the_other_end_is_believed_where_the_kernel_keeps_no_process(pair: Pair) -> None:
    pidfd = peer_process.holder(inode(pair), os.getpid())
    assert pidfd >= 0
    os.close(pidfd)


def test_who_only_has_the_number_is_not_believed(pair: Pair) -> None:
    pid = os.fork()
    if pid == 0:
        pair[1].close()
        os.read(0, 0)
        os.execv("/bin/sleep", ["sleep", "60"])
    try:
        pair[1].close()  # ours: nobody has it but, for a moment, the child
        while peer_process.holder(inode(pair), pid) >= 0:
            pass
        assert peer_process.holder(inode(pair), os.getpid()) == -1
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_a_number_that_nobody_has_is_nobody(pair: Pair) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert peer_process.holder(inode(pair), pid) == -1


def test_a_process_of_many_files_costs_no_more_than_one_of_some(pair: Pair) -> None:
    """All who come wait for the look at one: the connection is found among the first files, or not at all."""
    kept = [os.dup(0) for _ in range(1100)]
    far = os.dup(pair[1].fileno())
    try:
        near = peer_process.holder(inode(pair), os.getpid())
        assert near >= 0
        os.close(near)
        pair[1].close()
        assert peer_process.holder(inode(pair), os.getpid()) == -1
    finally:
        for fd in (*kept, far):
            os.close(fd)
