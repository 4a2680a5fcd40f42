"""The claim of a leader in the job's directory, visible to all nodes, and the check of the claim."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from nodectl.cluster.succession.directory import LEASE, JobDirectory, Still


class Superseded(Exception):
    """Raised where the nodes follow another leader, or are about to; str() is a single line."""


class Tenure:
    """The tenure of a leader, for an epoch."""

    def __init__(self, directory: JobDirectory, epoch: int) -> None:
        self.directory = directory
        self._epoch = epoch
        self._claims: dict[int, Still] = {}
        self._begun: float | None = None
        self._renewed = 0.0

    def renew(self, there: Collection[int], now: float) -> None:
        """Renew the claim to lead, with the ranks in reach. Raises Superseded, OSError.

        Where more nodes miss this leader than reach it, this leader is the one that is cut off: it ends the tenure and
        raises Superseded.
        """
        self.check()
        self._begun = now if self._begun is None else self._begun
        missed, reached = 0, len(there)
        for rank, claim in self.directory.claims(self._epoch).items():
            if self._claims.setdefault(rank, Still()).seconds(claim.text, now) < LEASE:
                missed += claim.nodes
                reached -= claim.nodes if rank in there else 0
        if now - self._begun >= LEASE and there and missed > reached:  # by then all reachable nodes have joined
            self.end()
            raise Superseded(f"{missed} nodes cannot reach it, and {max(reached, 0)} can: they go on without it")
        self.directory.renew(self._epoch)
        self._renewed = now

    def check(self) -> None:
        """Raise Superseded where another leader leads. Raises OSError."""
        later = self.directory.after(self._epoch)
        if later is not None:
            raise Superseded(f"rank {later.rank} leads since, in epoch {later.number}")

    def is_doubtful(self, now: float) -> bool:
        """Return whether nodes may have assumed, since the last renewal, an end of this leader."""
        return now - self._renewed > LEASE / 2

    def end(self) -> None:
        """Mark the tenure as ended, so nodes need not wait for the end of the lease."""
        with contextlib.suppress(OSError):
            self.directory.renew(self._epoch, over=True)
