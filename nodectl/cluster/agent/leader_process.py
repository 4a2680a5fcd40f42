"""The leader as a child of the agent at the tree's root, and the restart of a dead or silent leader.

A silent leader may have been stopped by a signal. It is not restarted when the other agents follow another leader; it
ends with the agent.

Its standard input is a pipe that only the agent holds. The first line is the secret, the second one a JSON object: the
addresses of the agent, the job, the names of all nodes and of guests, the epoch and its root, that agent; the path of
its journal, and the job's directory, or "". The leader ends at the end of its standard input.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping

from nodectl.cluster.agent.place import Place
from nodectl.cluster.succession.directory import SUPERSEDED, Epoch
from nodectl.kernel import signals
from nodectl.model.wire import lean_json

_START = "import sys; sys.path[:0] = {path!r}; from nodectl.cluster.leader import main; sys.exit(main.main())"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 10.0
_SOON = 10.0  # after a shorter life of a leader, the next start is delayed
_ENDING = 5.0
_LOOK, _MOST_LOOKS = 1.0, 30  # seconds; counted, since a clock would go on while this process is stopped


class LeaderProcess:
    """The leader's process.

    `say` gets a line for the agent's log; `is_there`: whether the mesh has a way to the leader; `superseded` is called
    when the other agents follow another leader.
    """

    def __init__(
        self,
        secret: bytes,
        epoch: Epoch,
        where: Place,
        memory: Mapping[str, str],
        say: Callable[[str], None],
        is_there: Callable[[], bool],
        superseded: Callable[[], None],
    ) -> None:
        told = {
            "at": [list(one) for one in epoch.at], "job": where.job, "names": list(where.names),
            "guests": list(where.guests), "epoch": epoch.number, "root": epoch.rank, **memory,
        }  # fmt: skip
        self._words = f"{secret.hex()}\n{lean_json.dumps(told)}\n".encode("ascii")
        self._say = say
        self._is_there = is_there
        self._superseded = superseded
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the leader, and restart after each end."""
        self._keeper = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        pause = 0.0
        while True:
            begun = loop.time()
            try:
                status: object = await self._once()
            except OSError as error:  # no process can be started now
                status = error.strerror
            if status == SUPERSEDED:
                self._superseded()
                return
            pause = _FIRST_PAUSE if loop.time() - begun > _SOON else min(max(_FIRST_PAUSE, 2 * pause), _LONGEST_PAUSE)
            self._say(f"the leader has ended ({status}); another one is started")
            await asyncio.sleep(pause)

    async def _once(self) -> int:
        """Run a leader to the end and return the exit status."""
        code = _START.format(path=[p for p in sys.path if p])
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-c", code,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, start_new_session=True,
            env={**os.environ},
        )  # fmt: skip
        if process.stdin is not None:
            process.stdin.write(self._words)
        unheard = 0
        while True:
            try:
                async with asyncio.timeout(_LOOK):
                    return await process.wait()
            except TimeoutError:
                unheard = 0 if self._is_there() else unheard + 1
            if unheard == _MOST_LOOKS and process.returncode is None:
                self._say("the leader is not heard any more, and is killed")
                signals.send_child(process.pid, signals.KILL)

    async def end(self) -> None:
        """End the leader with the agent."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        process = self._process
        if process is None or process.returncode is not None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_ENDING):
                await process.wait()
        except TimeoutError:
            signals.send_child(process.pid, signals.KILL)
            await process.wait()
