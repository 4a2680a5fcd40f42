"""A command's connection to the node: the service's, or a private node for the length of the command.

Lean: `nodectl run` imports it at every step. The configuration is read only when it is named, or when the service is
not where it usually is.
"""

import posix as os  # the half in C: the other one is a millisecond of each step

from nodectl.client.command import Failed, Interrupted
from nodectl.wire import framing
from nodectl.wire.names import NODE, STEP

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Mapping, Sequence

    from nodectl.client.command import GlobalOptions
    from nodectl.client.launched import Launched
    from nodectl.client.signals import Signals

REEXECUTED = "_NODECTL_REEXECUTED"  # in the environment of a command that was executed a second time, see reexec.py
DEFAULT_SOCKET = "/run/nodectl/nodectl.sock"
_LARGEST_REPLY = 64 << 20
_PRIVATE_SECONDS = 60.0  # emulated CPUs, and others' work on them
_MOST_SUCCESSORS = 4
_CHUNK = 65536
ONCE = ("Signal", "Submit")  # what may have been done already is not asked for again
WITHDRAWN = f"{NODE}.Withdrawn"


class Gone(Failed):
    """The service ended before it answered; whether it has done what it was asked to is not known."""


class NotTaken(Gone):
    """The service ended, and has not done what it was asked to."""


class Events:
    """A step's events, and the way of calls to it: two pipes."""

    __slots__ = ("_commands", "_inbox", "fd")

    def __init__(self, events: int, commands: int, read: bytes = b"") -> None:
        """`read`: what was read of the events before."""
        self.fd = events
        self._commands = commands
        self._inbox = framing.Inbox(_LARGEST_REPLY)
        self._inbox.feed(read)

    def read(self) -> "tuple[list[Mapping[str, object]], bool]":
        """Reads once: the messages that are whole, and False when no more will come. Raises OSError, BrokenWire."""
        data = os.read(self.fd, _CHUNK)
        self._inbox.feed(data)
        return self.take()[0], bool(data)

    def take(self) -> "tuple[list[Mapping[str, object]], bool]":
        """Likewise of what was read before. Raises BrokenWire."""
        messages = []
        while (message := self._inbox.next()) is not None:
            messages.append(message)
        return messages, True

    def call(self, method: str, **parameters: object) -> None:
        """Calls a method of org.nodectl.step and wants no answer. Raises OSError: it has ended."""
        self.send(self.message(method, **parameters))

    @staticmethod
    def message(method: str, **parameters: object) -> bytes:
        """Such a call, to be sent."""
        return framing.encode({"method": f"{STEP}.{method}", "parameters": parameters, "oneway": True})

    def send(self, data: bytes) -> None:
        """All of a message: more than the pipe has room for waits, and a signal may come between. Raises OSError."""
        while (written := os.write(self._commands, data)) < len(data):
            data = data[written:]

    def close(self) -> None:
        """The step ends, if it runs. A second time it does nothing: the numbers may be others' by then."""
        fds, self.fd, self._commands = (self.fd, self._commands), -1, -1
        for fd in fds:
            try:
                os.close(fd)
            except OSError:
                pass  # a plugin has closed the descriptor


class PrivateNode:
    """A daemon of this command's own: its pid, the pipe whose end ends it, its socket."""

    __slots__ = ("path", "pid", "pipe")

    def __init__(self, pid: int, pipe: int, path: str) -> None:
        self.pid = pid
        self.pipe = pipe
        self.path = path


class Session:
    """An open connection; `close` ends the step that this command launched, if it runs, and the private node, if this
    command started one.
    """

    __slots__ = (
        "_asked", "_events", "_inbox", "_is_own", "_launched", "_sock", "_successors", "path", "private", "signals",
        "socket_path", "streams", "until",
    )  # fmt: skip
    tells = False  # whether somebody at a terminal is told what the command waits for

    def __init__(
        self,
        settings: "GlobalOptions",
        *,
        start_private: bool = True,
        private: "PrivateNode | None" = None,
        launched: "Launched | None" = None,
    ) -> None:
        """`private`: a node that this command started before; `launched`: where it has asked for its step before."""
        self.private = private
        self._launched = launched
        self.streams = (0, 1, 2)
        self.signals: Signals | None = launched.signals if launched else None
        self.until: float | None = None  # when an answer comes too late for who has to wait for a turn
        self._events: Events | None = None
        self._successors = _MOST_SUCCESSORS
        self._asked = ""
        self._inbox = framing.Inbox(_LARGEST_REPLY)
        door = "" if settings.socket or settings.config else _door()
        self.socket_path = settings.socket or door or ("" if settings.config else DEFAULT_SOCKET)
        self._is_own = bool(door) or (not settings.socket and _is_own(settings))
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
            from nodectl.client.service_start import start_command  # where nothing is in a hurry any more

            else_ = ", or run this command as root, or as `nodectl --user`, for a private node" if start_private else ""
            raise Failed(f"no service at {config.socket}: start it with `{start_command(own=is_own)}`{else_}")
        from nodectl.client import private_node  # only without a service

        self.private = PrivateNode(*private_node.start(settings.config, config, _PRIVATE_SECONDS))
        self._connect(self.private.path)

    def _connect(self, path: str) -> None:
        self.path = path
        self._sock = self._connected(path)

    def _connected(self, path: str) -> "_socket.socket":
        """A connection; in a user's own node to nobody else's process, who might have been quicker to make the
        directory. Raises OSError, Failed.
        """
        sock = framing.connect(path)
        if self._is_own and (uid := framing.peer_of(sock).uid) != os.geteuid():
            sock.close()
            raise Failed(f"{path}: uid {uid} listens there, and it is to be a node of your own")
        return sock

    def call(self, method: str, fds: "Sequence[int]" = (), **parameters: object) -> "Mapping[str, object]":
        """Calls a method of org.nodectl; the reply's parameters. Raises Failed with the service's reason.

        What may be asked twice is asked again of the service that follows one that ended before it answered.
        """
        try:
            return self._call(method, fds, parameters)
        except Gone as gone:
            asked_once = method in ONCE and not isinstance(gone, NotTaken)
            if fds or asked_once or not self.follow():
                raise
            return self.call(method, (), **parameters)

    def hold_signals(self) -> "Signals":
        """Before anything is asked for that starts: from now on signals are that one's. Raises Interrupted."""
        if self.signals is None:
            from nodectl.client.signals import Signals  # who starts nothing needs none

            self.signals = Signals()
            self.signals.end_if_any()
        return self.signals

    def let_signals_go(self) -> None:
        """What was started goes on by itself: signals are the command's again. Raises Interrupted."""
        if self.signals is not None:
            signals, self.signals = self.signals, None
            signals.let_go()

    def ask(self, method: str) -> None:
        """Sends a call without parameters; the next `call`, of the same method, takes its reply. What this process does
        between the two costs no time while the service works.
        """
        try:
            framing.send(self._sock, {"method": f"{NODE}.{method}", "parameters": {}})
        except OSError:
            return  # the call itself finds out and tells
        self._asked = method

    def _call(self, method: str, fds: "Sequence[int]", parameters: "Mapping[str, object]") -> "Mapping[str, object]":
        unread = False  # who closes a connection with something unread in it resets it
        asked, self._asked = self._asked, ""
        try:
            try:
                if asked != method:
                    framing.send(self._sock, {"method": f"{NODE}.{method}", "parameters": parameters}, fds)
            except ConnectionError:
                unread = True  # what closed the connection may have said why
            if self.tells:
                from nodectl.client import patience  # for people; a step's launch pays nothing for it

                patience.for_answer(self._sock.fileno(), method, self.path)
            heed = None if self.signals is None else self.signals.answer(self._sock, method, self.until)
            reply = framing.receive(self._sock, self._inbox, heed)
        except ConnectionError:
            reply, unread = None, True
        except (OSError, framing.BrokenWire) as error:
            raise Failed(f"{method}: the connection to the service broke: {error}") from None
        return self._answer(method, reply, unread=unread)

    def _answer(self, method: str, reply: "Mapping[str, object] | None", *, unread: bool) -> "Mapping[str, object]":
        """What a reply says, None where the connection ended before it. Raises Failed."""
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
            reason = as_typed(str(found.get("reason") or reply["error"]), str(found.get("parameter")))
            job = found.get("job")
            status, job = (status if isinstance(status, int) else 1), (job if isinstance(job, int) else 0)
            raise Failed(reason, status, str(reply["error"]), job, str(found.get("subject", "")))
        return found

    def wait_at_most(self, seconds: float) -> None:
        """From now on an answer that takes longer is a connection that broke; for who looks at the service again and
        again.
        """
        self._sock.settimeout(seconds)

    def hang_up(self) -> None:
        """Another thread, which waits for an answer, waits no longer and asks nobody else."""
        self._successors = 0
        try:
            self._sock.shutdown(2)  # both ways
        except OSError:
            pass  # it has been closed

    def launch(self, request: "Mapping[str, object]") -> "tuple[int, int, Events]":
        """Asks for a step with `streams`, this process's own by default: its job, its number, its events.

        A service that ends before it has taken the request is no reason to fail: the next one is asked. One that took
        it, or for whose job the plugins have done their part already, is.

        From the moment on in which it asks, signals are the step's. Raises Failed; Interrupted where one came before,
        or had the launch withdrawn.
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
        """What is known of a running step's streams, and a connection to what copies them. Raises Failed."""
        answer = self.call("View", job=job, step=step)
        (view,) = self._inbox.take_descriptors()
        return answer, view

    @property
    def is_open(self) -> bool:
        """Until `close`."""
        return self._sock.fileno() >= 0

    @property
    def followed(self) -> bool:
        """Whether it has come to a later service than its first one."""
        return self._successors < _MOST_SUCCESSORS

    def take_descriptors(self) -> "list[int]":
        """Those that came with the last reply; the caller closes them."""
        return self._inbox.take_descriptors()

    def follow(self) -> bool:
        """Connects to the service that comes after one that has ended: under systemd the socket is there all the time.
        False when there is none, or when that has happened too often.
        """
        if self.private is not None or not self._successors:
            return False
        self._successors -= 1
        return self.reconnect()

    def reconnect(self) -> bool:
        """Leaves its connection, with what may have been asked on it, for a new one. False where nobody listens."""
        try:
            following = self._connected(self.path)
        except OSError:
            return False
        following.settimeout(self._sock.gettimeout())
        self._sock.close()
        self._sock, self._inbox = following, framing.Inbox(_LARGEST_REPLY)
        return True

    def close(self) -> None:
        """Ends the connections and a private node, and waits for it to have cleaned up."""
        # The events too: a private node waits for its step, which goes on while somebody holds them. After a Ctrl-C
        # in the wrong moment that would be ourselves.
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


def _door() -> str:
    """The cluster's in the allocation in which this was typed; "" where there is none."""
    if b"SLURM_JOB_ID" not in os.environ and b"NODECTL_CLUSTER" not in os.environ:
        return ""
    from nodectl.client import cluster_door  # only within an allocation

    return cluster_door.socket()


def _is_own(settings: "GlobalOptions") -> bool:
    if settings.config is None:
        return False
    from nodectl.config import own_node  # only where a configuration is named

    return own_node.is_own(settings.config)


def _configured_socket(settings: "GlobalOptions") -> str:
    if _is_own(settings):
        from nodectl.config import own_node

        try:
            return f"{own_node.runtime_dir()}/nodectl.sock"  # or where its configuration says, if nobody listens here
        except own_node.NotOurs as error:
            raise Failed(str(error)) from None
    from nodectl.client.configuration import configured

    return configured(settings.config).socket
