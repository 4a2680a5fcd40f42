"""The search for a new root: an agent without a root runs a successor process, then follows the root found or leads."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

from nodectl.cluster.mesh.mesh import Mesh
from nodectl.cluster.mesh.words import BadWords, addresses_of, number, text
from nodectl.cluster.succession.directory import Epoch, JobDirectory
from nodectl.kernel import signals
from nodectl.model.wire import lean_json

_START = (
    "import sys; sys.path[:0] = {path!r}; from nodectl.cluster.succession import successor; sys.exit(successor.main())"
)
_PAUSE = 0.5  # seconds before the next successor, after one was killed


class Succession:
    """The succession of an agent.

    `lead` makes the agent the root of an epoch; `fail` ends the agent, with a reason. A guest never leads.
    """

    def __init__(
        self, mesh: Mesh, directory: JobDirectory, lead: Callable[[Epoch], None], fail: Callable[[str], None], *,
        is_guest: bool,
    ) -> None:  # fmt: skip
        self._mesh = mesh
        self._directory = directory
        self._lead = lead
        self._fail = fail
        self._is_guest = is_guest
        self._is_missed = False
        self._process: asyncio.subprocess.Process | None = None
        self._looking: asyncio.Task[None] | None = None
        mesh.on_rootless(self._rootless)

    def _rootless(self, is_missed: bool) -> None:
        self._is_missed = is_missed
        if is_missed and self._looking is None:
            self._looking = asyncio.create_task(self._look())
        elif not is_missed:
            self._let_go()

    def _let_go(self) -> None:
        """End the successor. An epoch which the successor has already begun for this agent still counts."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def _look(self) -> None:
        try:
            while self._is_missed:
                if self._follow(await self._ask()):
                    break
                await asyncio.sleep(_PAUSE)
        finally:
            self._looking = None

    async def _ask(self) -> bytes:
        """Return the successor's answer; empty where the successor was killed or let go."""
        mesh = self._mesh
        told = {
            "directory": self._directory.path, "epoch": mesh.epoch, "rank": mesh.rank,
            "at": [list(one) for one in mesh.addresses], "nodes": 0 if self._is_guest else mesh.nodes,
        }  # fmt: skip
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", "-c", _START.format(path=[entry for entry in sys.path if entry]),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
                env={**os.environ},
            )  # fmt: skip
        except OSError:
            return b""  # no process can be started now
        try:
            if process.stdin is not None and process.stdout is not None:
                process.stdin.write(lean_json.dumps(told).encode("ascii") + b"\n")
                if not self._is_missed:
                    self._let_go()
                return await process.stdout.readline()
            return b""
        finally:
            self._process = None
            if process.returncode is None:
                signals.send_child(process.pid, signals.KILL)
            await process.wait()

    def _follow(self, line: bytes) -> bool:
        """Act on the successor's answer; return False for no effect, as with an epoch already followed."""
        if not line:
            return False
        try:
            said = lean_json.load_object(line)
            if "why" in said:
                if self._is_missed:
                    self._fail(text(said, "why"))
                return True
            epoch = Epoch(number(said, "epoch"), number(said, "rank"), addresses_of(said.get("at")))
        except (lean_json.BadJson, BadWords):
            return False
        before = self._mesh.epoch
        if epoch.rank == self._mesh.rank:
            self._lead(epoch)
        else:
            self._mesh.succeed(epoch.number, epoch.rank, epoch.at)
        return self._mesh.epoch != before

    async def end(self) -> None:
        """Stop looking for a root."""
        self._is_missed = False
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
