"""That this leader leads, as the others see it in the job's directory; and whether it does still."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from nodectl.cluster.succession.directory import LEASE, JobDirectory, Still


class Superseded(Exception):
    """The others follow another leader, or are about to; str() is one line."""


class Tenure:
    """Of the leader of one epoch."""

    def __init__(self, directory: JobDirectory, epoch: int) -> None:
        self.directory = directory
        self._epoch = epoch
        self._claims: dict[int, Still] = {}
        self._begun: float | None = None
        self._renewed = 0.0

    def renew(self, there: Collection[int], now: float) -> None:
        """Says that we lead, with these ranks. Where more nodes miss us than do not, we are the one that is cut off.
        Raises Superseded, OSError.
        """
        self.check()
        self._begun = now if self._begun is None else self._begun
        missed, reached = 0, len(there)
        for rank, claim in self.directory.claims(self._epoch).items():
            if self._claims.setdefault(rank, Still()).seconds(claim.text, now) < LEASE:
                missed += claim.nodes
                reached -= claim.nodes if rank in there else 0
        if now - self._begun >= LEASE and there and missed > reached:  # all who are there have spoken by then
            self.end()
            raise Superseded(f"{missed} nodes cannot reach it, and {max(reached, 0)} can: they go on without it")
        self.directory.renew(self._epoch)
        self._renewed = now

    def check(self) -> None:
        """Raises Superseded where another one leads, OSError."""
        later = self.directory.after(self._epoch)
        if later is not None:
            raise Superseded(f"rank {later.rank} leads since, in epoch {later.number}")

    def is_doubtful(self, now: float) -> bool:
        """Whether others may have come to believe meanwhile that nobody leads."""
        return now - self._renewed > LEASE / 2

    def end(self) -> None:
        """We lead no more, and others need not wait until they see it."""
        with contextlib.suppress(OSError):
            self.directory.renew(self._epoch, over=True)
