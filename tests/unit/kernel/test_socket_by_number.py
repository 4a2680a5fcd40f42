"""A socket by its number: what has come stays for others, and an end is told from silence."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import pytest

from descriptors import no_number_left
from nodectl.kernel import _kernel
from nodectl.kernel.processes import cgroup_of
from nodectl.model.wire import framing

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_what_is_said_arrives_until_the_other_end_has_gone(pair: Pair) -> None:
    ours, theirs = pair
    assert _kernel.say(ours.fileno(), b"b")
    assert theirs.recv(2) == b"b"
    theirs.close()
    assert not _kernel.say(ours.fileno(), b"b")  # and no signal came


def test_nobody_waits_for_who_does_not_read(pair: Pair) -> None:
    while _kernel.say(pair[0].fileno(), bytes(65536)):
        pass


def test_silence_is_told_from_an_end(pair: Pair) -> None:
    ours, theirs = pair
    assert not _kernel.has_come(ours.fileno())
    theirs.send(b"x")
    assert _kernel.has_come(ours.fileno())
    assert _kernel.has_come(ours.fileno())
    theirs.close()
    assert _kernel.has_come(ours.fileno())
    ours.recv(1)
    with pytest.raises(BrokenPipeError):
        _kernel.has_come(ours.fileno())


def test_descriptors_stay_for_others_until_one_takes_them_away(pair: Pair) -> None:
    ours, theirs = pair
    framing.hand_over(theirs, [0, 1, 2])
    copies = _kernel.take_descriptors(ours.fileno(), True)
    taken = _kernel.take_descriptors(ours.fileno(), False)
    try:
        assert len(copies) == len(taken) == 3
        assert not any(map(os.get_inheritable, copies + taken))
        for number, (copy, other) in enumerate(zip(copies, taken, strict=True)):
            assert os.path.samestat(os.fstat(copy), os.fstat(number))
            assert os.path.samestat(os.fstat(other), os.fstat(number))
    finally:
        framing.close([*copies, *taken])
    assert not _kernel.has_come(ours.fileno())


def test_a_byte_without_descriptors_brings_none(pair: Pair) -> None:
    ours, theirs = pair
    theirs.send(b"x")
    assert _kernel.take_descriptors(ours.fileno(), False) == []
    theirs.close()
    assert _kernel.take_descriptors(ours.fileno(), False) == []


def test_what_is_no_socket_is_refused() -> None:
    reader, writer = os.pipe()
    try:
        with pytest.raises(OSError, match="recv") as peeked:
            _kernel.has_come(reader)
        with pytest.raises(OSError, match="recvmsg") as taken:
            _kernel.take_descriptors(reader, False)
        assert peeked.value.errno == taken.value.errno == errno.ENOTSOCK
    finally:
        framing.close([reader, writer])


def test_own_cgroup_is_the_one_that_proc_tells() -> None:
    assert _kernel.own_cgroup() == cgroup_of()


def test_number_that_no_descriptor_has_is_not_cut_to_another(pair: Pair) -> None:
    ours, theirs = pair
    theirs.send(b"x")
    with pytest.raises(OverflowError):
        _kernel.has_come(ours.fileno() + (1 << 32))


def test_descriptors_come_all_or_none(pair: Pair) -> None:
    ours, theirs = pair
    socket.send_fds(theirs, [b"x"], [0, 1, 2])
    with no_number_left(os.getpid(), but=2):
        before = os.listdir("/proc/self/fd")
        with pytest.raises(OSError, match="Too many open files"):
            _kernel.take_descriptors(ours.fileno(), True)
        assert os.listdir("/proc/self/fd") == before
    framing.close(_kernel.take_descriptors(ours.fileno(), True))
