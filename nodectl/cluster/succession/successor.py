"""The successor: a process of an agent cut off from the root of the tree. Finds the epoch to follow.

It looks into the job's directory until it knows the epoch. The disk's server may hang, and the agent does not wait for
it.

Its standard input is a pipe that only the agent holds: a line of JSON, and the end of the pipe ends the process. It
writes the result as a line of JSON: an epoch, or `why` there is none.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from typing import Any

from nodectl.cluster.mesh.roll import Addresses
from nodectl.cluster.mesh.words import addresses_of, number
from nodectl.cluster.succession.directory import LEASE, Epoch, JobDirectory, Still
from nodectl.model.wire import lean_json

PATIENCE = 25.0  # seconds; by then a leader cut off from most nodes has seen their claims
_LOOK = 1.0
_LOOKS = 2  # by then the other nodes have written their claims, too
_LONGEST = 1 << 16


class Successor:
    """The successor of the agent of `rank`, which listens at `at` and speaks for `nodes` nodes. Pure but for the files.

    A guest leads no node: its `nodes` is 0.
    """

    def __init__(self, directory: JobDirectory, epoch: int, rank: int, at: Addresses, nodes: int) -> None:
        self._directory = directory
        self._epoch = epoch
        self._rank = rank
        self._at = at
        self._nodes = nodes
        self._tenure = Still()
        self._others: dict[int, Still] = {}
        self._begun: float | None = None
        self._free = 0

    def look(self, now: float) -> Epoch | str | None:
        """Return the epoch to follow, possibly with the agent as root; the reason for none; or None to look again.
        Raises OSError.
        """
        self._begun = now if self._begun is None else self._begun
        directory = self._directory
        if (later := directory.after(self._epoch)) is not None:
            return later
        if directory.epoch(self._epoch) is None:
            return "the cluster has ended"
        if self._nodes:
            directory.claim(self._epoch, self._rank, self._nodes)
        text, is_over = directory.tenure(self._epoch)
        still = self._tenure.seconds(text, now) >= LEASE
        self._free = self._free + 1 if is_over or still else 0
        if self._free >= _LOOKS and self._nodes and self._is_first(now):
            return directory.take(Epoch(self._epoch + 1, self._rank, self._at))
        if not self._free and now - self._begun >= PATIENCE:
            return "its leader leads on, and cannot be reached from here"
        return None

    def _is_first(self, now: float) -> bool:
        """True if no lower rank misses the root, too, and would lead."""
        for rank, claim in self._directory.claims(self._epoch).items():
            still = self._others.setdefault(rank, Still()).seconds(claim.text, now)
            if rank < self._rank and still < LEASE:
                return False
        return True

    def leave(self) -> None:
        """Withdraw the claim at the end of the process."""
        with contextlib.suppress(OSError):
            self._directory.withdraw(self._epoch, self._rank)


def main() -> int:
    """Run the successor process."""
    told = lean_json.load_object(sys.stdin.buffer.readline(_LONGEST))
    directory = JobDirectory(str(told["directory"]))
    at = addresses_of(told["at"])
    successor = Successor(directory, number(told, "epoch"), number(told, "rank"), at, number(told, "nodes"))
    begun = time.monotonic()
    try:
        while True:
            try:
                found = successor.look(time.monotonic())
            except OSError as error:  # the disk's server may be back soon
                late = time.monotonic() - begun >= PATIENCE
                found = f"{error.filename or directory.path}: {error.strerror}" if late else None
            if found is not None:
                break
            if select.select([0], [], [], _LOOK)[0]:
                return 0
    finally:
        successor.leave()
    words: dict[str, Any] = {"why": found}
    if isinstance(found, Epoch):
        words = {"epoch": found.number, "rank": found.rank, "at": [list(one) for one in found.at]}
    with contextlib.suppress(OSError):
        os.write(1, lean_json.dumps(words).encode("ascii") + b"\n")
    return 0
