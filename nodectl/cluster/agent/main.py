"""The agent of a node: a process of the user's, for the lifetime of the allocation.

The engine starts it and holds its standard input: the first line is the secret, the second the leader's addresses; at
the end of standard input the agent ends. To its standard output it writes lines: `leader HOST:PORT ...`, which is that
second line, from rank 0; `joined RANK`, with `alone` where it shares no disk with rank 0; `failed NODE WHY`. Exit
status: 0 when it was told to end, 1 when it could not begin or the other agents have given it up. Where the root of the
tree is lost it may become the root, and start the leader.
"""

import asyncio
import contextlib
import gc
import os
import resource
import signal
import stat
import sys
from collections.abc import Sequence

from nodectl.client.command import Failed
from nodectl.cluster.agent import addresses, directory, place
from nodectl.cluster.agent.calls import Calls
from nodectl.cluster.agent.exchange import Exchange
from nodectl.cluster.agent.gateway import Gateway
from nodectl.cluster.agent.hello import Hello
from nodectl.cluster.agent.launched import LaunchedSteps
from nodectl.cluster.agent.leadership import Leadership
from nodectl.cluster.agent.node import OwnNode
from nodectl.cluster.agent.parts import Parts
from nodectl.cluster.agent.place import Place
from nodectl.cluster.agent.post import Header
from nodectl.cluster.agent.service import NoService, Service, find
from nodectl.cluster.agent.views import Views
from nodectl.cluster.agent.visitors_step import VisitorsStep
from nodectl.cluster.link import tls
from nodectl.cluster.machine import described, given
from nodectl.cluster.mesh.mesh import Mesh, NotJoined
from nodectl.cluster.start import place as holders_place
from nodectl.kernel import signals
from nodectl.launch.cgroup.constraints import wants_cgroups
from nodectl.model.config import Config, ConfigError, own_node
from nodectl.model.cpu_list import cpus_of
from nodectl.placement.machine import detected_devices, topology
from nodectl.service.config_file.reader import load

_LONGEST_LINE = 1 << 16
_SHORTEST_SECRET = 16  # bytes
_GARBAGE = 5000  # objects: one collection covers those of many steps


def main() -> int:
    """Run the agent's process and return the exit status."""
    if os.geteuid() == 0:
        print("nodectl agent: root has the service on each node; agents are for everybody else", file=sys.stderr)
        return 1
    signals.put_off()  # until the loop handles them, so that the directory is removed
    os.umask(0o077)
    tls.ignore_names_of_strangers()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        where = place.of(os.environ)
        own = directory.take(where.directory)
    except Failed as failed:
        print(f"failed {os.environ.get('SLURMD_NODENAME') or '-'} {failed}", flush=True)
        print(f"nodectl agent: {failed}", file=sys.stderr)
        return 1
    if sys.version_info < (3, 12):  # later versions do so by themselves
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())  # else a thread waits for each child, and `copier` forks
    try:
        return asyncio.run(signals.until_end(Agent(where, own.path).run()))
    finally:
        own.remove()
        holders_place.sweep(where.job)


class Agent:
    """The agent's process. `path`: the agent's directory."""

    def __init__(self, where: Place, path: str) -> None:
        self._place = where
        self._path = path
        self._over = asyncio.Event()
        self._status = 0
        self._all_end = False
        self._steps_by = ""
        self._leadership: Leadership | None = None

    async def run(self) -> int:
        """Run until the agent must end; return the exit status."""
        self._admit_signals()
        service = await self._service()
        node = service or OwnNode(self._path)
        starting = asyncio.create_task(node.start())
        mesh: Mesh | None = None
        try:
            lines = await _standard_input()
            secret = await _secret(lines)
            config = _config() if service is None else service.config
            mesh = Mesh(self._place.rank, self._place.members, secret, said=self._said(service, config))
            self._leadership = leadership = Leadership(mesh, secret, self._place, self._path, self._say, self._give_up)
            work = Work(mesh, self._place, self._path, node.socket, config, service)
            mesh.on_lost(self._lost)
            mesh.handle("end", lambda *_: self._over.set())
            await starting
            await self._meet(mesh, lines, leadership)
            work.open()
            gc.collect()
            gc.freeze()  # the present objects are permanent
            gc.set_threshold(_GARBAGE)
            print("joined", self._place.rank, *(["alone"] if leadership.why_not else []), flush=True)
            watching = asyncio.create_task(self._until_end_of(lines))
            await self._over.wait()
            watching.cancel()
            await leadership.stop()
            await work.close()
        except (Failed, NotJoined, OSError) as error:
            self._fail(str(error))
        finally:
            if not starting.done():
                starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await node.end()
            if self._leadership is not None:
                await self._leadership.end(is_last=self._all_end)
            if mesh is not None:
                await mesh.close()
        return self._status

    def _admit_signals(self) -> None:
        """End the agent at a signal, including a signal already pending."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._over.set)
        signals.admit()

    async def _service(self) -> Service | None:
        """Return the machine's service, where the service runs parts of this job."""
        if self._place.is_guest:
            return None
        try:
            service = await find(self._place.job)
        except NoService as why:
            self._steps_by = f"a node of their user: {why}"
            return None
        self._steps_by = service.said
        return service

    def _said(self, service: Service | None, config: Config) -> dict[str, object]:
        """Return the description of this machine for the leader. The service gives out no devices of the machine."""
        if self._place.is_guest:
            return {}
        allowed = os.sched_getaffinity(0)
        if service is not None:
            allowed &= set(cpus_of(service.cpus))
        machine = topology.read(allowed=allowed)
        devices = detected_devices.of(config.gres) if service is None else None
        told = described(given(machine, os.environ, self._place.rank, devices))
        return {"machine": told, "steps_by": self._steps_by}

    async def _meet(self, mesh: Mesh, lines: asyncio.StreamReader, leadership: Leadership) -> None:
        """Join the tree by way of rank 0. Raises Failed, NotJoined, OSError."""
        if self._place.rank == 0:
            by_ssh = os.environ.get("SSH_CONNECTION", "").partition(" ")[0]
            hosts = addresses.own(os.environ.get("SLURM_LAUNCH_NODE_IPADDR") or by_ssh)
            at = await mesh.listen(hosts)
            print("leader", *map(addresses.written, at), flush=True)
            leadership.begin(at)
        line = (await lines.readline()).decode("ascii", "replace").split()
        if self._place.rank == 0:
            return
        try:
            at = [addresses.read(word) for word in line if word != "leader"]
        except ValueError as error:
            raise Failed(str(error)) from None
        if not at:
            raise Failed("the place of the leader is unknown")
        await mesh.join(at)
        leadership.follow()

    async def _until_end_of(self, lines: asyncio.StreamReader) -> None:
        while await lines.readline():
            pass
        self._all_end = not self._over.is_set()
        self._over.set()

    def _lost(self, rank: int, why: str) -> None:
        if rank == self._place.rank:
            more = f"; {self._leadership.why_not}" if self._leadership and self._leadership.why_not else ""
            self._give_up(f"the others have given it up: {why}{more}")

    def _give_up(self, why: str) -> None:
        self._fail(why)
        self._over.set()

    def _fail(self, why: str) -> None:
        self._status = 1
        with contextlib.suppress(OSError):
            print("failed", self._place.name, " ".join(why.split()), flush=True)
        self._say(why)

    def _say(self, line: str) -> None:
        print(f"nodectl agent of {self._place.name}: {line}", file=sys.stderr, flush=True)


class Work:
    """The work of a joined agent: parts of steps, and the gateway.

    `node`: the socket of the own node's daemon; `service` replaces it.
    """

    def __init__(
        self, mesh: Mesh, where: Place, path: str, node: str, config: Config, service: Service | None = None
    ) -> None:
        self._names = where.members
        if service is not None:
            node = service.socket
        self._service = service
        self._calls = Calls(node)
        socket = f"{path}/nodectl.sock"
        self._exchange = Exchange(mesh, f"{path}/mpi.sock")
        self._parts = Parts(mesh, where.name, self._calls, socket, self._exchange)
        self._launched = LaunchedSteps(mesh)
        self._hello = hello = Hello(where.name, where.job, len(where.names), config)
        self._views = Views(mesh, self._calls)
        step_of = VisitorsStep(self._calls, hello.level, has_cgroups=wants_cgroups(config))
        self._gateway = Gateway(mesh, socket, node, self._launched, self._views, hello, len(where.names), step_of)
        for part in (self._parts, self._exchange, self._launched, self._views, self._gateway):
            for kind, handler in part.handlers().items():
                mesh.handle(kind, handler)
        mesh.handle("leader", self._led)
        mesh.on_lost(self._lost)
        mesh.on_resumed(self._resumed)

    def open(self) -> None:
        """Open the sockets. Raises OSError."""
        self._exchange.open()
        self._gateway.open()

    def _lost(self, rank: int, why: str) -> None:
        self._parts.lost(rank)
        lost = f"node {self._names[rank]} was lost: {why}"
        self._launched.lost(rank, lost)
        self._views.lost(rank, lost)
        self._hello.lost(rank)

    def _resumed(self, rank: int) -> None:
        self._parts.resumed(rank)
        self._exchange.resumed(rank)
        self._launched.resumed(rank)
        self._views.resumed(rank)

    def _led(self, sender: int, header: Header, body: bytes) -> None:
        """Report everything to a leader which may have missed messages."""
        self._parts.tell_all(sender, header, body)
        self._launched.ask_again()
        self._gateway.ask_again()

    async def close(self) -> None:
        """Close the gateway and end the parts; with a service, wait for the end of the parts."""
        self._gateway.close()
        self._launched.close()
        self._views.close()
        self._parts.close()
        if self._service is not None:
            with contextlib.suppress(TimeoutError):  # then the parts end with this process
                async with asyncio.timeout(place.kill_wait(os.environ)):
                    await self._parts.over()
        self._exchange.close()
        self._calls.close()


def _config() -> Config:
    """Return the configuration of the user's own node. Raises Failed."""
    try:
        return load(own_node.configuration(), must_exist=False)
    except ConfigError as error:
        raise Failed(str(error)) from None


async def _standard_input() -> asyncio.StreamReader:
    """Return a reader of standard input. Raises Failed."""
    kind = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        raise Failed("its standard input is to be a pipe: an agent is started by `nodectl cluster start`")
    reader = asyncio.StreamReader(_LONGEST_LINE)
    stdin = os.fdopen(os.dup(0), "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stdin)
    return reader


async def _secret(lines: asyncio.StreamReader) -> bytes:
    """Read the secret. Raises Failed."""
    try:
        secret = bytes.fromhex((await lines.readline()).decode("ascii").strip())
    except ValueError:
        secret = b""
    if len(secret) < _SHORTEST_SECRET:
        raise Failed("the first line of its standard input is to be the secret")
    return secret


__all__: Sequence[str] = ("main",)
