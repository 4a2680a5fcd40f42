"""The gateway: a local socket by which commands of this node reach the cluster, like a daemon on a single node.

It speaks org.nodectl. Calls are bounded and checked here, then passed to the leader; the agent itself answers only the
calls about this node's command line. The launched steps are in `launched.py`. While the leader is away, a call waits,
and is sent again when the leader is back: the leader knows calls by their numbers.
"""

import asyncio
import os
import socket
import stat
from collections.abc import Callable, Mapping
from typing import Any

from nodectl import __version__
from nodectl.client.command import Failed
from nodectl.cluster.agent.common_files import CommonFiles
from nodectl.cluster.agent.hello import Hello
from nodectl.cluster.agent.launched import LaunchedSteps
from nodectl.cluster.agent.one_node import why_not
from nodectl.cluster.agent.post import Header, Post
from nodectl.cluster.agent.sinks import is_null
from nodectl.cluster.agent.views import Views
from nodectl.cluster.agent.visitor import Visitor
from nodectl.cluster.agent.visitors_step import LOOKED_AT, VisitorsStep
from nodectl.cluster.agent.watch import Watch
from nodectl.cluster.tree import LEADER
from nodectl.model.cpu_list import parse_cpulist
from nodectl.model.wire import framing, peer_process
from nodectl.model.wire.dispatch import STANDARD, Call, Refused, Service, error_reply, invalid, withdrawn
from nodectl.model.wire.names import NODE

_BACKLOG = 512
_MOST_VISITORS = 1024
_STREAMS = 3
_PAUSE = 0.1  # seconds, when no descriptor is left for a connection


class _Pending:
    """A call without the leader's answer. `files`: replace the streams of a launch."""

    __slots__ = ("call", "fds", "files", "header", "visitor")

    def __init__(self, visitor: Visitor, call: Call, fds: list[int], header: Header, files: CommonFiles | None) -> None:
        self.files = files
        self.visitor = visitor
        self.call = call
        self.fds = fds
        self.header = header


class Gateway:
    """The gateway at `path`, in a directory of the user's alone.

    `node`: the socket of the own node's daemon; `count`: the number of nodes.
    """

    def __init__(
        self, post: Post, path: str, node: str, launched: LaunchedSteps, views: Views, hello: Hello, count: int,
        visitors_step: VisitorsStep,
    ) -> None:  # fmt: skip
        self._post = post
        self._path = path
        self._node = node
        self._hello = hello
        self._launched = launched
        self._views = views
        self._count = count
        self._loop = asyncio.get_running_loop()
        self._standard = Service(__version__, {f"{NODE}.Hello": ({}, _none)})
        self._visitors: dict[Visitor, framing.Peer] = {}
        self._visitors_step = visitors_step
        self._looking: set[asyncio.Task[None]] = set()
        self._pending: dict[int, _Pending] = {}
        self._number = 0
        launched.expect(lambda: any(pending.fds for pending in self._pending.values()))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._arrivals = Watch(self._listener.fileno(), self._accept)
        self._later: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Open the socket for commands. Raises OSError."""
        new = f"{self._path}.new"
        self._listener.bind(new)
        os.chmod(new, 0o600)
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        os.rename(new, self._path)
        self._arrivals.want()

    def handlers(self) -> Mapping[str, Callable[[int, Header, bytes], None]]:
        """Return the handlers by kind of message."""
        return {"reply": self._reply}

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # the client has gone
        except OSError:
            self._arrivals.want(False)
            self._later = self._loop.call_later(_PAUSE, self._arrivals.want)
            return
        peer = peer_process.accepted(sock)  # first of all: the process may end
        if peer.uid != os.geteuid() or len(self._visitors) >= _MOST_VISITORS:
            peer.let_go()
            sock.close()
            return
        visitor = Visitor(sock, self._take, self._leave, self._withdraw)
        self._visitors[visitor] = peer

    def _leave(self, visitor: Visitor) -> None:
        """Hang up the pending calls of a disconnected client."""
        self._visitors.pop(visitor).let_go()
        for number, pending in list(self._pending.items()):
            if pending.visitor is visitor:
                self._post.send(LEADER, "hang_up", {"id": number})

    def _withdraw(self, visitor: Visitor) -> None:
        """Withdraw a client's launch; the leader knows whether the step has begun."""
        for number, pending in self._pending.items():
            if pending.visitor is visitor:
                self._post.send(LEADER, "withdraw", {"id": number})

    def _take(self, visitor: Visitor, message: Mapping[str, Any], fds: list[int]) -> None:
        """Handle a client's call; each client has a single call at a time.

        The function that answers closes the descriptors.
        """
        try:
            call = Call(message, framing.Peer(0, os.geteuid(), os.getegid()))
            interface, _, method = call.method.rpartition(".")
            if interface == STANDARD:
                framing.close(fds)
                visitor.answer({"parameters": self._standard.find(call)(call)}, oneway=call.oneway)
                return
            if interface != NODE:
                raise Refused(f"{STANDARD}.InterfaceNotFound", f"no interface {interface[:128]}")
            if not isinstance(call.parameters, dict):
                raise invalid("parameters", "not an object")
            if method == "Hello":
                framing.close(fds)
                visitor.answer({"parameters": self._hello.answer()}, oneway=call.oneway)
                return
            if method == "Withdraw":  # too late: the launch has been answered
                framing.close(fds)
                visitor.answer({"parameters": {}}, oneway=call.oneway)
                return
            if why := why_not(method, self._node):
                raise Refused("InvalidRequest", why, parameter="method")
            if method in LOOKED_AT:
                peer = self._visitors[visitor]
                task = asyncio.ensure_future(self._ask_within_limits(visitor, peer, call, method, fds))
                self._looking.add(task)
                task.add_done_callback(self._looking.discard)
                return
            self._ask_leader(visitor, call, method, fds)
        except Refused as refused:
            framing.close(fds)
            visitor.answer(error_reply(refused))

    async def _ask_within_limits(
        self, visitor: Visitor, peer: framing.Peer, call: Call, method: str, fds: list[int]
    ) -> None:
        """Pass a call to the leader, if the visitor's confined step permits the call. The visitor may have gone."""
        try:
            if visitor not in self._visitors:
                framing.close(fds)
                return  # the client has gone, and its pidfd
            call.parameters = dict(await self._visitors_step.held(peer, method, call.parameters))
            if visitor not in self._visitors:
                framing.close(fds)
                return  # the client has gone
            if visitor.withdraws:
                raise withdrawn()
            self._ask_leader(visitor, call, method, fds)
        except Failed as failed:
            framing.close(fds)
            why = f"its node does not tell what the caller is: {failed}"
            visitor.answer(error_reply(Refused("LaunchRefused", why, exit_status=1)))
        except Refused as refused:
            framing.close(fds)
            visitor.answer(error_reply(refused))
        except BaseException:  # a bug here, or the agent ends: the visitor must not wait for ever
            framing.close(fds)
            visitor.close()
            raise
        finally:
            if visitor not in self._visitors:
                peer.let_go()

    def _ask_leader(self, visitor: Visitor, call: Call, method: str, fds: list[int]) -> None:
        if fds and (method != "Launch" or len(fds) != _STREAMS):
            raise invalid("request", f"comes with {len(fds)} descriptors, in a cluster three come with Launch only")
        parameters, files = call.parameters, None
        if fds and isinstance(request := parameters.get("request"), dict):
            if "pty" in request and not stat.S_ISSOCK(os.fstat(fds[0]).st_mode):
                raise invalid("pty", "what comes along is no socket for its terminal")
            files = CommonFiles(_without_input(request, fds[0]))
            parameters = {**parameters, "request": files.request}
        self._number += 1
        header = {"id": self._number, "method": method, "parameters": parameters, "streams": bool(fds)}
        call.parameters = parameters
        self._pending[self._number] = _Pending(visitor, call, fds, header, files)
        try:
            self._post.send(LEADER, "call", header)
        except ValueError as error:  # too long for a message
            del self._pending[self._number]
            raise Refused("TooLarge", str(error)) from None

    def ask_again(self) -> None:
        """Repeat the pending calls to a leader back again, or to a new leader."""
        for pending in self._pending.values():
            self._post.send(LEADER, "call", pending.header)
        for number, pending in self._pending.items():
            if pending.visitor not in self._visitors:
                self._post.send(LEADER, "hang_up", {"id": number})
            elif pending.visitor.withdraws:
                self._post.send(LEADER, "withdraw", {"id": number})

    def _reply(self, sender: int, header: Header, body: bytes) -> None:
        pending = self._pending.pop(int(header["id"]), None)
        if pending is None:
            return  # answered twice, the second time by a restarted leader
        parameters = header.get("parameters") or {}
        if "error" in header:
            name = str(header["error"])
            framing.close(pending.fds)
            answer = {"error": name if "." in name else f"{NODE}.{name}", "parameters": parameters}
            pending.visitor.answer(answer, oneway=pending.call.oneway)
        elif pending.fds:
            self._launch(pending, dict(parameters))
        elif pending.header["method"] == "View":
            self._view(pending, parameters)
        else:
            pending.visitor.answer({"parameters": parameters}, oneway=pending.call.oneway)

    def _launch(self, pending: _Pending, parameters: dict[str, Any]) -> None:
        """Answer a launch with the client's pipes. If the client has gone meanwhile, the step ends."""
        ranks = parameters.pop("ranks", None)
        ranks = range(self._count) if ranks is None else ranks if isinstance(ranks, list) else parse_cpulist(ranks)
        request = pending.call.parameters["request"]
        stdin, bulk = request.get("stdin", "all"), bool(request.get("bulk"))
        reads = not bulk and (stdin == "all" or str(stdin).isdecimal())
        key = int(parameters["job"]), int(parameters["step"])
        try:
            if pending.files is not None:
                pending.files.open_into(pending.fds, key)
            theirs = self._launched.add(key, pending.fds, list(ranks), reads=reads, bulk=bulk, pty="pty" in request)
        except (OSError, ValueError, LookupError) as error:
            framing.close(pending.fds)
            self._launched.decline(key)
            why = f"step {key[0]}.{key[1]}: {_why(error)}"
            pending.visitor.answer(error_reply(Refused("LaunchRefused", why, exit_status=1)))
            return
        pending.visitor.answer({"parameters": parameters}, theirs)

    def _view(self, pending: _Pending, parameters: Mapping[str, Any]) -> None:
        """Ask the step's nodes, named by the leader, to show the step."""

        def answer(reply: Mapping[str, Any], fds: list[int]) -> None:
            if "parameters" in reply and "error" not in reply:
                reply = {"parameters": {"ntasks": parameters["ntasks"], **reply["parameters"]}}
            pending.visitor.answer(reply, fds)

        key = pending.header["parameters"]["job"], pending.header["parameters"]["step"]
        try:
            self._views.open(key, sorted(parse_cpulist(parameters["ranks"])), answer)
        except OSError as error:
            pending.visitor.answer(error_reply(Refused("LaunchRefused", str(error.strerror), exit_status=1)))

    def close(self) -> None:
        """Close the socket and all connections."""
        if self._later is not None:
            self._later.cancel()
        self._arrivals.want(False)
        self._listener.close()
        for task in self._looking:
            task.cancel()
        for visitor in list(self._visitors):
            visitor.close()


def _without_input(request: Mapping[str, Any], stdin: int) -> Mapping[str, Any]:
    """Return the request with stdin "none" where the client's stdin is /dev/null, to spare the nodes an empty input."""
    if "pty" in request:
        return request
    if request.get("stdin") in (None, "all") and is_null(os.fstat(stdin)):
        return {**request, "stdin": "none"}
    return request


def _why(error: Exception) -> str:
    """Return the reason of a failure caused by a user's file pattern or by a limit."""
    if isinstance(error, OSError):
        return f"open file {error.filename!r}: {error.strerror}" if error.filename else str(error.strerror)
    return f"a file for its streams: {error.args[0] if error.args else error!r}"


def _none(call: Call) -> None:
    """Never called: Hello is answered elsewhere."""
