"""Starts the listener, learns of connections from the listener, and replaces a listener which does not answer.

The daemon holds the listening socket and never accepts from it. When a listener dies or hangs, the daemon starts
another; the session processes of the old one go on.
"""

import asyncio
import functools
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nodectl import messages
from nodectl.kernel import signals
from nodectl.model.config import Config
from nodectl.model.wire import framing, lean_json
from nodectl.model.wire.dispatch import Service
from nodectl.service.daemon.connections.connection import CallCounts, SessionChannel
from nodectl.service.daemon.processes import companions
from nodectl.service.daemon.processes.companions import Companion

_LONGEST_NEWS = 1 << 17
_AT_ONCE = 16  # messages at once, before the loop's other work
_PING_SECONDS = 1.0
_SILENT_SECONDS = 5.0
_READY_SECONDS = 20.0
_BETWEEN_STARTS = 0.5  # seconds between starts, if listeners keep dying
_FDS = 2


class ListenerFailed(Exception):
    """Raised when the listener does not start; str() is a line."""


class ListenerSupervisor:
    """The supervisor of the daemon's listener, at first of `begun`. Users are served from `listen` on."""

    def __init__(self, config: Config, begun: Companion | None = None) -> None:
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._calls = CallCounts(config.max_connections_per_user)
        self._service: Service | None = None
        self._has_account: Callable[[int], Awaitable[bool]] | None = None
        self._answers: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._sessions: set[SessionChannel] = set()
        self._numbered: dict[int, SessionChannel] = {}  # the session processes of the present listener, by its numbers
        self._pings = 0
        self._pong = 0
        self._answered: asyncio.Future[None] = self._loop.create_future()
        self._ended = False
        self._channel: socket.socket | None = None
        self._start(begun or companions.begin_listener())
        self._timer = self._loop.call_later(_PING_SECONDS, self._ping, 0.0)

    async def ready(self) -> None:
        """Wait for the listener's first answer. Raises ListenerFailed."""
        try:
            await asyncio.wait_for(asyncio.shield(self._answered), _READY_SECONDS)
        except TimeoutError:
            raise ListenerFailed("start the listener: it does not answer (its own message is above)") from None

    def listen(self, listener: socket.socket, service: Service, has_account: Callable[[int], Awaitable[bool]]) -> None:
        """Begin to serve users. `has_account` looks up the account of a uid."""
        self._listener, self._service, self._has_account = listener, service, has_account
        self._hand_listener()

    def _start(self, begun: Companion) -> None:
        self._pid = begun.pid
        self._pidfd = os.pidfd_open(self._pid)
        ours = socket.socket(fileno=begun.channel)
        ours.setblocking(False)
        self._channel = ours
        self._numbered = {}
        self._loop.add_reader(ours.fileno(), self._hear, _AT_ONCE)
        self._send({"most": self._config.max_connections_per_user, "longest": self._config.max_message_bytes})
        self._send({"ping": self._pings})
        self._hand_listener()

    def pause(self) -> None:
        """Stop accepting: users connecting from now on wait for the next daemon."""
        self._listener = None
        self._send({"pause": True})

    def _hand_listener(self) -> None:
        if self._listener is not None:
            self._send({"listen": True}, [self._listener.fileno()])

    def _send(self, order: Mapping[str, object], fds: list[int] | None = None) -> None:
        if self._channel is None:
            return
        try:
            socket.send_fds(self._channel, [lean_json.dumps(order).encode("ascii")], fds or [])
        except ConnectionError:
            pass  # the listener has gone, which is noticed elsewhere
        except OSError as error:
            if "ping" not in order:  # an unanswered ping is noticed
                words = f"the listener does not get the order {lean_json.dumps(order)}: {error.strerror}"
                messages.tell("listener-unheard", words)
                self._loop.call_soon(self._replace, self._channel)

    def _replace(self, channel: socket.socket) -> None:
        if self._channel is channel:
            self._lose()

    def _ping(self, silent: float) -> None:
        """Once a second, send a ping after each answer, and replace a listener silent for too long."""
        if self._pong < self._pings:
            silent += _PING_SECONDS
        else:
            silent = 0.0
            self._pings += 1
            self._send({"ping": self._pings})
        if silent > _SILENT_SECONDS:
            silent = 0.0
            self._pings = self._pong
            self._lose()
        self._timer = self._loop.call_later(_PING_SECONDS, self._ping, silent)

    def _hear(self, most: int = sys.maxsize) -> None:
        """Read at most `most` messages of the listener: connections may come as fast as the daemon reads."""
        while self._channel is not None and most > 0:
            most -= 1
            try:
                data, fds = framing.receive_packet(self._channel, _LONGEST_NEWS, _FDS)
            except BlockingIOError:
                return
            except ConnectionResetError:
                continue  # the listener ended with orders unread; its own messages can be read now
            except framing.DescriptorsLost as lost:  # no session is opened then; a caller counts as gone
                messages.tell("listener-unheard", f"receive the descriptors of the listener's news: {lost.strerror}")
                data, fds = lost.message, []
            except OSError:
                data, fds = b"", []
            if not data:
                self._lose()
                return
            self._note(lean_json.load_object(data), fds)

    def _note(self, news: Mapping[str, Any], fds: list[int]) -> None:
        if "pong" in news:
            self._pong = news["pong"]
            if not self._answered.done():
                self._answered.set_result(None)
        elif "whose" in news:
            answer = self._loop.create_task(self._tell_account(news["whose"]))
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)
        elif "uid" in news:
            self._open(news["session"], news["uid"], fds)
        elif place := self._numbered.get(news["session"]):
            pidfd = fds[0] if fds else -1
            who = news["pid"], place.uid, news["gid"], news["groups"]
            peer = framing.Peer(*who, pidfd, news["inode"], news["place"])
            place.add(news["connection"], peer)
        else:
            framing.close(fds)  # the session process has ended, which the listener did not know yet

    async def _tell_account(self, uid: int) -> None:
        assert self._has_account is not None  # noqa: S101  # no user comes before it listens
        self._send({"account": uid, "exists": await self._has_account(uid)})

    def _open(self, number: int, uid: int, fds: list[int]) -> None:
        """Serve a new session process. On failure close the descriptors, which makes the process end.

        The session process tells its clients first.
        """
        assert self._service is not None  # noqa: S101  # no user comes before it listens
        try:
            up, down = framing.exactly(_FDS, fds)
            longest = self._config.max_message_bytes
            on_end = functools.partial(self._forget, number)
            session = SessionChannel(uid, up, down, self._service, self._calls, longest, self._hear, on_end)
        except OSError as error:
            framing.close(fds)
            messages.tell("session-not-opened", f"serve the connections of uid {uid}: {error.strerror}", uid=uid)
        else:
            self._numbered[number] = session
            self._sessions.add(session)

    def _forget(self, number: int, session: SessionChannel) -> None:
        self._sessions.discard(session)
        if self._numbered.get(number) is session:  # and not a process of the next listener
            del self._numbered[number]

    def _lose(self) -> None:
        """Kill the listener, if still alive, and schedule a new start. The session processes go on."""
        if self._channel is None:
            return
        self._loop.remove_reader(self._channel.fileno())
        self._channel.close()
        self._channel = None
        self._numbered = {}
        pidfd, pid = self._pidfd, self._pid
        signals.send(pidfd, signals.KILL)
        self._loop.add_reader(pidfd, _collect, self._loop, pidfd, pid)
        if not self._ended:
            messages.tell("listener-ended", "the listener has ended: another is started")
            self._loop.call_later(_BETWEEN_STARTS, self._start_again)

    def _start_again(self) -> None:
        if self._ended:
            return
        try:
            self._start(companions.begin_listener())
        except OSError as error:
            messages.tell("listener-not-started", f"start the listener: {error.strerror}")
            self._loop.call_later(_BETWEEN_STARTS, self._start_again)

    async def close(self) -> None:
        """Stop serving calls. A late call gets no answer, rather than an answer from a half-closed node."""
        self._ended = True
        self._timer.cancel()
        for answer in list(self._answers):
            answer.cancel()
        busy = [task for session in list(self._sessions) for task in session.abandon()]
        # After the sleep the last calls' callbacks have run, too.
        await asyncio.gather(*busy, asyncio.sleep(0), return_exceptions=True)
        if self._channel is not None:
            self._loop.remove_reader(self._channel.fileno())
            self._channel.close()
            self._channel = None


def _collect(loop: asyncio.AbstractEventLoop, pidfd: int, pid: int) -> None:
    loop.remove_reader(pidfd)
    os.close(pidfd)
    os.waitpid(pid, 0)
