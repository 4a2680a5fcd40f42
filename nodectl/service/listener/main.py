"""The listener: accepts users' connections in a process of root's, single-threaded, without locks or state to lose.

    channel, from the daemon:   first {"most": n, "longest": n}, a user's connections and the bytes of a message
                                {"listen": true} with the listening socket; {"pause": true}; {"ping": n}
                                {"account": u, "exists": true or false}, the answer to "whose"
    channel, to the daemon:     {"pong": n}
                                {"whose": u}: has this uid an account?
                                {"session": d, "uid": u} with two descriptors, from and to the session process
                                {"connection": n, "session": d, "pid": ..., "gid": ..., "groups": [...], "inode": ...,
                                "place": ...}, with a pidfd unless the process has ended

The listener reads nothing from a connection: it asks the kernel for the peer process and its place, tells the daemon,
hands the connection to the user's session process and forgets it. It refuses connections that no session process takes
(`refusals.py`). The daemon kills a listener that does not answer, and starts another.

One process can have 65,536 uids: those that /etc/subuid gives its user. So all uids for which the daemon has found no
account share a few session processes, and the memory that one user may take there. While there is room for another
process, the listener opens one at once and asks the daemon meanwhile; without an account, the process learns that it
has only a share. When there is no room, a connection of an unknown uid waits for the daemon's answer.
"""

import _signal
import _socket
import fcntl
import gc
import os
import select
import sys
import termios
import time

import prctl

from nodectl.kernel import signals
from nodectl.model.wire import framing, lean_json, peer_process
from nodectl.service.listener import session
from nodectl.service.listener.refusals import Refusals, close_in_time, most_held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHANNEL = 3
_LONGEST_ORDER = 256
_AT_ONCE = 64  # connections between two looks at everything else
_MOST_SESSIONS = 4  # session processes of one user: all but the last are ending, or hang
MOST_SHARED_SESSIONS = 16  # of all uids without an account together
_MOST_AWAITING = 1024  # connections that wait until their account is known
_MOST_AWAITING_OF_ONE = 32
_MOST_ACCOUNTS = 1 << 17  # remembered accounts
_NO_ACCOUNT = -1
_STUCK_SECONDS = 5.0
_PAUSE_SECONDS = 0.2
_NO_END = 1 << 30
_SO_SNDBUFFORCE = 32  # not named by Python
_ROOM = 4 << 20  # bytes, for thousands of connections that come at one moment
_ROOM_FOR_ONE = 768  # bytes that the kernel counts


class SessionProcess:
    """A user's session process as seen by the listener.

    `entrance` leads to the process, None when the process gets no more connections; `room` is the number of bytes which
    may lie in `entrance`.
    """

    __slots__ = ("_room", "_unread", "entrance", "number", "pidfd", "waiting")

    def __init__(self, number: int, entrance: "_socket.socket", pidfd: int, room: int = _ROOM) -> None:
        self.number = number
        self.entrance: _socket.socket | None = entrance
        self.pidfd = pidfd
        self.waiting = 0.0  # since when the process has taken none of its connections
        self._unread = 0
        self._room = room

    def is_full(self) -> bool:
        """Return True if the bytes lying in `entrance` exceed the room."""
        return self.entrance is not None and self._size() > self._room

    def give(self, number: int, sock: "_socket.socket") -> bool:
        """Send a connection to the session process. Return False if the process does not take the connection."""
        if self.entrance is None:
            return False
        return self._send(b"%d" % number, [sock.fileno()])

    def share(self, shares: int) -> None:
        """Tell the session process that it has one of so many shares of a user's room."""
        if self.entrance is not None:
            self._send(session.SHARES + b"%d" % shares, [])

    def _send(self, data: bytes, fds: "Sequence[int]") -> bool:
        """Send to the session process. Return False if the process takes nothing more."""
        assert self.entrance is not None  # noqa: S101  # the callers have looked
        self._look(time.monotonic())  # how much is taken by now; the send below adds to it
        try:
            framing.send_some(self.entrance, data, fds)
        except BrokenPipeError:
            self.close()  # the process has ended, or will end with its present connections
            return False
        except OSError:  # the process has taken none of thousands of connections
            self.kill()
            return False
        self._unread = self._size()
        return True

    def _look(self, now: float) -> None:
        """Restart the clock of `is_stuck` if the session process has taken anything since the last look."""
        unread = self._size()
        if not unread:
            self.waiting = 0.0
        elif unread < self._unread or not self.waiting:
            self.waiting = now
        self._unread = unread

    def _size(self) -> int:
        """Return the number of bytes which the session process has not taken."""
        assert self.entrance is not None  # noqa: S101  # asked where there is one
        return int.from_bytes(fcntl.ioctl(self.entrance, termios.TIOCOUTQ, b"\0" * 4), sys.byteorder)

    def is_stuck(self, now: float) -> bool:
        """Return True if the session process has taken nothing for too long: hung on a user's data, or stopped."""
        if self.entrance is None:
            return False
        self._look(now)
        return bool(self.waiting) and now - self.waiting > _STUCK_SECONDS

    def close(self) -> None:
        """Send no more connections. The session process serves the present connections and ends."""
        if self.entrance is not None:
            self.entrance.close()
            self.entrance = None

    def kill(self) -> None:
        """Kill the session process, which does not answer."""
        self.close()
        signals.send(self.pidfd, signals.KILL)


class Listener:
    """The listener's event loop, for `most` connections of each user and messages up to `longest` bytes."""

    def __init__(self, channel: "_socket.socket", *, most: int, longest: int) -> None:
        self._channel = channel
        self._most = most
        self._longest = longest
        self._listener: _socket.socket | None = None
        self._resumes = 0.0  # when to accept again, after a failure
        self._sessions: dict[int, list[SessionProcess]] = {}
        self._by_pidfd: dict[int, tuple[int, SessionProcess]] = {}
        self._numbers = 0
        self._refusals = Refusals(most_held())
        self._accounts: set[int] = set()  # uids known to the daemon
        self._asked: set[int] = set()
        self._awaiting: dict[int, list[tuple[_socket.socket, framing.Peer]]] = {}
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)

    def serve(self) -> None:
        """Serve until the daemon has gone."""
        channel = self._channel.fileno()
        while True:
            ready = self._poll.poll(self._patience())
            for fd, _ in ready:
                if fd == channel:
                    if not self._obey():
                        return
                elif self._listener is not None and fd == self._listener.fileno():
                    self._accept()
                elif fd in self._by_pidfd:
                    self._remove_session(fd)
            self._look_after()

    def _obey(self) -> bool:
        """Carry out the daemon's orders. Return False when the daemon has gone."""
        for _ in range(_AT_ONCE):
            try:
                if not self._take_order():
                    return False
            except BlockingIOError:
                break
        return True

    def _take_order(self) -> bool:
        text, fds = framing.receive_packet(self._channel, _LONGEST_ORDER, 1, _socket.MSG_DONTWAIT)
        if not text:
            return False
        order = lean_json.load_object(text)
        if "listen" in order:
            (fd,) = fds
            self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
            os.set_blocking(fd, False)
            self._poll.register(fd, select.POLLIN)
        elif "pause" in order:
            self._pause()
        elif "account" in order:
            self._learn(int(str(order["account"])), exists=bool(order["exists"]))
        else:
            self._tell({"pong": order["ping"]})
        return True

    def _pause(self) -> None:
        if self._listener is not None:
            if not self._resumes:
                self._poll.unregister(self._listener.fileno())
            self._listener.detach()  # stays open until this process ends, which waits for no client
            self._listener = None

    def _tell(self, news: "Mapping[str, object]", fds: "Sequence[int]" = ()) -> None:
        framing.send_some(self._channel, lean_json.dumps(news).encode("ascii"), fds)

    def _patience(self) -> "float | None":
        if self._resumes:
            return _PAUSE_SECONDS * 1000
        if self._refusals.is_busy or any(place.waiting for sessions in self._sessions.values() for place in sessions):
            return 1000
        return None

    # Connections.

    def _accept(self) -> None:
        assert self._listener is not None  # noqa: S101  # it is what has come
        for _ in range(_AT_ONCE):
            try:
                fd, _ = self._listener._accept()  # type: ignore[attr-defined]  # what socket.accept calls, without importing socket
            except BlockingIOError:
                break
            except OSError as error:
                os.write(2, f"nodectl listener: accept: {error.strerror}\n".encode())
                # No descriptors left, most likely: the socket stays readable, and asking at once would be a busy loop.
                self._poll.unregister(self._listener.fileno())
                self._resumes = time.monotonic() + _PAUSE_SECONDS
                break
            os.set_inheritable(fd, False)
            self._welcome(_socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd))

    def _welcome(self, sock: "_socket.socket") -> None:
        peer = peer_process.accepted(sock)  # first of all: the peer may end
        if not self._must_wait(peer.uid):
            self._seat(sock, peer)
            return
        self._ask(peer.uid)
        awaiting = self._awaiting.setdefault(peer.uid, [])
        if len(awaiting) < _MOST_AWAITING_OF_ONE and sum(map(len, self._awaiting.values())) < _MOST_AWAITING:
            awaiting.append((sock, peer))
        else:
            peer.let_go()
            self._refusals.add(sock, peer, _NO_ACCOUNT)

    def _seat(self, sock: "_socket.socket", peer: framing.Peer) -> None:
        """Give the connection to a session process of the user, or refuse the connection."""
        if not self._is_given(sock, peer):
            self._refusals.add(sock, peer, peer.uid if self._has_own(peer.uid) else _NO_ACCOUNT)
        peer.let_go()

    def _is_given(self, sock: "_socket.socket", peer: framing.Peer) -> bool:
        self._numbers += 1
        for _ in range(2):  # if a session process does not take the connection, try another
            place = self._session_of(peer)
            if place is None or place.is_full():
                return False
            self._introduce(self._numbers, place, peer, sock)
            if place.give(self._numbers, sock):
                if framing.runs(place.pidfd):
                    close_in_time(sock)
                    return True
                return False
        return False

    def _introduce(self, number: int, place: SessionProcess, peer: framing.Peer, sock: "_socket.socket") -> None:
        groups = peer_process.groups_of_peer(sock)
        who = {"pid": peer.pid, "gid": peer.gid, "groups": groups, "inode": peer.inode, "place": peer.place}
        self._tell({"connection": number, "session": place.number, **who}, [peer.pidfd] if peer.pidfd >= 0 else [])

    # Accounts.

    def _has_own(self, uid: int) -> bool:
        """Return True for root, known accounts, and any uid on a user's own node: each has own session processes."""
        return uid == 0 or uid in self._accounts or os.geteuid() != 0

    def _must_wait(self, uid: int) -> bool:
        """Return True if the uid needs a new session process, and all shared by unknown accounts are in use."""
        if self._has_own(uid) or any(place.entrance is not None for place in self._sessions.get(uid, ())):
            return False
        shared = sum(len(sessions) for owner, sessions in self._sessions.items() if not self._has_own(owner))
        return shared >= MOST_SHARED_SESSIONS

    def _ask(self, uid: int) -> None:
        if uid not in self._asked and not self._has_own(uid):
            self._asked.add(uid)
            self._tell({"whose": uid})

    def _learn(self, uid: int, *, exists: bool) -> None:
        """Take the daemon's answer on an account: serve or refuse the waiting connections of the uid."""
        self._asked.discard(uid)
        if exists:
            if len(self._accounts) >= _MOST_ACCOUNTS:
                self._accounts.clear()  # the daemon is asked again
            self._accounts.add(uid)
        elif not self._has_own(uid):
            for place in self._sessions.get(uid, ()):
                place.share(MOST_SHARED_SESSIONS)
        for sock, peer in self._awaiting.pop(uid, ()):
            if exists:
                self._seat(sock, peer)
            else:
                peer.let_go()
                self._refusals.add(sock, peer, _NO_ACCOUNT)

    # Session processes.

    def _session_of(self, peer: framing.Peer) -> "SessionProcess | None":
        """Return the user's session process, opened if needed; None if too many old processes have not ended."""
        sessions = self._sessions.setdefault(peer.uid, [])
        if sessions and sessions[-1].entrance is not None:
            return sessions[-1]
        if len(sessions) >= _MOST_SESSIONS:
            return None
        try:
            sessions.append(self._open(peer))
        except OSError as error:
            os.write(2, f"nodectl listener: open a session for uid {peer.uid}: {error.strerror}\n".encode())
            return None
        return sessions[-1]

    def _open(self, peer: framing.Peer) -> SessionProcess:
        """Fork a session process for the peer's user. Raises OSError."""
        entrance, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        down, theirs_down = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        up, theirs_up = os.pipe2(os.O_CLOEXEC)
        try:
            # The session process cannot leave descriptors in the daemon's end: nothing is received there.
            down.shutdown(_socket.SHUT_RD)
            entrance.shutdown(_socket.SHUT_RD)
            entrance.setblocking(False)
            entrance.setsockopt(_socket.SOL_SOCKET, _SO_SNDBUFFORCE if os.geteuid() == 0 else _socket.SO_SNDBUF, _ROOM)
            pid = os.fork()
            if pid == 0:
                most = self._most if peer.uid else _NO_END
                ends = (theirs.fileno(), theirs_up, theirs_down.fileno())
                session.main(peer.uid, peer.gid, *ends, most=most, longest=self._longest)
            place = SessionProcess(self._numbers, entrance, os.pidfd_open(pid), self._room_for(peer.uid))
            self._by_pidfd[place.pidfd] = peer.uid, place
            self._poll.register(place.pidfd, select.POLLIN)
            self._tell({"session": place.number, "uid": peer.uid}, [up, down.fileno()])
            self._ask(peer.uid)
        finally:
            os.close(up)
            os.close(theirs_up)
            for sock in (theirs, down, theirs_down):
                sock.close()
        return place

    def _room_for(self, uid: int) -> int:
        """Return the room in bytes for a user's connections which the session process has not taken. The room is small:
        all of it counts as sent by root, whose processes may then be refused to send (unix(7), ETOOMANYREFS).
        """
        return 2 * self._most * _ROOM_FOR_ONE if uid else _ROOM

    def _remove_session(self, pidfd: int) -> None:
        """Forget a session process which has ended."""
        uid, place = self._by_pidfd.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        place.close()
        self._sessions[uid].remove(place)
        if not self._sessions[uid]:
            del self._sessions[uid]

    def _look_after(self) -> None:
        """Kill hung session processes, reap children, and resume accepting and refusing connections."""
        self._reap()
        now = time.monotonic()
        if self._resumes and now >= self._resumes and self._listener is not None:
            self._resumes = 0.0
            self._poll.register(self._listener.fileno(), select.POLLIN)
        for sessions in self._sessions.values():
            for place in sessions:
                if place.is_stuck(now):
                    place.kill()
        self._refusals.go_on()

    def _reap(self) -> None:
        """Wait for ended children. No further code does: until then the pid is not reused."""
        try:
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self._refusals.reaped(pid)
        except ChildProcessError:
            pass  # there is none


def main() -> None:
    """Serve until the daemon has gone."""
    prctl.set_name("nodectl-listen")
    prctl.set_pdeathsig(_signal.SIGKILL)  # users then find the next daemon at once
    for number in (_signal.SIGINT, _signal.SIGHUP, _signal.SIGTSTP):
        _signal.signal(number, _signal.SIG_IGN)
    _signal.signal(_signal.SIGALRM, lambda *_: None)
    os.chdir("/")
    gc.freeze()
    gc.disable()  # a collection would copy the pages shared with session processes
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, CHANNEL)
    os.set_inheritable(CHANNEL, False)
    try:
        if data := channel.recv(_LONGEST_ORDER):
            order = lean_json.load_object(data)
            Listener(channel, most=int(str(order["most"])), longest=int(str(order["longest"]))).serve()
    except ConnectionError:
        pass  # the daemon has gone
    except framing.DescriptorsLost as lost:  # the daemon starts another listener
        os.write(2, f"nodectl listener: receive the listening socket: {lost.strerror}\n".encode())
