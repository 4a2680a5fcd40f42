"""Descriptors of every kind that a user can send to a service, most of them to its harm."""

from __future__ import annotations

import contextlib
import os
import random
import select
import socket
import struct
import threading


class Odd:
    """Makes them, in the process of the user who sends them."""

    def __init__(self, rng: random.Random, unanswered: str, linger: int = 60) -> None:
        self._rng = rng
        self._linger = linger
        self._server = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._peers: list[socket.socket] = []
        self._slow: set[int] = set()
        self._kept = [os.open("/dev/null", os.O_RDWR)]
        self._fuse = os.open(unanswered, os.O_RDWR) if unanswered else -1  # never closed here: that would wait

    def some(self, own: socket.socket, most: int = 16) -> list[int]:
        """Up to `most` descriptors; give them back to `drop` once they are sent."""
        kinds = (self._pipe, self._pair, self._memory, self._directory, self._epoll, self._half_closed, self._null)
        fds = [self._rng.choice(kinds)() for _ in range(self._rng.randint(1, most))]
        special = self._rng.random()
        if special < 0.1:
            fds[0] = os.dup(own.fileno())
        elif special < 0.11:
            fds[0] = self.lingering()
        return fds

    @property
    def unanswered(self) -> int:
        """The file of a file system that never answers a close(2), -1 where there is none."""
        return self._fuse

    def drop(self, fds: list[int]) -> None:
        """Closes ours. Where the service was quicker we are the last, and it would be us who wait."""
        for fd in fds:
            if fd in self._slow:
                self._slow.discard(fd)
                threading.Thread(target=os.close, args=(fd,), daemon=True).start()
            else:
                os.close(fd)

    def lingering(self) -> int:
        """A connection whose last close(2) takes as long as the linger time: what it has sent is not read."""
        sock = socket.create_connection(self._server.getsockname())
        self._peers.append(self._server.accept()[0])
        if len(self._peers) > 200:
            self._peers.pop(0).close()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, self._linger))
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                sock.send(bytes(65_536))
        self._slow.add(sock.fileno())
        return sock.detach()

    def _pipe(self) -> int:
        reader, writer = os.pipe()
        keep, give = (reader, writer) if self._rng.random() < 0.5 else (writer, reader)
        os.close(keep)
        return give

    def _pair(self) -> int:
        kind = self._rng.choice((socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET))
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        if self._rng.random() < 0.5:
            with contextlib.suppress(OSError):
                ours.send(b"unread\0" * 10)
        ours.close()
        return theirs.detach()

    def _half_closed(self) -> int:
        ours, theirs = socket.socketpair()
        theirs.shutdown(self._rng.choice((socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR)))
        ours.close()
        return theirs.detach()

    def _memory(self) -> int:
        return os.memfd_create("odd")

    def _directory(self) -> int:
        return os.open(self._rng.choice(("/", "/proc/self", "/dev", "/tmp")), os.O_RDONLY | os.O_DIRECTORY)

    def _epoll(self) -> int:
        poll = select.epoll()
        poll.register(self._server.fileno(), select.EPOLLIN)
        fd = os.dup(poll.fileno())
        poll.close()
        return fd

    def _null(self) -> int:
        return os.dup(self._kept[0])
