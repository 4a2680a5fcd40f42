"""TCP in simulated time: what asyncio's transports do, between processes of a `Loop`.

A node has one interface of a bandwidth; what it sends leaves it in order, and arrives a latency later. A socket takes
so many bytes that the other side has not read; then the writer's own buffer grows, as asyncio's does. A process that
is killed has its connections closed by its kernel; of a node that has crashed nothing comes, not even an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from bench.scale.loop import PROCESS, Loop, Process

_SOCKET = 4 << 20  # bytes between write(2) and read(2), as Linux lets a socket grow
_ACCEPTED_AT_ONCE = 128
_SYN_AGAIN = 1.0  # seconds
_LARGEST_READ = 256 << 10  # asyncio's
_ON_ONE_NODE = 1e-5  # seconds
_HEADERS = 66  # bytes that a small write has around it on the wire


class Costs(NamedTuple):
    """CPU of the kernel and of asyncio, in seconds: of a connection, a read and a write, of a byte of either."""

    connection: float = 0.0
    read: float = 0.0
    write: float = 0.0
    byte: float = 0.0


class Network:
    """`latency` in seconds, `bandwidth` in bytes a second."""

    def __init__(self, loop: Loop, costs: Costs, *, latency: float = 5e-5, bandwidth: float = 1.25e9) -> None:
        self.loop = loop
        self.costs = costs
        self.latency = latency
        self.bandwidth = bandwidth
        self.crashed: set[int] = set()
        self.sent: dict[Process, int] = {}  # bytes
        self.received: dict[Process, int] = {}
        self.writes = self.reads = 0
        self._free: dict[int, float] = {}  # when a node's interface has sent what it was given
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._ends: dict[Process, set[Transport]] = {}
        self._ports = 1024
        loop.network = self

    @staticmethod
    def address(node: int) -> str:
        """Of a node's interface."""
        return f"10.{node >> 16 & 255}.{node >> 8 & 255}.{node & 255}"

    def listen(self, factory: Callable[[], Any], host: str, port: int) -> Listener:
        """Of the process that runs."""
        self._ports += 1
        listener = Listener(self, PROCESS.get(), factory, (host, port or self._ports))
        self._listeners[listener.at] = listener
        return listener

    def forget(self, listener: Listener) -> None:
        self._listeners.pop(listener.at, None)

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:
        """Raises ConnectionRefusedError; waits for ever for a node that has crashed."""
        listener = self._listeners.get((host, port))
        here = PROCESS.get()
        await asyncio.sleep(2 * self.latency)
        if listener is not None and listener.process.node in self.crashed:
            await self.loop.create_future()
        pause = _SYN_AGAIN
        while listener is not None and listener.is_full:
            await asyncio.sleep(pause)
            pause *= 2
        if listener is None or not listener.process.alive or self._listeners.get((host, port)) is not listener:
            raise ConnectionRefusedError(111, "Connection refused")
        self.loop.charge(self.costs.connection)
        near, far = Transport(self, here, listener.process), Transport(self, listener.process, here)
        near.other, far.other = far, near
        for end in (near, far):
            self._ends.setdefault(end.process, set()).add(end)
        protocol = factory()
        near.protocol = protocol
        protocol.connection_made(near)
        self.loop.kernel(self.loop.moment(), listener.connected, far)
        return near, protocol

    def carry(self, sender: Process, to: Process, size: int, moment: float) -> float:
        """When so many bytes will be there."""
        self.sent[sender] = self.sent.get(sender, 0) + size
        if sender.node == to.node:
            return moment + _ON_ONE_NODE
        free = max(moment, self._free.get(sender.node, 0.0)) + (size + _HEADERS) / self.bandwidth
        self._free[sender.node] = free
        return free + self.latency

    def kill(self, process: Process) -> None:
        """SIGKILL."""
        process.alive = False
        for end in self._ends.pop(process, set()):
            end.vanish()

    def crash(self, *processes: Process) -> None:
        """The node on which these run is gone."""
        for process in processes:
            process.alive = False
            self.crashed.add(process.node)

    def gone(self, end: Transport) -> None:
        self._ends.get(end.process, set()).discard(end)


class Listener:
    """A listening socket, and what asyncio calls a server. As many as its backlog wait to be accepted."""

    def __init__(self, network: Network, process: Process, factory: Callable[[], Any], at: tuple[str, int]) -> None:
        self._network = network
        self._factory = factory
        self.process = process
        self.at = at
        self._most = 128
        self._waiting: deque[Transport] = deque()
        self._handle = network.loop.handle(process, self._accept)

    @property
    def sockets(self) -> list[Listener]:
        return [self]

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= self._most

    def dup(self) -> Any:
        return contextlib.nullcontext(self)

    def listen(self, backlog: int) -> None:
        self._most = backlog

    def getsockname(self) -> tuple[str, int]:
        return self.at

    def close(self) -> None:
        self._network.forget(self)

    def connected(self, end: Transport) -> None:
        """In the kernel: the process hears of it."""
        self._waiting.append(end)
        if len(self._waiting) == 1:
            self._network.loop.arrive(self.process, self._handle)

    def _accept(self) -> None:
        """As asyncio does it: so many, before others are heard again."""
        loop = self._network.loop
        for _ in range(min(_ACCEPTED_AT_ONCE, len(self._waiting))):
            loop.charge(self._network.costs.connection)
            end = self._waiting.popleft()
            end.protocol = self._factory()
            loop.call_soon(self._begin, end)
        if self._waiting:
            loop.arrive(self.process, self._handle)

    @staticmethod
    def _begin(end: Transport) -> None:
        end.protocol.connection_made(end)
        end.begin()


class Transport(asyncio.Transport):
    """One end of a connection."""

    __slots__ = (
        "_arrived", "_backlog", "_backlog_size", "_ended", "_handle", "_high", "_is_due", "_network", "_paused",
        "_reads", "_unread", "closing", "other", "process", "protocol", "to",
    )  # fmt: skip

    def __init__(self, network: Network, process: Process, to: Process) -> None:
        super().__init__()
        self._network = network
        self.process = process
        self.to = to
        self.other: Transport = self
        self.protocol: Any = None
        self.closing = False
        self._arrived: deque[bytes] = deque()
        self._backlog: deque[bytes] = deque()
        self._backlog_size = 0
        self._unread = 0  # bytes on their way to the other side, or there
        self._reads = True
        self._is_due = False
        self._ended = False
        self._paused = False
        self._high = 1 << 16
        self._handle = network.loop.handle(process, self._read)

    # What protocols use.

    def write(self, data: Any) -> None:
        network, loop = self._network, self._network.loop
        moment = loop.moment()
        since = loop.pause()
        if not self.closing and data:
            loop.charge(network.costs.write + len(data) * network.costs.byte)
            network.writes += 1
            if self._backlog or self._unread >= _SOCKET:
                self._backlog.append(data)
                self._backlog_size += len(data)
                if self._backlog_size > self._high and not self._paused:
                    self._paused = True
                    self.protocol.pause_writing()
            else:
                self._go(data, moment)
        loop.resume(since)

    def get_write_buffer_size(self) -> int:
        return self._backlog_size

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or self._high

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._network.address(self.process.node), 0) if name == "sockname" else default

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True
        self._look()

    def abort(self) -> None:
        if not self.closing:
            self.closing = True
            self._backlog.clear()
            self._backlog_size = 0
            self._network.gone(self)
            self._end_of_stream(self._network.loop.moment())
            self._network.loop.call_soon(self.protocol.connection_lost, None)

    def close(self) -> None:
        while self._backlog:
            self._go(self._backlog.popleft(), self._network.loop.moment())
        self.abort()

    # What the kernel does.

    def vanish(self) -> None:
        """Its process is gone: the kernel closes."""
        self.closing = True
        self._end_of_stream(self._network.loop.time())

    def _end_of_stream(self, moment: float) -> None:
        at = self._network.carry(self.process, self.to, 0, moment)
        self._network.loop.kernel(at, self.other.end)

    def end(self) -> None:
        self._ended = True
        self._look()

    def _go(self, data: bytes, moment: float) -> None:
        self._unread += len(data)
        at = self._network.carry(self.process, self.to, len(data), moment)
        self._network.loop.kernel(at, self.other.arrived, data)

    def arrived(self, data: bytes) -> None:
        if self.process.node not in self._network.crashed:
            self._arrived.append(data)
            self._look()

    def begin(self) -> None:
        """It was accepted: what has come already is read."""
        self._look()

    def _look(self) -> None:
        if self.closing or self._is_due or self.protocol is None or not self._reads:
            return
        if self._arrived or self._ended:
            self._is_due = True
            self._network.loop.arrive(self.process, self._handle)

    def _read(self) -> None:
        network, loop = self._network, self._network.loop
        since = loop.pause()
        self._is_due = False
        data = b"".join(self._taken()) if self._reads and not self.closing else b""
        loop.charge(network.costs.read + len(data) * network.costs.byte)
        network.reads += 1
        network.received[self.process] = network.received.get(self.process, 0) + len(data)
        if data:
            self.other.read(len(data))
        ended = self._ended and not self._arrived and not self.closing
        loop.resume(since)
        if data:
            self.protocol.data_received(data)
        if ended:
            self.protocol.eof_received()
            self.closing = True
            network.gone(self)
            self._end_of_stream(loop.moment())
            self.protocol.connection_lost(None)
            return
        self._look()

    def _taken(self) -> Iterator[bytes]:
        size = 0
        while self._arrived and size < _LARGEST_READ:
            size += len(self._arrived[0])
            yield self._arrived.popleft()

    def read(self, size: int) -> None:
        """The other side has read so much."""
        self._unread -= size
        if self._backlog:
            self._network.loop.kernel(self._network.loop.time(), self._go_on)

    def _go_on(self) -> None:
        while self._backlog and self._unread < _SOCKET:
            data = self._backlog.popleft()
            self._backlog_size -= len(data)
            self._go(data, self._network.loop.time())
        if self._paused and self._backlog_size <= self._high // 4 and not self.closing:
            self._paused = False
            loop = self._network.loop
            loop.arrive(self.process, loop.handle(self.process, self.protocol.resume_writing))
