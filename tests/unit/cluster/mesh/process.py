"""A member in a process of its own: what it is told it prints, a line of JSON each; what it shall send comes by stdin.

As a program: rank, count, and the root's port or 0; the first line of stdin is the secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from signal import SIGCONT

from nodectl.cluster.mesh.mesh import LEADER, Header, Mesh, NotJoined, Settings

MIB = 1 << 20
# A busy machine is not silent for so long; what is killed is noticed at once.
PATIENT = Settings(width=2, beat=0.2, silence=5.0, grace=2.0, patience=10.0, most_queued=8 * MIB)
MODULE = "unit.cluster.mesh.process"


class Process:
    """The test's side of it."""

    def __init__(self, rank: int, process: asyncio.subprocess.Process) -> None:
        self.rank = rank
        self.process = process
        self.told: list[list[object]] = []
        self.port = 0
        self._news = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            words = json.loads(line)
            self.port = words[1] if words[0] == "port" else self.port
            self.told.append(words)
            self._news.set()

    async def until(self, *words: object, times: int = 1) -> None:
        """Return when the process has told this so many times."""
        while self.told.count(list(words)) < times:
            self._news.clear()
            await self._news.wait()

    def tell(self, to: int, number: int, size: int = 0) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([to, number, size]).encode() + b"\n")

    def heard(self, sender: int) -> list[object]:
        return [words[2] for words in self.told if words[:2] == ["heard", sender]]

    async def end(self) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(SIGCONT)
                self.process.kill()
        await self.process.wait()
        await self._reading


class Processes:
    """A tree of them; the leader is one, too."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.of: dict[int, Process] = {}

    async def begin(self, rank: int) -> Process:
        code = f"import sys; sys.path.append({str(Path(__file__).parents[3])!r}); import {MODULE} as it; it.main()"
        words = [str(rank), str(self.count), str(self.of[0].port if self.of else 0)]
        made = await asyncio.create_subprocess_exec(sys.executable, "-P", "-c", code, *words, stdin=PIPE, stdout=PIPE)
        assert made.stdin is not None
        made.stdin.write(bytes(range(32)).hex().encode() + b"\n")
        self.of[rank] = Process(rank, made)
        return self.of[rank]

    def kill(self, rank: int) -> Process:
        process = self.of.pop(rank)
        process.process.kill()
        return process


@contextlib.asynccontextmanager
async def processes(count: int) -> AsyncIterator[Processes]:
    """All have joined, and the leader knows of all."""
    tree = Processes(count)
    every: list[Process] = []
    try:
        root = await tree.begin(0)
        while not root.port:  # noqa: ASYNC110  # one line is read
            await asyncio.sleep(0.01)
        for rank in [LEADER, *range(1, count)]:
            await tree.begin(rank)
        every = list(tree.of.values())
        for rank in range(count):
            await tree.of[LEADER].until("joined", rank)
        yield tree
    finally:
        for process in {*every, *tree.of.values()}:
            await process.end()


# In the process.


def tell(*words: object) -> None:
    print(json.dumps(words), flush=True)


async def live(rank: int, count: int, port: int) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    secret = bytes.fromhex((await reader.readline()).decode())
    mesh = Mesh(rank, [f"n{number}" for number in range(count)], secret, said={"rank": rank}, settings=PATIENT)

    def hear(sender: int, header: Header, body: bytes) -> None:
        tell("heard", sender, header["number"])

    mesh.handle("word", hear)
    mesh.on_lost(lambda lost, _: tell("lost", lost))
    mesh.on_resumed(lambda resumed: tell("resumed", resumed))
    mesh.on_joined(lambda joined, _: tell("joined", joined))
    if rank == 0:
        tell("port", (await mesh.listen(["127.0.0.1"]))[0][1])
    else:
        try:
            await mesh.join([("127.0.0.1", port)])
        except NotJoined as error:
            tell("refused", str(error))
    while line := await reader.readline():
        to, number, size = json.loads(line)
        mesh.send(to, "word", {"number": number}, bytes(size))
        await mesh.drained(to)
    await mesh.close()


def main() -> None:
    rank, count, port = map(int, sys.argv[1:])
    asyncio.run(live(rank, count, port))
