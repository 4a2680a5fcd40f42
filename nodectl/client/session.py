"""A command's connection to the node: to the service, or to a private node for the length of the command.

Lean: `nodectl run` imports this module for every step. The configuration is read only if named, or if the service is
not at its usual socket.
"""

import posix as os  # the half in C: the other one is a millisecond of each step

from nodectl.client.command import Failed, Interrupted
from nodectl.model.wire import framing
from nodectl.model.wire.names import NODE, STEP

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Mapping, Sequence
    from typing import Any

    from nodectl.client.command import GlobalOptions
    from nodectl.client.launched import Launched
    from nodectl.client.signals import Signals

REEXECUTED = "_NODECTL_REEXECUTED"  # in the environment of a command that was executed a second time, see reexec.py
DEFAULT_SOCKET = "/run/nodectl/nodectl.sock"
_LARGEST_REPLY = 64 << 20
_PRIVATE_SECONDS = 60.0  # emulated CPUs, and others' work on them
_MOST_SUCCESSORS = 4
_CHUNK = 65536
ONCE = ("Signal", "Submit")  # not repeated to a successor: the service may have done it
WITHDRAWN = f"{NODE}.Withdrawn"


class Gone(Failed):
    """The service ended before answering; the fate of the request is unknown."""


class NotTaken(Gone):
    """The service ended without having done the request."""


class Events:
    """The pipe of a step's events, and the pipe of calls to the step."""

    __slots__ = ("_commands", "_inbox", "fd")

    def __init__(self, events: int, commands: int, read: bytes = b"") -> None:
        """Take the descriptors; `read` holds event bytes already read."""
        self.fd = events
        self._commands = commands
        self._inbox = framing.Inbox(_LARGEST_REPLY)
        self._inbox.feed(read)

    def read(self) -> "tuple[list[Mapping[str, object]], bool]":
        """Read once and return the whole messages, and False at the end of the events. Raises OSError, BrokenWire."""
        data = os.read(self.fd, _CHUNK)
        self._inbox.feed(data)
        return self.take()[0], bool(data)

    def take(self) -> "tuple[list[Mapping[str, object]], bool]":
        """Return the whole messages already read, and True. Raises BrokenWire."""
        messages = []
        while (message := self._inbox.next()) is not None:
            messages.append(message)
        return messages, True

    def call(self, method: str, **parameters: object) -> None:
        """Call a method of org.nodectl.step, without waiting for an answer. Raises OSError when the step has ended."""
        self.send(self.message(method, **parameters))

    @staticmethod
    def message(method: str, **parameters: object) -> bytes:
        """Return the message of a call to the step."""
        return framing.encode({"method": f"{STEP}.{method}", "parameters": parameters, "oneway": True})

    def send(self, data: bytes) -> None:
        """Write a whole message. Wait while the pipe is full; a signal may interrupt the wait. Raises OSError."""
        while (written := os.write(self._commands, data)) < len(data):
            data = data[written:]

    def close(self) -> None:
        """Close both pipes, which ends the step if still running.

        A second call does nothing, because the descriptors' numbers may have been reused by then.
        """
        if self.fd < 0:
            return
        fds, self.fd, self._commands = (self.fd, self._commands), -1, -1
        for fd in fds:
            try:
                os.close(fd)
            except OSError:
                pass  # a plugin has closed the descriptor


class PrivateNode:
    """A daemon started by this command: pid, socket path, and the pipe which ends the daemon when closed."""

    __slots__ = ("path", "pid", "pipe")

    def __init__(self, pid: int, pipe: int, path: str) -> None:
        self.pid = pid
        self.pipe = pipe
        self.path = path


class Session:
    """An open connection to the service.

    `close` ends the step launched by this command, if still running, and the private node, if this command started one.
    """

    __slots__ = (
        "_asked", "_events", "_inbox", "_is_own", "_launched", "_sock", "_successors", "path", "private", "signals",
        "socket_path", "streams", "until",
    )  # fmt: skip
    tells = False  # whether a user at a terminal is told what the command waits for

    def __init__(
        self,
        settings: "GlobalOptions",
        *,
        start_private: bool = True,
        private: "PrivateNode | None" = None,
        launched: "Launched | None" = None,
    ) -> None:
        """Connect to the service, or start a private node.

        `private`: a node already started by this command; `launched`: the launch begun by the quick way, if any.
        """
        self.private = private
        self._launched = launched
        self.streams = (0, 1, 2)
        self.signals: Signals | None = launched.signals if launched else None
        self.until: float | None = None  # when a command that waits for its turn gives up
        self._events: Events | None = None
        self._successors = _MOST_SUCCESSORS
        self._asked = ""
        self._inbox = framing.Inbox(_LARGEST_REPLY)
        gateway = "" if settings.socket or settings.config else _gateway()
        self.socket_path = settings.socket or gateway or ("" if settings.config else DEFAULT_SOCKET)
        self._is_own = bool(gateway) or (not settings.socket and _is_own(settings))
        if launched is not None:
            self.path = self.socket_path
            self._sock = launched.take_up(self._inbox)
            return
        if private is not None:
            self._connect(private.path)
            return
        try:
            self._connect(self.socket_path or _configured_socket(settings))
        except OSError as error:
            if settings.socket:
                raise Failed(
                    f"no service at {settings.socket}: {error.strerror}; --socket or NODECTL_SOCKET has led here"
                ) from None
            self._connect_by_configuration(settings, start_private=start_private)

    def _connect_by_configuration(self, settings: "GlobalOptions", *, start_private: bool) -> None:
        from nodectl.client.configuration import configured  # not paid where the service is in its usual place

        config = configured(settings.config)
        if config.socket != self.socket_path:
            try:
                self._connect(config.socket)
            except OSError:
                pass
            else:
                return
        is_own = _is_own(settings)
        if not start_private or (os.geteuid() != 0 and not is_own):
            from nodectl.client.service_start import how_to_start  # only for this error

            raise Failed(f"no service at {config.socket}: {how_to_start(own=is_own, private=start_private)}")
        from nodectl.client import private_node  # only without a service

        self.private = PrivateNode(*private_node.start(settings.config, config, _PRIVATE_SECONDS))
        self._connect(self.private.path)

    def _connect(self, path: str) -> None:
        self.path = path
        self._sock = self._connected(path)

    def _connected(self, path: str) -> "_socket.socket":
        """Return a connection to the socket `path`. Raises OSError, Failed.

        In a user's own node, refuse a listener of another user, who might have been quicker to make the directory.
        """
        sock = framing.connect(path)
        if self._is_own and (uid := framing.peer_of(sock).uid) != os.geteuid():
            sock.close()
            raise Failed(f"{path}: uid {uid} listens there, and it is to be a node of your own")
        return sock

    def call(self, method: str, fds: "Sequence[int]" = (), **parameters: object) -> "Mapping[str, object]":
        """Call a method of org.nodectl and return the reply's parameters. Raises Failed with the service's reason.

        If the service ends before answering, repeat a repeatable call to its successor.
        """
        try:
            return self._call(method, fds, parameters)
        except Gone as gone:
            asked_once = method in ONCE and not isinstance(gone, NotTaken)
            if fds or asked_once or not self.follow():
                raise
            return self.call(method, (), **parameters)

    def rows(self, method: str, name: str, **parameters: object) -> "list[Any]":
        """Return all rows of a list that the service gives in pieces, `name` in each reply. Raises Failed.

        A list that changes between two replies may miss rows, and repeat some.
        """
        found: list[Any] = []
        more = True
        while more:
            reply: Mapping[str, Any] = self.call(method, (), skip=len(found), **parameters)
            found += reply[name]
            more = reply["more"] and bool(reply[name])
        return found

    def hold_signals(self) -> "Signals":
        """Hold signals from now on, for the step or job about to start. Raises Interrupted."""
        if self.signals is None:
            from nodectl.client.signals import Signals  # only for commands that start something

            self.signals = Signals()
            self.signals.end_if_any()
        return self.signals

    def let_signals_go(self) -> None:
        """Return signals to the command; the step or job goes on by itself. Raises Interrupted."""
        if self.signals is not None:
            signals, self.signals = self.signals, None
            signals.let_go()

    def ask(self, method: str, **parameters: object) -> None:
        """Send a call; the next `call` of the same method takes the reply, whatever its own parameters are.

        The process can do other work in between, while the service works.
        """
        try:
            framing.send(self._sock, {"method": f"{NODE}.{method}", "parameters": parameters})
        except OSError:
            return  # the call itself finds out and tells
        self._asked = method

    def _call(self, method: str, fds: "Sequence[int]", parameters: "Mapping[str, object]") -> "Mapping[str, object]":
        unread = False  # a peer that closes with unread data resets the connection
        asked, self._asked = self._asked, ""
        try:
            try:
                if asked != method:
                    framing.send(self._sock, {"method": f"{NODE}.{method}", "parameters": parameters}, fds)
            except ConnectionError:
                unread = True  # the service may have said why before it closed the connection
            if self.tells:
                from nodectl.client import patience  # only at a terminal

                patience.for_answer(self._sock.fileno(), method, self.path)
            heed = None if self.signals is None else self.signals.answer(self._sock, method, self.until)
            reply = framing.receive(self._sock, self._inbox, heed)
        except ConnectionError:
            reply, unread = None, True
        except (OSError, framing.BrokenWire) as error:
            raise Failed(f"{method}: the connection to the service broke: {error}") from None
        return self._answer(method, reply, unread=unread)

    def _answer(self, method: str, reply: "Mapping[str, object] | None", *, unread: bool) -> "Mapping[str, object]":
        """Return the parameters of a reply. Raises Failed.

        The reply is None where the connection ended before.
        """
        if reply is None:
            raise (NotTaken if unread else Gone)(f"{method}: the service went away before it answered")
        found: Mapping[str, object] = reply.get("parameters") or {}  # type: ignore[assignment]
        if "error" in reply:
            self._inbox.close()  # what may have come for a step that will not be
        if reply.get("error") == f"{NODE}.ServiceEnded":
            raise NotTaken(f"{method}: the service went away before it answered")
        if "error" in reply:
            from nodectl.client.option_names import as_typed  # only where something was refused

            status = found.get("exit_status")
            reason = as_typed(str(found.get("reason") or reply["error"]), str(found.get("parameter")), method)
            job = found.get("job")
            status, job = (status if isinstance(status, int) else 1), (job if isinstance(job, int) else 0)
            raise Failed(reason, status, str(reply["error"]), job, str(found.get("subject", "")))
        return found

    def wait_at_most(self, seconds: float) -> None:
        """Treat the connection as broken when an answer takes longer than `seconds`. For commands which poll the
        service.
        """
        self._sock.settimeout(seconds)

    def hang_up(self) -> None:
        """Interrupt the wait of another thread for an answer, and make no new connection."""
        self._successors = 0
        try:
            self._sock.shutdown(2)  # both ways
        except OSError:
            pass  # it has been closed

    def launch(self, request: "Mapping[str, object]") -> "tuple[int, int, Events]":
        """Launch a step with `streams`, by default this process's own; return the job, the step's number, the events.

        A service that ends before taking the request is no reason to fail: its successor is asked. A service that ends
        after taking the request, or for whose job the plugins have done their part already, is a reason.

        From the moment of asking, signals belong to the step. Raises Failed; Interrupted if a signal came before, or
        withdrew the launch.
        """
        from nodectl.client.signals import ENDING

        launched, self._launched = self._launched, None
        signals = self.hold_signals()
        if launched is not None:
            self._asked = "Launch"
        try:
            answer = self.call("Launch", self.streams, request=request)
        except Failed as failed:
            if (failed.name == WITHDRAWN or isinstance(failed, Gone)) and (number := signals.first(ENDING)):
                raise Interrupted(number) from None
            if not isinstance(failed, NotTaken) or "job" in request or not self.follow():
                raise
            return self.launch(request)
        fds = self._inbox.take_descriptors()
        if len(fds) != 2:
            framing.close(fds)
            raise Failed("Launch: the reply came without the pipes of the step")
        events, commands = fds
        if self._events is not None:
            self._events.close()  # of a step that has ended
        self._events = Events(events, commands, launched.events if launched else b"")
        return int(str(answer["job"])), int(str(answer["step"])), self._events

    def view(self, job: int, step: int) -> "tuple[Mapping[str, object], int]":
        """Return the facts on a running step's streams, and a connection to the process copying the streams. Raises
        Failed.
        """
        answer = self.call("View", job=job, step=step)
        (view,) = self._inbox.take_descriptors()
        return answer, view

    def fileno(self) -> int:
        """Return the descriptor of the connection, for poll(2) after `ask`."""
        return self._sock.fileno()

    @property
    def is_open(self) -> bool:
        """Whether the session is open: True until `close`."""
        return self._sock.fileno() >= 0

    @property
    def followed(self) -> bool:
        """Whether the session has moved to a later service."""
        return self._successors < _MOST_SUCCESSORS

    def take_descriptors(self) -> "list[int]":
        """Return the descriptors of the last reply; the caller must close the descriptors."""
        return self._inbox.take_descriptors()

    def follow(self) -> bool:
        """Connect to the successor of an ended service; under systemd the socket stays open.

        Return False when there is no successor, or after too many reconnections.
        """
        if self.private is not None or not self._successors:
            return False
        self._successors -= 1
        return self.reconnect()

    def reconnect(self) -> bool:
        """Replace the connection by a new connection, dropping any call in progress. Return False where no service
        listens.
        """
        try:
            following = self._connected(self.path)
        except OSError:
            return False
        following.settimeout(self._sock.gettimeout())
        self._sock.close()
        self._sock, self._inbox = following, framing.Inbox(_LARGEST_REPLY)
        return True

    def close(self) -> None:
        """Close the connection and the step's pipes, and end a private node and wait for the cleanup."""
        # The events too: a private node waits for its step, which runs while any process holds them, even this one
        # after a Ctrl-C at the wrong moment.
        if self._events is not None:
            self._events.close()
        try:
            self._sock.close()
        except OSError:
            pass  # a plugin has closed the descriptor
        if self.private is not None:
            os.close(self.private.pipe)
            os.waitpid(self.private.pid, 0)
            self.private = None


def _gateway() -> str:
    """Return the socket of the cluster of the surrounding allocation, or ""."""
    if b"SLURM_JOB_ID" not in os.environ and b"NODECTL_CLUSTER" not in os.environ:
        return ""
    from nodectl.client import cluster_gateway  # only within an allocation

    return cluster_gateway.socket()


def _is_own(settings: "GlobalOptions") -> bool:
    if settings.config is None:
        return False
    from nodectl.model.config import own_node  # only where a configuration is named

    return own_node.is_own(settings.config)


def _configured_socket(settings: "GlobalOptions") -> str:
    if _is_own(settings):
        from nodectl.model.config import own_node

        try:
            return f"{own_node.runtime_dir()}/nodectl.sock"  # or where its configuration says, if this one is silent
        except own_node.NotOurs as error:
            raise Failed(str(error)) from None
    from nodectl.client.configuration import configured

    return configured(settings.config).socket
