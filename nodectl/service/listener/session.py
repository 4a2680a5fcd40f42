"""The session process (class UserSession), which reads a single user's connections, as the user.

It splits the received bytes into messages, bounds and parses them, refuses malformed calls, and passes on one call of
each connection at a time. Descriptors stay here until the daemon says where they go. The process may hang in one, run
out of memory or be killed by its user: the user's connections end, and the listener opens another session process.

The process gives its user no further power, and the daemon trusts nothing it sends.
"""

import _signal
import _socket
import errno
import os
import resource
import select

import prctl

from nodectl.model.wire import frames, framing
from nodectl.model.wire.dispatch import STANDARD, Refused, error_reply, withdrawn
from nodectl.service.listener.connection import ClientConnection
from nodectl.service.listener.message import LAUNCH, checked, withdraws

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_MOST_UNREAD = 64 << 20  # bytes of all connections together
_MOST_WAITING = 256 << 20  # bytes of whole calls of all connections: 128 connections could fill the memory
_MOST_BACKLOG = 1 << 20  # bytes not taken by the daemon; above this, no client is read
_MOST_REPLY = 64 << 20  # bytes of a reply of the daemon
_MOST_FILES = 16_384
# A process without capabilities cannot send descriptors while more than this number of its user's are in flight. The
# descriptors that the listener sends to any session process count as root's.
_MOST_OF_ROOTS = 1 << 30
_MOST_MEMORY = 1 << 30
_PATIENCE_MS = 10_000  # for a client that does not read, after the daemon's end
_IDLE_MS = 60_000  # that a session process without connections waits for one
SHARES = b"shares "  # begins the listener's message that so many processes share the room of one user
_MOST_OF_A_SHARE = 512 << 20  # bytes of memory that all of these may take beside what they have at its arrival


class UserSession:
    """The event loop. `entrance`: connections from the listener; `up` and `down`: to and from the daemon."""

    def __init__(self, entrance: int, up: int, down: int, *, most: int, longest: int) -> None:
        self._entrance = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, entrance)
        self._up = up
        self._down = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, down)
        for fd in (entrance, up, down):
            os.set_blocking(fd, False)
        self._most = most
        self._longest = longest
        self._shares = 1  # of the room of a user, this process has one
        self._orders = framing.Inbox(_MOST_REPLY)
        self._out = bytearray()
        self._clients: dict[int, ClientConnection] = {}
        self._by_fd: dict[int, ClientConnection] = {}
        self._open = True  # more connections may come
        self._failed: OSError | None = None  # error of a call to the listener or the daemon
        self._patience: int | None = None  # milliseconds
        self._poll = select.poll()
        self._poll.register(entrance, select.POLLIN)
        self._poll.register(down, select.POLLIN)

    def serve(self) -> None:
        """Serve until no connection is left and the listener has gone or no connection came for a minute."""
        down, entrance = self._down.fileno(), self._entrance.fileno()
        while self._open or self._clients:
            ready = self._poll.poll(self._patience if self._clients or self._patience else _IDLE_MS)
            if not ready and self._patience:
                return  # the daemon has gone, and a client does not read its last message
            if not ready:
                self._entrance.shutdown(_socket.SHUT_RD)  # take what lies there; send new connections elsewhere
            for fd, mask in ready:
                if fd == down:
                    self._obey()
                elif fd == entrance and self._open:  # after its end nothing would serve the connection
                    self._welcome()
                elif fd == self._up:
                    self._go_on()
                elif client := self._by_fd.get(fd):
                    self._attend(client, mask)
            if self._failed is not None and self._patience is None:  # else the daemon has gone before
                self._give_up(self._failed)

    def _welcome(self) -> None:
        try:
            text, fds = framing.receive_packet(self._entrance, 64, 1)
        except BlockingIOError:
            return
        except ConnectionError:
            text, fds = b"", []
        except framing.DescriptorsLost as lost:
            self._tell(int(lost.message), frames.GONE)
            return
        except OSError as error:
            self._failed = error
            return
        if not text:
            self._close_entrance()
            return
        if text.startswith(SHARES):
            try:
                self._share(int(text.removeprefix(SHARES)))
            except OSError as error:
                self._failed = error
            return
        (fd,) = fds
        client = ClientConnection(int(text), _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd), self._longest)
        self._clients[client.number] = self._by_fd[fd] = client
        self._poll.register(fd, select.POLLIN)
        if len(self._clients) > self._most:
            reason = f"more connections of yours than max_connections_per_user = {self._most}"
            self._end_with(client, Refused("NotPermitted", reason))

    def _share(self, shares: int) -> None:
        """Keep to one of so many shares of a user's room from now on: the user has no account."""
        self._shares = shares
        limit_memory(_MOST_OF_A_SHARE // shares)
        try:
            self._check_sums()
        except framing.BrokenWire as error:
            for client in list(self._clients.values()):
                self._end_with(client, _broken(error))

    def _check_sums(self) -> None:
        """Check what all connections together keep here. Raises BrokenWire."""
        unread, waiting = _MOST_UNREAD // self._shares, _MOST_WAITING // self._shares
        if sum(client.inbox.size for client in self._clients.values()) > unread:
            raise framing.BrokenWire(f"messages of more than {unread} bytes of yours are not whole yet")
        if sum(client.waiting for client in self._clients.values() if client.calls) > waiting:
            raise framing.BrokenWire(f"calls of more than {waiting} bytes of yours wait for others of yours")

    def _close_entrance(self) -> None:
        if self._open:
            self._open = False
            self._poll.unregister(self._entrance.fileno())

    # From clients.

    def _attend(self, client: ClientConnection, mask: int) -> None:
        if mask & select.POLLOUT:
            self._flush(client)
        over = bool(mask & (select.POLLHUP | select.POLLERR))
        if client.sent_all and over:
            self._leave(client)
        elif (over or mask & select.POLLIN) and not client.gone:
            self._read(client, over=over)

    def _read(self, client: ClientConnection, *, over: bool) -> None:
        """Read from the client; `over` means a connection closed in both directions. A client may also close only the
        sending direction, as socat(1) does at the end of input, and wait for replies.
        """
        try:
            alive = client.inbox.receive(client.sock)
            while (text := client.inbox.take()) is not None:
                client.calls.append((text, client.inbox.take_descriptors()))
                client.check_bounds()
            self._check_sums()
            if client.launching and not client.withdraws and withdraws(client.calls):
                client.withdraws = True
                self._tell(client.number, frames.WITHDRAW)
        except BlockingIOError:
            return
        except framing.BrokenWire as error:
            self._end_with(client, _broken(error))
            return
        except OSError:
            alive = False
        if not alive and over:
            self._leave(client)
            return
        if not alive:
            client.sent_all = True
            self._poll.modify(client.sock.fileno(), self._interest(client))
        self._next(client)

    def _next(self, client: ClientConnection) -> None:
        """Pass on the next call, unless a call or a reply is still under way."""
        if client.sent_all and not (client.calls or client.busy or client.out or client.gone):
            self._leave(client)
            return
        if not client.calls or client.busy or client.out or client.ending or len(self._out) > _MOST_BACKLOG:
            return
        text, client.fds = client.calls.pop(0)
        try:
            message = checked(text)
        except framing.BrokenWire as error:
            self._end_with(client, _broken(error))
            return
        if message.get("method") == LAUNCH and withdraws(client.calls):
            self._end_with(client, withdrawn())
            return
        client.busy, client.withdraws = True, False
        client.launching = message.get("method") == LAUNCH
        self._tell(client.number, frames.CALL, b"%d %s" % (len(client.fds), text))

    # From the daemon.

    def _obey(self) -> None:
        try:
            alive = self._orders.receive(self._down)
        except BlockingIOError:
            return
        except ConnectionError:
            alive = False
        except OSError as error:
            self._failed = error
            return
        while (data := self._orders.take()) is not None:
            fds = self._orders.take_descriptors()
            number, word, text = frames.split(data)
            client = self._clients.get(number)
            if client is None:
                framing.close(fds)
            elif word == frames.HAND:
                client.hand_over(fds, text)
            elif word == frames.WITHDRAWN:
                self._end_with(client, withdrawn())
            else:
                self._reply(client, text)
        if not alive:
            self._bereave(_not_begun())

    def _give_up(self, error: OSError) -> None:
        """End all connections with the reason: a failed call of this process may have lost data."""
        os.write(2, f"nodectl session of uid {os.getuid()}: its connections end: {error.strerror}\n".encode())
        self._bereave(Refused("InternalError", f"the process that serves your connections failed: {error.strerror}"))
        if self._out:
            self._poll.unregister(self._up)
            self._out.clear()
        os.close(self._up)
        self._up = -1

    def _reply(self, client: ClientConnection, text: bytes) -> None:
        self._leave_if_over(client)
        if client.gone or not text:  # a client without a reply gets no descriptors
            client.close_theirs()
        failed = client.answered()
        done = client.take_what_came()
        if client.gone:
            del self._clients[client.number]
        else:
            client.out += text + b"\0" if text else b""
            if failed and text:  # the daemon's work lacks the descriptors
                self._withhold(client, failed)
            else:
                self._flush(client)
        framing.close(done)  # last: the user can delay this close without limit

    def _bereave(self, refused: Refused) -> None:
        """End all connections, because the daemon is lost. A client with a begun launch gets the reply. A launch which
        has not begun is refused: the client asks the next daemon, once, if this daemon has gone.
        """
        self._poll.unregister(self._down.fileno())
        self._close_entrance()
        self._patience = _PATIENCE_MS
        for client in list(self._clients.values()):
            begun = client.launching and not client.gone and client.has_begun()
            self._leave_if_over(client)
            if client.gone:
                client.close_theirs()
            elif client.launching:
                if begun:
                    client.send_what_came()
                else:
                    client.close_theirs()
                    client.answer = framing.encode(error_reply(refused))[:-1]
                client.out += client.answer + b"\0"
            elif (client.calls and not client.busy) or (client.busy and self._failed is not None):
                client.out += framing.encode(error_reply(refused))  # for a call that was not, or perhaps not, passed on
            client.busy = False
            client.ending = True
            if client.gone:
                del self._clients[client.number]
            else:
                self._flush(client)

    # To clients and to the daemon.

    def _end_with(self, client: ClientConnection, refused: Refused) -> None:
        """Send the client a last message, if the client reads at once, and end the connection."""
        client.out += framing.encode(error_reply(refused))
        client.ending = True
        self._flush(client)
        self._leave(client)

    def _flush(self, client: ClientConnection) -> None:
        try:
            while client.out:
                sent = framing.send_some(client.sock, client.out, client.theirs)
                client.close_theirs()
                del client.out[:sent]
        except BlockingIOError:
            self._poll.modify(client.sock.fileno(), self._interest(client))
            return
        except OSError as error:
            if client.theirs and error.errno == errno.ETOOMANYREFS:
                self._withhold(client, error.errno)
                return
            client.ending = True
        if client.ending:
            self._leave(client)
        else:
            self._poll.modify(client.sock.fileno(), self._interest(client))
            self._next(client)

    def _withhold(self, client: ClientConnection, number: int) -> None:
        """Refuse a call: the kernel did not send the call's or the reply's descriptors, with this errno. Close the
        reply's descriptors, which ends the objects behind them.
        """
        client.close_theirs()
        name, reason = "InternalError", f"pass on the descriptors of the call: {os.strerror(number)}"
        if number == errno.ETOOMANYREFS:
            name = "NotPermitted"
            reason = "more descriptors of yours are on their way, unread in sockets, than you may have open"
        client.out[:] = framing.encode(error_reply(Refused(name, reason)))
        self._flush(client)

    def _interest(self, client: ClientConnection) -> int:
        return (0 if client.sent_all else select.POLLIN) | (select.POLLOUT if client.out else 0)

    def _leave_if_over(self, client: ClientConnection) -> None:
        """End the connection of a launch whose client has gone, before the launch's streams are sent.

        The step runner starts the program when it has the streams. By then it must see that no client has the pipes'
        ends any more.
        """
        if client.launching and not client.gone and client.is_over():
            self._leave(client)

    def _leave(self, client: ClientConnection) -> None:
        """End the connection. A call under way goes on and may still need the call's descriptors."""
        if client.gone:
            return
        client.gone = True
        fd = client.sock.fileno()
        self._poll.unregister(fd)
        del self._by_fd[fd]
        self._tell(client.number, frames.GONE)
        client.sock.close()
        framing.close(fd for _, fds in client.calls for fd in fds)
        client.calls.clear()
        client.inbox.close()
        if not client.busy:
            del self._clients[client.number]
            framing.close([*client.take_what_came(), *client.theirs])

    def _tell(self, number: int, word: bytes, text: bytes = b"") -> None:
        if self._up < 0:
            return
        waiting = bool(self._out)
        self._out += frames.frame(number, word, text)
        if not waiting:
            self._flush_up()
            if self._out:
                self._poll.register(self._up, select.POLLOUT)

    def _go_on(self) -> None:
        """Send more to the daemon, which has room again."""
        self._flush_up()
        if not self._out:
            self._poll.unregister(self._up)
            for client in list(self._clients.values()):
                self._next(client)

    def _flush_up(self) -> None:
        try:
            while self._out:
                del self._out[: os.write(self._up, self._out)]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._out.clear()  # the daemon has gone; its socket will report that
        except OSError as error:
            self._failed = error


def main(  # everything a session process needs
    uid: int, gid: int, entrance: int, up: int, down: int, *, most: int, longest: int
) -> "NoReturn":
    """Run a session process in a process just forked. Never returns."""
    status = 1
    try:
        keep = sorted((entrance, up, down))
        os.closerange(3, keep[0])
        os.closerange(keep[0] + 1, keep[1])
        os.closerange(keep[1] + 1, keep[2])
        os.closerange(keep[2] + 1, os.sysconf("SC_OPEN_MAX"))
        become(uid, gid)
        UserSession(entrance, up, down, most=most, longest=longest).serve()
        status = 0
    except MemoryError:
        os.write(2, f"nodectl session of uid {uid}: no memory left, its connections end\n".encode())
    finally:
        os._exit(status)


def become(uid: int, gid: int, name: str = "nodectl-session") -> None:
    """Become the user for good: no groups, no capabilities, no children, no files, bounded memory."""
    os.setsid()
    prctl.set_name(name)
    _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
    if os.geteuid() != 0:  # a user's own node: all session processes are that user's; the daemon refuses others
        uid, gid = os.geteuid(), os.getegid()
    else:
        os.setgroups(())
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    prctl.cap_effective.limit()
    prctl.cap_permitted.limit()
    prctl.set_no_new_privs(1)
    prctl.set_dumpable(0)  # no process reads its memory or takes its descriptors, not even its user's
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid):
        raise OSError(errno.EPERM, "become the user of a session")
    for limit, most in (
        (resource.RLIMIT_AS, _MOST_MEMORY),
        (resource.RLIMIT_NOFILE, _MOST_FILES if uid else _MOST_OF_ROOTS),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(limit)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)  # noqa: PLW2901  # what there is
        resource.setrlimit(limit, (most, most))


def limit_memory(more: int) -> None:
    """Let this process take at most `more` bytes of memory beside what it has."""
    with open("/proc/self/statm", "rb") as file:
        has = int(file.read().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = has + more if hard == resource.RLIM_INFINITY else min(has + more, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _broken(error: framing.BrokenWire) -> Refused:
    return Refused(f"{STANDARD}.InvalidParameter", str(error), parameter="message")


def _not_begun() -> Refused:
    return Refused("ServiceEnded", "the service ended before it took the request")
