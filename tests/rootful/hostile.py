"""An ordinary user's process that does what it is told to the service, and keeps what it has open."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator

from rootful.node import NOBODY

_killed: list[int] = []


@contextlib.contextmanager
def as_user(act: Callable[[], None], uid: int = NOBODY.pw_uid, gid: int = NOBODY.pw_gid) -> Iterator[int]:
    """Runs `act` in a child as the user; entered when that has returned, left when the child has been killed."""
    done, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            act()
            os.write(tell, b"+")
            while True:
                signal.pause()
        finally:
            os._exit(1)
    os.close(tell)
    try:
        assert os.read(done, 1) == b"+", "what the user does went wrong"
        yield pid
    finally:
        os.close(done)
        os.kill(pid, signal.SIGKILL)
        _killed.append(pid)  # waited for later: what it has open may take its time
        _killed[:] = [one for one in _killed if os.waitpid(one, os.WNOHANG) == (0, 0)]


@contextlib.contextmanager
def lingering() -> Iterator[Callable[[], int]]:
    """Makes descriptors whose last close(2) takes an hour: what they have sent is not read."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        peers = []

        def make() -> int:
            sock = socket.create_connection(server.getsockname())
            peers.append(server.accept()[0])
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    sock.send(bytes(65_536))
            return sock.detach()

        yield make
        for peer in peers:
            peer.close()
