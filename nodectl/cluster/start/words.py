"""The lines exchanged between the holder, which keeps agents, and an agent.

The agent's standard input has first the secret, in hexadecimal; the second line comes when the agent of rank 0 has said
where it listens, and repeats its line. Then nothing more comes, and at the end of the input the agent ends, with all
that it has started. The agent's standard output, which no other process may write to:

    leader 10.0.0.1:40001 [fd00::1]:40002     rank 0: others can join there
    joined 1                                  this rank is in the tree, and its gateway is open
    joined 1 alone                            as above, but ends if rank 0 is lost: it shares no disk with rank 0
    failed n2 there is no room in /tmp        this agent cannot go on

An agent's messages to people go to standard error. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

LONGEST = 1 << 16  # bytes of a line
LEADER, JOINED, FAILED, ALONE = "leader", "joined", "failed", "alone"
SERVED = "another agent serves"  # the start of `why` in `failed` when a cluster of the job is there already


class BadWords(Exception):
    """A line in violation of this protocol; str() is a single line."""


class Lines:
    """A buffer for splitting input into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the complete lines. Raises BadWords."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST:
            self._rest = b""
            raise BadWords("a line without end")
        return [line.decode("utf-8", "replace") for line in lines]


class Joined(NamedTuple):
    """An agent after joining. `is_alone`: no node could take the leader's place."""

    rank: int
    is_alone: bool = False


class Failed(NamedTuple):
    """An agent unable to go on. The agent may not know the node's name."""

    name: str
    why: str


class Leader(NamedTuple):
    """The line with the root's addresses, for all agents."""

    line: str


def read(line: str) -> Joined | Failed | Leader | None:
    """Parse a line of an agent's standard output; return None for a line outside the protocol. Raises BadWords."""
    word, _, rest = line.partition(" ")
    if word == LEADER:
        return Leader(line)
    if word == FAILED:
        name, _, why = rest.partition(" ")
        return Failed("" if name == "-" else name, why or "it does not say why")
    if word == JOINED:
        rank, _, more = rest.partition(" ")
        if not rank.isdecimal():
            raise BadWords(f"an agent joined as {rest[:80]!r}")
        return Joined(int(rank), more == ALONE)
    return None
