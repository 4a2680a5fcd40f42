"""The holder: the process left behind by `nodectl cluster start`. Holds the agents' standard input open.

The holder also keeps the processes that run the agents: srun, or one ssh a host. When the holder ends, for whatever
reason, the agents' input ends, and the agents end too.

Run as the user, in a session of its own, without a terminal.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from typing import NoReturn

from nodectl.cluster.agent.place import AGENT
from nodectl.cluster.engine import program
from nodectl.cluster.engine.engine import Engine, Nodes, NoEngine, begin
from nodectl.cluster.start import words
from nodectl.cluster.start.place import HoldersPlace
from nodectl.cluster.start.streams import Streams
from nodectl.cluster.start.words import BadWords
from nodectl.cluster.succession.directory import JobDirectory
from nodectl.kernel import signals
from nodectl.model.wire import lean_json

_LONGEST_LINE = 4096  # of a message of an agent to people
_MOST_LOGGED = 1 << 20
_END_SECONDS = 10.0  # for the agents to end; after that for each harder attempt
_BACKLOG = 8
_MOST_VISITORS = 8
_NAP = 0.05


class Holder:
    """The keeper of a cluster's agents.

    `secret` is the secret by which agents prove themselves. `told` is the pipe to the starter: a line for each event.
    Until all agents have joined, the end of that pipe ends the cluster.
    """

    def __init__(self, engine: Engine, nodes: Nodes, secret: bytes, place: HoldersPlace, told: int) -> None:
        self._engine = engine
        self._nodes = nodes
        self._secret = secret
        self._place = place
        self._told = told
        self._streams: list[Streams] = []
        self._joined: set[int] = set()
        self._failed: dict[str, str] = {}
        self._leader = ""
        self._logged = 0
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._visitors: list[socket.socket] = []
        self._ending = False

    def run(self, agent: Sequence[str]) -> None:
        """Start the agents with the command `agent`, serve until the end, and clean up."""
        self._listener.bind(self._place.socket)
        self._listener.listen(_BACKLOG)
        has_died = False
        try:
            self._begin(agent)
            while not self._ending and self._has_nodes():
                self._turn(None)
            has_died = not self._ending
        finally:
            self._end()
            if has_died:
                self._sweep()
            self._place.remove()
            JobDirectory.of(self._nodes.job, self._secret).remove()  # if the agents share it with us

    def _has_nodes(self) -> bool:
        """True if a process keeps the agent of a node. Agents of guests do not count."""
        return any(not one.over and one.ranks[0] < len(self._nodes.names) for one in self._streams)

    def _begin(self, agent: Sequence[str]) -> None:
        agents = self._engine.start(self._nodes, agent)
        for rank, _ in enumerate(self._nodes.guests, len(self._nodes.names)):  # this machine
            own = {AGENT: self._nodes.variable(rank), **self._nodes.environment()}
            agents.append(begin(agent, {**os.environ, **own}, (rank,)))
        self._streams = [Streams(one) for one in agents]
        for streams in self._streams:
            streams.write(f"{self._secret.hex()}\n".encode())

    def _turn(self, seconds: float | None) -> None:
        """Wait for events, at most `seconds`, and handle the events."""
        running = [streams for streams in self._streams if not streams.over]
        ready = self._wait(running, seconds)
        for streams in running:
            streams.write()
            has_ended = streams.pidfd in ready
            for fd in streams.reads:
                if has_ended or fd in ready:
                    self._hear(streams, fd)
            if has_ended:
                self._bury(streams)
        if self._told in ready:
            self._starter_gone()
        if self._listener.fileno() in ready:
            self._welcome()
        for visitor in [one for one in self._visitors if one.fileno() in ready]:
            self._serve(visitor)

    def _wait(self, running: Sequence[Streams], seconds: float | None) -> set[int]:
        poll = select.poll()
        for streams in running:
            for fd in (streams.pidfd, *streams.reads):
                poll.register(fd, select.POLLIN)
            if streams.writes:
                poll.register(streams.stdin, select.POLLOUT)
        poll.register(self._listener, select.POLLIN)
        if self._told >= 0:
            poll.register(self._told, 0)  # only the end of the other side
        for visitor in self._visitors:
            poll.register(visitor, 0 if self._ending else select.POLLIN)
        return {fd for fd, _ in poll.poll(None if seconds is None else seconds * 1000)}

    # Agents.

    def _hear(self, streams: Streams, fd: int) -> None:
        try:
            for line in streams.read(fd):
                said = words.read(line) if fd == streams.stdout else None
                if said is None:
                    streams.last_said = line.rstrip()  # ssh ends lines as terminals want it
                    self._log(streams.last_said)
                else:
                    self._take(said, streams)
        except BadWords as error:
            self._log(f"from an agent: {error}")

    def _take(self, said: words.Joined | words.Failed | words.Leader, streams: Streams) -> None:
        names = self._nodes.members
        if isinstance(said, words.Leader):
            self._leader = said.line
            for one in self._streams:
                one.write(f"{said.line}\n".encode())
        elif isinstance(said, words.Failed):
            name = said.name or names[streams.ranks[0]]
            self._failed[name] = said.why
            self._log(f"node {name}: {said.why}")
            self._tell({"failed": name, "why": said.why})
        elif said.rank < len(names):
            self._joined.add(said.rank)
            self._tell({"joined": names[said.rank], "alone": said.is_alone})

    def _bury(self, streams: Streams) -> None:
        """Handle the end of a process, which for a single host is also the end of the host's agent."""
        streams.bury()
        if len(streams.ranks) > 1:
            return
        (rank,) = streams.ranks
        name = self._nodes.members[rank]
        if not self._ending and rank not in self._joined and name not in self._failed:
            why = self._engine.why(name, streams.last_said) if streams.last_said else "its agent has ended"
            self._take(words.Failed(name, why), streams)

    def _log(self, line: str) -> None:
        self._tell({"said": line[:_LONGEST_LINE]})
        if self._logged < _MOST_LOGGED:
            with contextlib.suppress(OSError):  # a full disk ends no cluster
                self._logged += os.write(2, f"{line[:_LONGEST_LINE]}\n".encode("utf-8", "replace"))

    # The starter.

    def _tell(self, said: Mapping[str, object]) -> None:
        if self._told >= 0:
            try:
                os.write(self._told, lean_json.dumps(said).encode("ascii") + b"\n")
            except OSError:
                self._starter_gone()

    def _starter_gone(self) -> None:
        os.close(self._told)
        self._told = -1
        if not self._joined.issuperset(range(len(self._nodes.names))):
            self._ending = True

    # Other commands of the user's on this machine.

    def _welcome(self) -> None:
        try:
            visitor, _ = self._listener.accept()
        except OSError:
            time.sleep(_NAP)  # the visitor has gone; or no descriptor is left, and the visitor waits
            return
        if len(self._visitors) >= _MOST_VISITORS:
            visitor.close()
        else:
            self._visitors.append(visitor)

    def _serve(self, visitor: socket.socket) -> None:
        """Handle a request on the socket: `stop` or `status`.

        `stop`: the connection closes when nothing is left of the cluster. `status`: a line of JSON.
        """
        try:
            asked = visitor.recv(64, socket.MSG_DONTWAIT).strip()
            if asked == b"status":
                visitor.send(lean_json.dumps(self._status()).encode("ascii") + b"\n", socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            asked = b""
        if asked == b"stop":
            self._ending = True
        else:
            self._visitors.remove(visitor)
            visitor.close()

    def _status(self) -> Mapping[str, object]:
        names = self._nodes.names
        return {
            "job": self._nodes.job,
            "nodes": [*names],
            "joined": [name for rank, name in enumerate(names) if rank in self._joined],
            "failed": self._failed,
        }

    # The end.

    def _end(self) -> None:
        """Close the agents' input, then cancel and kill the remaining processes."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._ending = True
        for streams in self._streams:
            streams.close()
        for harder in (None, self._cancel, self._kill):
            if harder is not None and not all(one.over for one in self._streams):
                harder()
            self._turn_until_over()

    def _turn_until_over(self) -> None:
        until = time.monotonic() + _END_SECONDS
        while (left := until - time.monotonic()) > 0 and not all(one.over for one in self._streams):
            self._turn(min(left, 0.2))

    def _sweep(self) -> None:
        """Run the sweeper on all nodes after srun has died.

        Slurm then kills the agents, perhaps before they have removed their files. Engines with `kills` false need no
        sweeper.
        """
        if not self._engine.kills or not self._joined.issuperset(range(len(self._nodes.names))):
            return
        try:
            agents = self._engine.start(self._nodes, program.sweeper())
        except NoEngine as error:
            self._log(str(error))
            return
        self._streams = [Streams(one) for one in agents]
        self._turn_until_over()
        self._end()

    def _cancel(self) -> None:
        self._engine.cancel(self._nodes)

    def _kill(self) -> None:
        for streams in self._streams:
            if not streams.over:
                signals.send_child(streams.process.pid, signals.KILL)


def become(holder: Holder, agent: Sequence[str]) -> NoReturn:
    """Turn this child of the starter into the holder."""
    status = 1
    try:
        os.setsid()
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _leave)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each host takes four descriptors
        holder.run(agent)
        status = 0
    except (NoEngine, OSError) as error:
        os.write(2, f"{error}\n".encode())
    finally:
        os._exit(status)


def _leave(_number: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
    raise SystemExit(1)
