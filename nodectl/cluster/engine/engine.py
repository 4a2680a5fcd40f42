"""The four calls: nodes of the allocation, start agents, cancel, what became of nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from subprocess import Popen
from typing import NamedTuple, Protocol

from nodectl.cluster.agent.place import GUESTS


class NoEngine(Exception):
    """It cannot be done; str() is one line."""


class Nodes(NamedTuple):
    """Names by rank, and the number of the job that they are given to. `guests` are machines that are none of them: an
    agent there has a door, and runs nothing.
    """

    job: int
    names: tuple[str, ...]
    guests: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[str, ...]:
        """Of all ranks."""
        return self.names + self.guests

    def environment(self) -> dict[str, str]:
        """What every agent has to know besides; `nodectl/cluster/agent/place.py` reads it."""
        return {GUESTS: ",".join(self.guests)} if self.guests else {}

    def variable(self, rank: int) -> str:
        """What an agent has to know whom no srun has started."""
        return f"{self.job} {rank} {','.join(self.names)}"


class Agents(NamedTuple):
    """A process that was started: srun for all nodes, or ssh for one. The pipes are our ends of its standard streams,
    which are those of the agents of all of its ranks.
    """

    process: Popen[bytes]
    ranks: Sequence[int]
    stdin: int
    stdout: int
    stderr: int


def begin(words: Sequence[str], environment: Mapping[str, str], ranks: Sequence[int]) -> Agents:
    """Starts such a process. Raises NoEngine."""
    pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
    (stdin, ours_in), (ours_out, stdout), (ours_err, stderr) = pipes
    try:
        process = Popen(words, stdin=stdin, stdout=stdout, stderr=stderr, env=environment)
    except OSError as error:
        for fd in (ours_in, ours_out, ours_err):
            os.close(fd)
        raise NoEngine(f"{words[0]}: {error.strerror}") from None
    finally:
        for fd in (stdin, stdout, stderr):
            os.close(fd)
    return Agents(process, ranks, ours_in, ours_out, ours_err)


class Engine(Protocol):
    """Who gives nodes. `kills`: where what was started dies, agents are killed with all that they have started, and
    leave their directories.
    """

    name: str
    kills: bool

    def nodes(self) -> Nodes:
        """Those that we have. Raises NoEngine."""

    def start(self, nodes: Nodes, words: Sequence[str]) -> list[Agents]:
        """Has this command run on each of them, with pipes for its standard streams. Raises NoEngine."""

    def cancel(self, nodes: Nodes) -> None:
        """Ends all agents of the job, whoever has started them, where that can be asked for."""

    def states(self, nodes: Nodes) -> Mapping[str, str]:
        """Nodes that do not serve, and why, as far as it is known."""

    def why(self, name: str, said: str) -> str:
        """Why a node has no agent, by the last thing that its process has said to people, and what to do about it."""

    def runs(self, nodes: Nodes) -> bool:
        """Whether there are agents of the job, whoever has started them, where that can be asked for."""
