"""The entrance to a PMIx server: only the step's user reaches OpenPMIx's library.

The library listens on the loopback device, where any user can connect, and its only thread waits for the first bytes of
a connection: a stranger who sends nothing would hold up the step. So `replace_listener`, in the library's process,
replaces the library's listening socket by a socket in a directory of the user's own; until then `cutting_off_strangers`
cuts all connections. Another process (`Entrance`) accepts the connections on the loopback device, asks the kernel for
the user of each, and relays those of the step's user.
"""

import contextlib
import os
import resource
import select
import socket
import sys
import threading

from nodectl.mpi.openpmix import Failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_TABLE = "/proc/net/tcp"
_PIECE = 1 << 16  # bytes that wait in one direction
_AT_ONCE = 64  # connections looked up together
_SECONDS = 0.05


@contextlib.contextmanager
def cutting_off_strangers() -> "Iterator[None]":
    """Cut all connections to sockets of this process that listen on the network, again and again during the block.

    The library's initialization waits for the library's thread, which may already wait for a stranger's first bytes.
    """
    started = threading.Event()

    def cut_off() -> None:
        while not started.wait(_SECONDS):
            for _, one in _sockets():
                if one.family == socket.AF_INET and _listens(one):
                    _cut_off(one.getsockname())

    thread = threading.Thread(target=cut_off)
    thread.start()
    try:
        yield
    finally:
        started.set()
        thread.join()


def replace_listener(private: socket.socket) -> socket.socket:
    """Replace the library's listening socket by `private`, bound and listening; return the original socket.

    Connections that the library has accepted meanwhile are cut: no task knows of the library yet. Raises Failed,
    OSError.
    """
    found = [(number, one) for number, one in _sockets() if one.family != socket.AF_UNIX and _listens(one)]
    if len(found) != 1 or found[0][1].family != socket.AF_INET:
        raise Failed("its library listens on a socket that cannot be replaced")
    number, listener = found[0]
    os.dup2(private.fileno(), number, inheritable=False)
    address = listener.getsockname()
    with socket.socket() as wake, socket.socket(socket.AF_UNIX) as probe:
        probe.connect(private.getsockname())
        probe.shutdown(socket.SHUT_WR)
        wake.setblocking(False)  # the library's thread sleeps on the old socket, but once awake looks at the new one
        with contextlib.suppress(OSError):
            wake.connect(address)
        probe.settimeout(_SECONDS)
        while not _has_ended(probe):  # the probe is the last connection in the library's queue
            _cut_off(address)
    return listener


def _has_ended(probe: socket.socket) -> bool:
    try:
        return not probe.recv(_PIECE)
    except TimeoutError:
        return False
    except OSError:
        return True


def _cut_off(address: object) -> None:
    for _, one in _sockets():
        with contextlib.suppress(OSError):
            if one.family == socket.AF_INET and one.getsockname() == address and one.getpeername():
                one.shutdown(socket.SHUT_RDWR)


def _listens(one: socket.socket) -> bool:
    return bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _sockets() -> "list[tuple[int, socket.socket]]":
    """Return this process's sockets: for each, the descriptor and a copy of the socket."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                found.append((int(name), socket.socket(fileno=os.dup(int(name)))))
    return found


class _Way:
    """A direction of a relay."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.data = b""
        self.ended = False

    def move(self) -> None:
        """Copy data without waiting. Raises OSError."""
        with contextlib.suppress(BlockingIOError):
            if not self.data and not self.ended:
                self.data = self.source.recv(_PIECE)
                self.ended = not self.data
                if self.ended:
                    self.sink.shutdown(socket.SHUT_WR)
            if self.data:
                self.data = self.data[self.sink.send(self.data) :]


class _Relay:
    """A connection of the user's, paired with a connection to the library."""

    def __init__(self, poll: "select.poll", one: socket.socket, other: socket.socket) -> None:
        self._poll = poll
        self.both = one, other
        self._ways = _Way(one, other), _Way(other, one)
        self._watched: set[int] = set()

    def go_on(self) -> bool:
        """Copy data both ways without waiting. Return False once the relay has ended."""
        try:
            for way in self._ways:
                way.move()
        except OSError:
            self._end()
            return False
        if all(way.ended for way in self._ways):
            self._end()
            return False
        self._watch()
        return True

    def _watch(self) -> None:
        masks: dict[int, int] = {}
        for way in self._ways:
            if way.data:
                masks[way.sink.fileno()] = masks.get(way.sink.fileno(), 0) | select.POLLOUT
            elif not way.ended:
                masks[way.source.fileno()] = masks.get(way.source.fileno(), 0) | select.POLLIN
        for fd in self._watched - masks.keys():
            self._poll.unregister(fd)  # else poll would report the end again and again
        for fd, mask in masks.items():
            self._poll.register(fd, mask)
        self._watched = set(masks)

    def _end(self) -> None:
        for fd in self._watched:
            self._poll.unregister(fd)
        for one in self.both:
            one.close()


class Entrance:
    """A relay of connections from `listener` to the socket at `path`, for processes of this user only."""

    def __init__(self, listener: socket.socket, path: str) -> None:
        self._listener = listener
        self._path = path
        self._poll = select.poll()
        self._relays: dict[int, _Relay] = {}
        self._listener.setblocking(False)
        self._has_room = True
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def serve(self, *until: int) -> None:
        """Relay connections until the other end of one of the descriptors `until` is closed."""
        for fd in until:
            self._poll.register(fd, 0)
        while True:
            self._poll.register(self._listener, select.POLLIN if self._has_room else 0)
            patience = None if self._has_room else _SECONDS * 1000
            self._has_room = True  # try again
            for fd, _ in self._poll.poll(patience):
                if fd in until:
                    return
                if fd == self._listener.fileno():
                    self._accept()
                elif fd in self._relays:  # else it ended in this round
                    self._go_on(self._relays[fd])

    def _go_on(self, relay: _Relay) -> None:
        numbers = [one.fileno() for one in relay.both]
        if relay.go_on():
            return
        for number in numbers:
            self._relays.pop(number, None)

    def _accept(self) -> None:
        came: list[socket.socket] = []
        try:
            while len(came) < _AT_ONCE:
                came.append(self._listener.accept()[0])
        except (BlockingIOError, ConnectionError):
            pass
        except OSError:
            self._has_room = False  # too many descriptors, or no memory: new connections wait
        owners = _owners(_word(self._listener.getsockname())) if came else {}
        for one in came:
            try:
                is_own = owners.get(_word(one.getpeername())) == os.getuid()
            except OSError:
                is_own = False  # it has gone
            if not is_own or not self._lead(one):
                one.close()

    def _lead(self, one: socket.socket) -> bool:
        try:
            other = socket.socket(socket.AF_UNIX)
            other.setblocking(False)
            other.connect(self._path)
        except OSError:
            return False
        one.setblocking(False)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        relay = _Relay(self._poll, one, other)
        self._relays[one.fileno()] = self._relays[other.fileno()] = relay
        self._go_on(relay)
        return True


def _word(address: "tuple[str, int]") -> str:
    """Return an address as written in the kernel's table, see proc(5)."""
    host, port = address
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"


def _owners(listener: str) -> "dict[str, int]":
    """Return the users of the connections to the address `listener`, by the client's address."""
    owners = {}
    try:
        with open(_TABLE, encoding="ascii") as rows:
            next(rows, None)
            for row in rows:
                _, own, other, _, _, _, _, uid, _, inode, *_ = row.split(None, 10)
                if other == listener and inode != "0":  # else no process has the socket any more, and the uid is 0
                    owners[own] = int(uid)
    except OSError:
        pass  # no connection is accepted
    return owners
