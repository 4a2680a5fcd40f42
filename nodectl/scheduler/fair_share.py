"""Recent use of each user: CPU seconds, counting half after each half-life.

An account is a value and the time at which it was right. While jobs run, a formula computes its growth, so that no code
has to add to it. Values only, in the daemon and in planning commands.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from nodectl.model.value_class import dataclass

_FORGOTTEN = 0.5
"""CPU seconds that are not worth a row."""


@dataclass(slots=True)
class _Account:
    used: float
    at: float
    cpus: int = 0


class FairShare:
    """The recent use of all users.

    `half_life` in seconds, 0 for use that counts for ever. `rows`: user, CPU seconds, and the time at which they were
    right.
    """

    def __init__(self, half_life: float, rows: Iterable[Sequence[float]] = ()) -> None:
        self._half_life = half_life
        self._accounts = {
            int(user): _Account(used, at) for user, used, at in rows if math.isfinite(used) and math.isfinite(at)
        }

    def used(self, user: int, now: float) -> float:
        """Return a user's CPU seconds, decayed to now."""
        account = self._accounts.get(user)
        return 0.0 if account is None else self._grown(account, now)

    def begin(self, user: int, cpus: int, now: float) -> None:
        """Count the CPUs of a user's job from now on."""
        account = self._accounts.get(user)
        if account is None:
            account = self._accounts[user] = _Account(0.0, now)
        self._settle(account, now)
        account.cpus += cpus

    def end(self, user: int, cpus: int, now: float) -> None:
        """Stop counting the CPUs of a user's job."""
        account = self._accounts.get(user)
        if account is not None:
            self._settle(account, now)
            account.cpus = max(0, account.cpus - cpus)

    def clock_set(self, by: float) -> None:
        """Move the times of all accounts, because the clock was set by `by` seconds."""
        for account in self._accounts.values():
            account.at += by

    def since(self, user: int, started: float, now: float) -> float:
        """Return the time from which a job begun at `started` is not accounted for yet, after a restart."""
        account = self._accounts.get(user)
        return min(started if account is None else max(started, account.at), now)

    def factors(self, users: Iterable[int], now: float) -> dict[int, float]:
        """Return each user's factor by Slurm's classic formula: 2^-(part of all use x number of users).

        1 for a user without use, down to 0.
        """
        used = {user: self._grown(account, now) for user, account in self._accounts.items()}
        wanted = set(users)
        total = sum(used.values())
        if total <= _FORGOTTEN:
            return dict.fromkeys(wanted, 1.0)
        count = len(wanted | {user for user, seconds in used.items() if seconds > _FORGOTTEN})
        return {user: 2.0 ** -min(used.get(user, 0.0) / total * count, 1000.0) for user in wanted}

    def rows(self, now: float) -> list[tuple[int, float, float]]:
        """Return all accounts as of now. Accounts too small to count are dropped, here and in memory."""
        rows = [(user, self._grown(account, now), now) for user, account in self._accounts.items()]
        for user, used, _ in rows:
            if used <= _FORGOTTEN and not self._accounts[user].cpus:
                del self._accounts[user]
        return [row for row in rows if row[1] > _FORGOTTEN]

    def _settle(self, account: _Account, now: float) -> None:
        account.used = self._grown(account, now)
        account.at = now

    def _grown(self, account: _Account, now: float) -> float:
        seconds = now - account.at
        if seconds <= 0:  # the clock was set back
            return account.used
        if not self._half_life:
            return account.used + account.cpus * seconds
        left = math.exp2(-seconds / self._half_life)
        return account.used * left + account.cpus * self._half_life / math.log(2) * (1 - left)
