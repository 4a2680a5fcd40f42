"""The servers of some nodes without their agents, which tests are."""

from __future__ import annotations

import contextlib
import select
import socket

from nodectl.model import mpi_frames as frames
from nodectl.mpi.others import Others


class Nodes:
    """The servers of some nodes, each with the agent's end of its socket. `cut`: to and from these all is lost."""

    def __init__(self, count: int) -> None:
        pairs = [socket.socketpair() for _ in range(count)]
        self.agents = [one for one, _ in pairs]
        self.sockets = [other for _, other in pairs]
        self.cut: set[int] = set()
        self.gone: list[list[int]] = [[] for _ in range(count)]
        self.servers = [Others(pairs[i][1].fileno(), i, count, self.gone[i].append) for i in range(count)]
        self._inboxes = [frames.FrameInbox() for _ in range(count)]
        self._unsent: list[list[bytes]] = [[] for _ in range(count)]
        for agent in self.agents:
            agent.setblocking(False)

    def gather(self, node: int, data: bytes) -> list[bytes]:
        """What it gets will be the only element."""
        got: list[bytes] = []
        self.servers[node].gather(data, got.append)
        return got

    def run(self) -> None:
        """Until nothing moves."""
        while sum(self._move(node) for node in range(len(self.servers))):
            pass

    def _move(self, node: int) -> bool:
        self.servers[node].write()
        moved = False
        with contextlib.suppress(BlockingIOError):
            while data := self.agents[node].recv(1 << 20):
                self._inboxes[node].feed(data)
                moved = True
        while (one := self._inboxes[node].next()) is not None:
            to, kind, data = one
            assert kind == frames.DATA
            for other in [to] if to >= 0 else [other for other in range(len(self.servers)) if other != node]:
                if not self.cut & {node, other}:
                    self.tell(other, node, frames.DATA, data)
        moved |= self._deliver(node)
        return moved

    def tell(self, node: int, about: int, kind: int, data: bytes = b"") -> None:
        """What an agent tells its server."""
        self._unsent[node].append(frames.frame(about, kind, data))

    def _deliver(self, node: int) -> bool:
        waiting, self._unsent[node] = self._unsent[node], []
        left = b"".join(waiting)
        while left:
            with contextlib.suppress(BlockingIOError):
                left = left[self.agents[node].send(left) :]
            self.servers[node].read()
        while select.select([self.sockets[node]], [], [], 0)[0]:
            self.servers[node].read()
        return bool(waiting)

    def read_twice(self, node: int) -> None:
        """What has come, and its end."""
        for _ in range(2):
            self.servers[node].read()

    def close(self) -> None:
        for one in (*self.agents, *self.sockets):
            one.close()
