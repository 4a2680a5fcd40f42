"""Closing what somebody else has made."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import struct

from nodectl.kernel import closing
from nodectl.model.wire import framing

PATIENCE = 20


def lingering(server: socket.socket) -> tuple[int, socket.socket]:
    """A descriptor whose last close(2) takes an hour, since what it has sent is not read; and who does not read it."""
    sock = socket.create_connection(server.getsockname())
    peer, _ = server.accept()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    sock.setblocking(False)
    try:
        while True:
            sock.send(bytes(65_536))
    except BlockingIOError:
        return sock.detach(), peer


def test_what_a_user_left_in_a_socket_of_ours_keeps_nobody() -> None:
    """The forkserver, where no step runner can be forked, would wait in a close(2), and with it everybody."""

    def close() -> None:
        before = signal.getsignal(signal.SIGALRM)
        with socket.create_server(("127.0.0.1", 0)) as server:
            fd, peer = lingering(server)
            ours, theirs = socket.socketpair()
            framing.hand_over(theirs, [fd])
            os.close(fd)
            theirs.close()
            closing.close_in_time([ours.detach()])
            assert signal.getsignal(signal.SIGALRM) == before
            peer.close()

    child = multiprocessing.get_context("fork").Process(target=close)
    child.start()
    child.join(PATIENCE)
    ended = child.exitcode
    child.kill()
    child.join()
    assert ended == 0
