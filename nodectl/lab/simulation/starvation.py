"""The bound on waiting, checked at every start of a play.

After `max_wait` the oldest waiting job of a user has a turn and goes before all others; the user's next turn comes a
`max_wait` later. Turns are served in their order, and each within the longest limit of a job, for nothing new starts
where the first in line needs room. So a job waits no longer than (O + 1) x (max_wait + U x L), where O older jobs of
its user started while it waited, U is the number of users, and L the longest limit.
"""

from __future__ import annotations

from collections.abc import Callable

from nodectl.lab.simulation.submission import BEGINNING
from nodectl.scheduler.policy import Policy
from nodectl.selection.records import JobRecord

STARVED = "starved"


class Starvation:
    """The checker of the bound on waiting. Checks only while the bound is known.

    The bound is known if every job has a limit, limits of users or arrays hold no job back, nothing is preempted, and
    all nodes stay up.
    """

    def __init__(
        self, policy: Policy, broken: Callable[[float, str, tuple[int, ...], str], None], slack: float
    ) -> None:
        self._slack = slack  # the time that the end of a job takes
        self._max_wait = policy.max_wait
        self._broken = broken
        self._longest = 0.0
        self._is_on = bool(policy.max_wait) and not any(one.preempt for one in policy.qos.values())
        limits = [policy.limits, *(one.limits for one in policy.qos.values())]
        self._is_on &= not any(one.jobs or one.cpus or one.memory or one.devices for one in limits)
        self._starts: dict[int, list[tuple[float, float]]] = {}  # by user: when, and since when it had waited
        self.longest_wait = 0.0

    def off(self) -> None:
        """Stop the checks after an event outside the bound's assumptions."""
        self._is_on = False

    def started(self, job: JobRecord, now: float) -> None:
        """Check the wait of a starting job."""
        since = (job.eligible_time or job.submit_time or BEGINNING + now) - BEGINNING
        self._longest = max(self._longest, float(job.time_limit or 1e15))
        starts = self._starts.setdefault(job.user_id, [])
        wait = now - since
        self.longest_wait = max(self.longest_wait, wait)
        if self._is_on and not job.array_limit and wait > self._max_wait:
            older = sum(begun >= since and waited <= since for begun, waited in starts)
            bound = (older + 1) * (self._max_wait + len(self._starts) * (self._longest + self._slack))
            if wait > bound:
                words = f"job {job.job_id} waited {wait:.0f} s, no more than {bound:.0f} s are allowed"
                self._broken(now, STARVED, (job.job_id,), words)
        starts.append((now, since))
