"""What is said between the holder, which keeps agents, and an agent: a line each.

In the agent's standard input the first line is the secret, in hexadecimal; the second one comes when the agent of rank
0 has said where it listens, and is what that one said. Then nothing comes any more, and at the end of it the agent
ends, with all that it has started. From its standard output, which nobody else may write to:

    leader 10.0.0.1:40001 [fd00::1]:40002     rank 0: others can join there
    joined 1                                  this rank is in the tree, and its door is open
    joined 1 alone                            likewise, and it ends if rank 0 is lost: they share no disk
    failed n2 there is no room in /tmp        this agent cannot go on

What an agent says to people goes to standard error. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

LONGEST = 1 << 16  # bytes of a line
LEADER, JOINED, FAILED, ALONE = "leader", "joined", "failed", "alone"
SERVED = "another agent serves"  # how it says in `failed` that a cluster of its job is there


class BadWords(Exception):
    """The other side does not keep to this; str() is one line."""


class Lines:
    """Whole lines of what comes in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """The lines that are whole now. Raises BadWords."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST:
            self._rest = b""
            raise BadWords("a line without end")
        return [line.decode("utf-8", "replace") for line in lines]


class Joined(NamedTuple):
    """An agent has joined. `is_alone`: nobody could take the place of who leads."""

    rank: int
    is_alone: bool = False


class Failed(NamedTuple):
    """An agent cannot go on. It may not know its node's name."""

    name: str
    why: str


class Leader(NamedTuple):
    """The line that goes to all agents."""

    line: str


def read(line: str) -> Joined | Failed | Leader | None:
    """What an agent has said on its standard output; None for what is none of this. Raises BadWords."""
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
