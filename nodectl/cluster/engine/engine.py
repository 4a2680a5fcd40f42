"""The interface of an engine: name the nodes of the allocation, start and cancel agents, report on nodes and agents."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from subprocess import Popen
from typing import NamedTuple, Protocol

from nodectl.cluster.agent.place import GUESTS


class NoEngine(Exception):
    """Raised where an engine cannot do a call; str() is a single line."""


class Nodes(NamedTuple):
    """The nodes of an allocation: names by rank, and the number of the job.

    `guests` are machines outside the nodes: an agent there has a gateway, and runs nothing.
    """

    job: int
    names: tuple[str, ...]
    guests: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[str, ...]:
        """The names of all ranks."""
        return self.names + self.guests

    def environment(self) -> dict[str, str]:
        """Return the variables for every agent; read by `nodectl/cluster/agent/place.py`."""
        return {GUESTS: ",".join(self.guests)} if self.guests else {}

    def variable(self, rank: int) -> str:
        """Return the variable for an agent not started by srun."""
        return f"{self.job} {rank} {','.join(self.names)}"


class Agents(NamedTuple):
    """A started process: srun for all nodes, or ssh for a single node.

    The pipes are this process's ends of its standard streams, which the agents of all of its ranks share.
    """

    process: Popen[bytes]
    ranks: Sequence[int]
    stdin: int
    stdout: int
    stderr: int


def begin(words: Sequence[str], environment: Mapping[str, str], ranks: Sequence[int]) -> Agents:
    """Start a process for agents. Raises NoEngine."""
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
    """The source of nodes.

    `kills`: where the started process dies, agents are killed with all their processes, and leave their directories.
    """

    name: str
    kills: bool

    def nodes(self) -> Nodes:
        """Return the nodes of the allocation. Raises NoEngine."""

    def start(self, nodes: Nodes, words: Sequence[str]) -> list[Agents]:
        """Run this command on each of the nodes, with pipes for the standard streams. Raises NoEngine."""

    def cancel(self, nodes: Nodes) -> None:
        """End all agents of the job, even if started by a different process, where the engine can do so."""

    def states(self, nodes: Nodes) -> Mapping[str, str]:
        """Return the unusable nodes with the reasons, as far as known."""

    def why(self, name: str, said: str) -> str:
        """Return why a node has no agent, from the last message of the node's process, and the remedy."""

    def runs(self, nodes: Nodes) -> bool:
        """Return whether the job has agents, even if started by a different process, where the engine can tell."""
