"""Whose a connection is: proven by the kernel or by who holds its other end."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.kernel.processes import cgroup_of
from nodectl.model.wire import framing, peer_process

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """A connection: what was accepted, and the client's end."""
    monkeypatch.setattr(peer_process._Kernel, "tells", True)  # whatever an earlier test has found
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        client.connect(str(tmp_path / "socket"))
        with listener.accept()[0] as accepted:
            yield accepted, client


def inode(pair: Pair) -> int:
    return os.fstat(pair[0].fileno()).st_ino


def of_an_older_kernel(pair: Pair, pid: int, monkeypatch: pytest.MonkeyPatch) -> framing.Peer:
    """The peer as it is where the kernel keeps no process with a connection, if `pid` has the number."""
    monkeypatch.setattr(peer_process, "_SO_PEERPIDFD", 9999)
    monkeypatch.setattr(framing, "peer_of", lambda sock: framing.Peer(pid, 0, 0))
    return peer_process.accepted(pair[0])


def ended() -> int:
    """The number of a process that has ended."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def test_who_connected_is_known_as_a_process_and_by_its_cgroup(pair: Pair) -> None:
    peer = peer_process.accepted(pair[0])
    assert peer.lives()
    assert peer_process.place_of(peer) == cgroup_of()
    peer.let_go()


def test_who_was_where_is_fixed_when_the_connection_is_accepted(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = peer_process.accepted(pair[0])
    monkeypatch.setattr(peer_process, "cgroup_of", lambda pid: "/elsewhere")
    assert peer_process.place_of(peer) == cgroup_of()
    peer.let_go()


def test_who_ended_before_the_connection_was_accepted_is_nowhere(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        pid = os.fork()
        if pid == 0:
            client.connect(str(tmp_path / "socket"))
            os._exit(0)
        os.waitpid(pid, 0)
        with listener.accept()[0] as accepted:
            peer = peer_process.accepted(accepted)
        with pytest.raises(peer_process.PeerGone, match=f"process {pid} connected and has ended"):
            peer_process.place_of(peer)
        peer.let_go()


def test_who_holds_the_other_end_is_believed_where_the_kernel_keeps_no_process(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = of_an_older_kernel(pair, os.getpid(), monkeypatch)
    assert peer_process.place_of(peer) == cgroup_of()
    peer.let_go()


def test_who_has_the_number_without_the_connection_is_nowhere(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = of_an_older_kernel(pair, os.getppid(), monkeypatch)
    assert peer_process.place_of(peer) == ""
    peer.let_go()
    peer = of_an_older_kernel(pair, ended(), monkeypatch)
    with pytest.raises(peer_process.PeerGone):
        peer_process.place_of(peer)


def test_who_only_has_the_number_is_not_believed(pair: Pair) -> None:
    pid = os.fork()
    if pid == 0:
        pair[1].close()
        os.read(0, 0)
        os.execv("/bin/sleep", ["sleep", "60"])
    try:
        pair[1].close()  # ours: nobody has it but, for a moment, the child
        while peer_process.holds(inode(pair), pid):
            pass
        assert not peer_process.holds(inode(pair), os.getpid())
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_a_number_that_nobody_has_is_nobody(pair: Pair) -> None:
    assert not peer_process.holds(inode(pair), ended())


def test_a_process_of_many_files_costs_no_more_than_one_of_some(pair: Pair) -> None:
    """All who come wait for the look at one: the connection is found among the first files, or not at all."""
    kept = [os.dup(0) for _ in range(1100)]
    far = os.dup(pair[1].fileno())
    try:
        assert peer_process.holds(inode(pair), os.getpid())
        pair[1].close()
        assert not peer_process.holds(inode(pair), os.getpid())
    finally:
        for fd in (*kept, far):
            os.close(fd)
