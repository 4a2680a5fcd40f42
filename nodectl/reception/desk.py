"""A desk: the process that reads one user's connections, as that user.

It splits what comes into messages, bounds and parses them, refuses what is no call, and passes on one call of each
connection at a time. Descriptors stay here until the daemon says where they go. It may hang in one of them, run out of
memory or be killed by its user: then this user's connections end, and the reception opens another desk.

The user can do nothing here that the user cannot do anyway; the daemon trusts nothing that comes from here.
"""

import _signal
import _socket
import errno
import os
import resource
import select

import prctl

from nodectl.reception.connection import Client
from nodectl.reception.message import LAUNCH, checked, withdraws
from nodectl.wire import frames, framing
from nodectl.wire.dispatch import STANDARD, Refused, error_reply, withdrawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_MOST_UNREAD = 64 << 20  # bytes of all connections together
_MOST_WAITING = 256 << 20  # bytes of whole calls, likewise: of 128 connections more would be all the memory there is
_MOST_BACKLOG = 1 << 20  # bytes that the daemon has not taken: then nothing more is read
_MOST_REPLY = 64 << 20  # bytes of the daemon's
_MOST_FILES = 16_384
# Who has no capability sends no descriptors while more than these are in flight that the same user has sent: what the
# reception gives to any desk counts as root's.
_MOST_OF_ROOTS = 1 << 30
_MOST_MEMORY = 1 << 30
_PATIENCE_MS = 10_000  # for who does not read when the daemon has gone
_IDLE_MS = 60_000  # that a desk without connections waits for one


class Desk:
    """The loop. `entrance`: connections from the reception; `up` and `down`: to and from the daemon."""

    def __init__(self, entrance: int, up: int, down: int, *, most: int, longest: int) -> None:
        self._entrance = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, entrance)
        self._up = up
        self._down = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, down)
        for fd in (entrance, up, down):
            os.set_blocking(fd, False)
        self._most = most
        self._longest = longest
        self._orders = framing.Inbox(_MOST_REPLY)
        self._out = bytearray()
        self._clients: dict[int, Client] = {}
        self._by_fd: dict[int, Client] = {}
        self._open = True  # more connections may come
        self._failed: OSError | None = None  # of a call by which it hears of others, or tells them
        self._patience: int | None = None  # milliseconds
        self._poll = select.poll()
        self._poll.register(entrance, select.POLLIN)
        self._poll.register(down, select.POLLIN)

    def serve(self) -> None:
        """Until no connection is left, and the reception has gone or nobody has come for a while."""
        down, entrance = self._down.fileno(), self._entrance.fileno()
        while self._open or self._clients:
            ready = self._poll.poll(self._patience if self._clients or self._patience else _IDLE_MS)
            if not ready and self._patience:
                return  # the daemon has gone, and somebody does not read what they are told
            if not ready:
                self._entrance.shutdown(_socket.SHUT_RD)  # what lies there is taken still; more goes to another desk
            for fd, mask in ready:
                if fd == down:
                    self._obey()
                elif fd == entrance and self._open:  # else nobody would serve who comes
                    self._welcome()
                elif fd == self._up:
                    self._go_on()
                elif client := self._by_fd.get(fd):
                    self._attend(client, mask)
            if self._failed is not None and self._patience is None:  # else the daemon has gone before
                self._give_up(self._failed)

    def _welcome(self) -> None:
        try:
            text, ancillary, _, _ = self._entrance.recvmsg(64, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except ConnectionError:
            text, ancillary = b"", []
        except OSError as error:
            self._failed = error
            return
        if not text:
            self._close_entrance()
            return
        fd, *_ = framing.descriptors_in(ancillary) or (-1,)
        if fd < 0:
            self._tell(int(text), frames.GONE)  # no descriptor was left for it
            return
        client = Client(int(text), _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd), self._longest)
        self._clients[client.number] = self._by_fd[fd] = client
        self._poll.register(fd, select.POLLIN)
        if len(self._clients) > self._most:
            reason = f"more connections of yours than max_connections_per_user = {self._most}"
            self._end_with(client, Refused("NotPermitted", reason))

    def _close_entrance(self) -> None:
        if self._open:
            self._open = False
            self._poll.unregister(self._entrance.fileno())

    # What clients send.

    def _attend(self, client: Client, mask: int) -> None:
        if mask & select.POLLOUT:
            self._flush(client)
        over = bool(mask & (select.POLLHUP | select.POLLERR))
        if client.sent_all and over:
            self._leave(client)
        elif (over or mask & select.POLLIN) and not client.gone:
            self._read(client, over=over)

    def _read(self, client: Client, *, over: bool) -> None:
        """What has come; `over` when nothing can be sent any more. Else who has closed only its own way waits for
        replies, as who pipes requests into socat(1) does.
        """
        try:
            alive = client.inbox.receive(client.sock)
            while (text := client.inbox.take()) is not None:
                client.calls.append((text, client.inbox.take_descriptors()))
                client.check_bounds()
            if sum(other.inbox.size for other in self._clients.values()) > _MOST_UNREAD:
                raise framing.BrokenWire(f"messages of more than {_MOST_UNREAD} bytes of yours are not whole yet")
            if sum(other.waiting for other in self._clients.values() if other.calls) > _MOST_WAITING:
                raise framing.BrokenWire(f"calls of more than {_MOST_WAITING} bytes of yours wait for others of yours")
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

    def _next(self, client: Client) -> None:
        """Passes on the next call; while one is under way, or its reply, those behind it wait."""
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

    # What the daemon says.

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
        """A call of this process failed, and what it was for may be lost: all connections end, and say why."""
        os.write(2, f"nodectl desk of uid {os.getuid()}: its connections end: {error.strerror}\n".encode())
        self._bereave(Refused("InternalError", f"the process that serves your connections failed: {error.strerror}"))
        if self._out:
            self._poll.unregister(self._up)
            self._out.clear()
        os.close(self._up)
        self._up = -1

    def _reply(self, client: Client, text: bytes) -> None:
        failed = client.answered()
        done = client.take_what_came()
        if client.gone:
            done += client.theirs
            del self._clients[client.number]
        else:
            if not text:  # nobody is told what they are
                done += client.theirs
                client.theirs = []
            client.out += text + b"\0" if text else b""
            if failed and text:  # whatever the daemon began has nothing to work with
                self._withhold(client, failed)
            else:
                self._flush(client)
        framing.close(done)  # last of all: it may take as long as their maker likes

    def _bereave(self, refused: Refused) -> None:
        """Nothing more is heard from the daemon. A client whose launch it took is told so all the same, and one whose
        launch it did not take is refused: where the daemon has gone, the next one is asked, once. All connections end.
        """
        self._poll.unregister(self._down.fileno())
        self._close_entrance()
        self._patience = _PATIENCE_MS
        for client in list(self._clients.values()):
            if client.launching and not client.gone:
                if not client.has_begun():
                    framing.close(client.theirs)
                    client.theirs = []
                    client.answer = framing.encode(error_reply(refused))[:-1]
                client.out += client.answer + b"\0"
            elif (client.calls and not client.busy) or (client.busy and self._failed is not None):
                client.out += framing.encode(error_reply(refused))  # to a call that was not passed on, or may not be
            client.busy = False
            client.ending = True
            if client.gone:
                del self._clients[client.number]
            else:
                self._flush(client)

    # What goes out.

    def _end_with(self, client: Client, refused: Refused) -> None:
        """The last thing that a client is told, if it reads it at once."""
        client.out += framing.encode(error_reply(refused))
        client.ending = True
        self._flush(client)
        self._leave(client)

    def _flush(self, client: Client) -> None:
        try:
            while client.out:
                sent = framing.send_some(client.sock, client.out, client.theirs)
                framing.close(client.theirs)
                client.theirs = []
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

    def _withhold(self, client: Client, number: int) -> None:
        """Refuse the call whose descriptors, or those of its reply, the kernel did not send, with this errno. What the
        reply's lead to ends with them.
        """
        framing.close(client.theirs)
        client.theirs = []
        name, reason = "InternalError", f"pass on the descriptors of the call: {os.strerror(number)}"
        if number == errno.ETOOMANYREFS:
            name = "NotPermitted"
            reason = "more descriptors of yours are on their way, unread in sockets, than you may have open"
        client.out[:] = framing.encode(error_reply(Refused(name, reason)))
        self._flush(client)

    def _interest(self, client: Client) -> int:
        return (0 if client.sent_all else select.POLLIN) | (select.POLLOUT if client.out else 0)

    def _leave(self, client: Client) -> None:
        """The connection is over. What is under way for it goes on, and may still want its descriptors."""
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
        """The daemon takes more."""
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
            self._out.clear()  # the daemon has gone, as its socket will say
        except OSError as error:
            self._failed = error


def main(  # what a desk is made of
    uid: int, gid: int, entrance: int, up: int, down: int, *, most: int, longest: int
) -> "NoReturn":
    """The whole life of a desk, in a process just forked. Never returns."""
    status = 1
    try:
        keep = sorted((entrance, up, down))
        os.closerange(3, keep[0])
        os.closerange(keep[0] + 1, keep[1])
        os.closerange(keep[1] + 1, keep[2])
        os.closerange(keep[2] + 1, os.sysconf("SC_OPEN_MAX"))
        become(uid, gid)
        Desk(entrance, up, down, most=most, longest=longest).serve()
        status = 0
    except MemoryError:
        os.write(2, f"nodectl desk of uid {uid}: no memory left, its connections end\n".encode())
    finally:
        os._exit(status)


def become(uid: int, gid: int, name: str = "nodectl-desk") -> None:
    """The user, for good, and with less: no groups, no capabilities, no children, no files, bounded memory."""
    os.setsid()
    prctl.set_name(name)
    _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
    if os.geteuid() != 0:  # a node of a user's own: all desks are that user's, and the daemon refuses others
        uid, gid = os.geteuid(), os.getegid()
    else:
        os.setgroups(())
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    prctl.cap_effective.limit()
    prctl.cap_permitted.limit()
    prctl.set_no_new_privs(1)
    prctl.set_dumpable(0)  # nobody reads its memory or takes its descriptors, its user neither
    if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid):
        raise OSError(errno.EPERM, "become the user of a desk")
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


def _broken(error: framing.BrokenWire) -> Refused:
    return Refused(f"{STANDARD}.InvalidParameter", str(error), parameter="message")


def _not_begun() -> Refused:
    return Refused("ServiceEnded", "the service ended before it took the request")
