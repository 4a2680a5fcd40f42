"""What a running step keeps of its client's streams is none of what its user may have on the way."""

from __future__ import annotations

import array
import os
import resource
import socket

from rootful.hostile import as_user
from rootful.node import NOBODY, Node, wait_until

STEPS = 8
MOST = 20_000


def in_flight() -> int:
    """How many descriptors of the user's are in sockets, unread: who may have no more files sends no more."""
    reader, writer = os.pipe()

    def act() -> None:
        ours, theirs = socket.socketpair()
        one = array.array("i", [0])
        low, high = 0, MOST
        while low < high:
            middle = (low + high) // 2
            resource.setrlimit(resource.RLIMIT_NOFILE, (middle, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            try:
                ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, one)])
                theirs.recv(1)
                high = middle
            except OSError:
                low = middle + 1
        os.write(writer, b"%d" % low)

    with as_user(act):
        os.close(writer)
        found = int(os.read(reader, 20))
    os.close(reader)
    return found


def test_running_steps_leave_nothing_in_flight(served: Node) -> None:
    before = in_flight()
    clients = [served.popen("sleep", "1000", user=NOBODY) for _ in range(STEPS)]
    try:
        wait_until(lambda: sum("sleep" in name for _, name in served.processes()) == STEPS, "the steps run")
        wait_until(lambda: in_flight() < before + STEPS, "the streams have been taken")
    finally:
        for client in clients:
            client.kill()
            client.communicate()
