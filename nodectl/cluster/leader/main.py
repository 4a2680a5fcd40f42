"""The leader's process: reads and writes for the core. The agent at the root of the tree starts and restarts it.

Its standard input is a pipe that only the agent holds: the first line is the secret, the second one a JSON object:
`at`, the addresses of that agent; `job`, the number of the allocation; `names` of its nodes by rank, and of `guests`,
whose ranks follow; `epoch` and `root`, the rank of that agent; `directory`, the job's; `journal`, the path of its
journal where there is no such directory. The process ends at the end of its standard input. Exit status: 0 at the end
of standard input; 1, with a line on standard error, when the process could not begin or the other members of the tree
have given it up; SUPERSEDED when they follow another leader.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nodectl.cluster.leader.chooser import Chooser, configured
from nodectl.cluster.leader.core import Core
from nodectl.cluster.leader.effects import Keep, Send, SendEach
from nodectl.cluster.leader.journal import Entry, InUse, Journal, read
from nodectl.cluster.leader.tenure import Superseded, Tenure
from nodectl.cluster.mesh.mesh import LEADER, Mesh, NotJoined
from nodectl.cluster.succession.directory import RENEWAL, SUPERSEDED, JobDirectory
from nodectl.model.config import ConfigError, own_node
from nodectl.model.wire import lean_json
from nodectl.placement.binding.request import Settings
from nodectl.plugin_host.loader import PluginRefused
from nodectl.service.config_file.reader import load

KINDS = ("call", "hang_up", "withdraw", "begun", "told", "ended", "order", "here", "again", "answer")
_LONGEST_LINE = 16 << 20


def main() -> int:
    """Run the leader's process and return the exit status."""
    try:
        return asyncio.run(_run())
    except Superseded as error:
        _say(str(error))
        return SUPERSEDED
    except (NotJoined, InUse, OSError, ValueError, KeyError, ConfigError, PluginRefused) as error:
        _say(str(error))
        return 1


async def _run() -> int:
    lines = asyncio.StreamReader(_LONGEST_LINE)
    pipe = os.fdopen(0, "rb", buffering=0, closefd=False)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), pipe)
    secret = bytes.fromhex((await lines.readline()).decode("ascii").strip())
    told: Mapping[str, Any] = lean_json.load_object(await lines.readline())
    names: Sequence[str] = told["names"]
    epoch, tenure = int(told.get("epoch", 0)), None
    journal, before = None, []
    directory = JobDirectory(told["directory"]) if told.get("directory") else None
    # A disk that is briefly unavailable is not an empty journal: OSError ends this process, and the agent restarts it.
    if directory is not None and directory.epoch(epoch) is not None:
        tenure = Tenure(directory, epoch)
        tenure.renew((), asyncio.get_running_loop().time())
        journal = Journal(directory.journal(epoch), _say)
        if epoch and not journal.entries:
            before = _predecessors(directory, epoch)
    elif told.get("journal"):
        journal = Journal(told["journal"], _say)
    members = [*names, *told.get("guests", ())]
    mesh = Mesh(LEADER, members, secret, epoch=epoch, root=int(told.get("root", 0)))
    leader = Leader(mesh, int(told["job"]), names, journal, tenure, before)
    if tenure is not None and journal is not None and before and not journal.is_empty:  # empty if the disk is full
        tenure.directory.forget_before(epoch)
    try:
        ended = asyncio.create_task(_end_of(lines))
        leading = asyncio.create_task(_lead(leader, mesh, [(host, port) for host, port in told["at"]]))
        await asyncio.wait([ended, leading], return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            if tenure is not None:
                tenure.end()
            leading.cancel()
        await asyncio.gather(leading, return_exceptions=ended.done())
        return 0 if ended.done() else 1
    finally:
        await mesh.close()
        leader.close()


async def _lead(leader: Leader, mesh: Mesh, at: Sequence[tuple[str, int]]) -> None:
    """Lead until the rest of the tree gives this leader up. Raises NotJoined, Superseded."""
    await mesh.join(at)
    leader.go_on()
    await leader.over


def _predecessors(directory: JobDirectory, epoch: int) -> list[Entry]:
    """Return the journal of the latest leader before this epoch.

    A leader lost at its beginning has kept nothing.
    """
    for earlier in range(epoch - 1, -1, -1):
        if entries := read(directory.journal(earlier)):
            return entries
    return []


async def _end_of(lines: asyncio.StreamReader) -> None:
    while await lines.readline():
        pass


class Leader:
    """The connection between core, journal and mesh, in a single event loop.

    `over` is done when the other members of the tree have given the leader up; it raises Superseded where they follow
    another leader. `before`: the journal entries of an earlier leader on another node.
    """

    def __init__(
        self, mesh: Mesh, job: int, names: Sequence[str], journal: Journal | None, tenure: Tenure | None = None,
        before: Sequence[Entry] = (),
    ) -> None:  # fmt: skip
        self._mesh = mesh
        self._journal = journal
        self._tenure = tenure
        self._there: set[int] = set()
        self._count = len(names)
        self._loop = asyncio.get_running_loop()
        self._wall = time.time() - self._loop.time()  # the clock of records, which does not leap while we live
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._is_drain_due = self._has_complained = False
        self._timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.TimerHandle | None = None
        entries = [] if journal is None else before or journal.entries
        self.core = Core(
            job, names, self._now(), owner=_owner(), chooser=_chooser(), journal=entries,
            tells_job="SLURM_JOB_NODELIST" not in os.environ,
        )  # fmt: skip
        if journal is not None:
            journal.entries = []
            if before:
                journal.rewrite(self.core.entries())
        for kind in KINDS:
            mesh.handle(kind, self._handler(kind))
        mesh.on_joined(self._joined)
        mesh.on_lost(self._lost)
        mesh.on_resumed(lambda rank: self._tell(self.core.resumed, rank))

    def _now(self) -> float:
        return self._wall + self._loop.time()

    def _handler(self, kind: str) -> Any:
        def handle(rank: int, header: Mapping[str, Any], body: bytes) -> None:
            try:
                self.core.received(kind, rank, header, self._now())
            except Exception as error:  # other messages must still be handled
                _say(f"a message {kind!r} of rank {rank} makes no sense: {error!r}")
            self._soon()

        return handle

    def _tell(self, what: Any, *words: object) -> None:
        try:
            what(*words, self._now())
        finally:
            self._soon()

    def _joined(self, rank: int, said: Mapping[str, Any]) -> None:
        if rank < self._count:  # guests do not count
            self._there.add(rank)
        self._tell(self.core.joined, rank, said)

    def go_on(self) -> None:
        """Renew the tenure every RENEWAL seconds, but not while the leader's own agent is silent, perhaps stopped."""
        if self._tenure is None or self.over.done():
            return
        if self._mesh.is_joined:
            if self._journal is not None:
                self._journal.flush()
            self._check(self._tenure.renew, self._there, self._loop.time())
        self._renewal = self._loop.call_later(RENEWAL, self.go_on)

    def _check(self, what: Callable[..., None], *words: object) -> None:
        try:
            what(*words)
        except Superseded as error:
            if not self.over.done():
                self.over.set_exception(error)
        except OSError as error:
            if not self._has_complained:
                self._has_complained = True
                _say(f"{error.filename}: {error.strerror}: other nodes may believe that there is no leader")

    def _lost(self, rank: int, why: str) -> None:
        if rank == LEADER:
            _say(f"the others have given the leader up: {why}")
            if not self.over.done():
                self.over.set_result(None)
            return
        self._there.discard(rank)
        self._tell(self.core.lost, rank, why)

    def _soon(self) -> None:
        """Schedule `_drain`, which answers all messages of this turn of the loop together."""
        if not self._is_drain_due:
            self._is_drain_due = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._is_drain_due = False
        if self._tenure is not None and self._tenure.is_doubtful(self._loop.time()):
            self._check(self._tenure.check)  # this process may have been stopped
        if self.over.done():
            return
        effects = self.core.take()
        kept = [effect for effect in effects if isinstance(effect, Keep)]
        if kept and self._journal is not None:
            self._journal.append([one.entry for one in kept], durable=any(one.durable for one in kept))
            if self._journal.is_long:
                self._journal.rewrite(self.core.entries())
        for effect in effects:
            try:
                if isinstance(effect, Send):
                    self._mesh.send(effect.to, effect.kind, effect.header)
                elif isinstance(effect, SendEach):
                    self._mesh.send_each(effect.kind, effect.common, effect.each)
            except ValueError as error:  # longer than a frame
                self.core.too_long(effect, str(error), self._now())
                self._soon()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        moment = self.core.deadline()
        if moment is not None:
            self._timer = self._loop.call_at(max(moment - self._wall, self._loop.time()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._tell(self.core.tick)

    def close(self) -> None:
        """Stop the timers, and end journal and core."""
        for timer in (self._timer, self._renewal):
            if timer is not None:
                timer.cancel()
        if self._journal is not None:
            self._journal.close()
        self.core.end()


def _owner() -> dict[str, object]:
    """Return the user, uid and gid of this process, as in records."""
    uid, gid = os.getuid(), os.getgid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return {"user": name, "uid": uid, "gid": gid}


def _chooser() -> Chooser:
    """Return the select plugin, with the settings of the user's configuration. Raises ConfigError, PluginRefused."""
    config = load(own_node.configuration(), must_exist=False)
    settings = Settings(
        select_type_parameters=tuple(word.lower() for word in config.select_type_parameters),
        slurmd_parameters=tuple(word.lower() for word in config.slurmd_parameters),
        task_plugin_param=tuple(word.lower() for word in config.task_plugin_param),
        core_spec_count=config.core_spec_count,
    )
    return configured(config, settings, _say)


def _say(line: str) -> None:
    print(f"nodectl leader: {line}", file=sys.stderr, flush=True)
