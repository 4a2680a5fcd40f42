"""Points of a job in line, by Slurm's multifactor formula. Values only, in the daemon and in planning commands.

Age grows alike for all jobs, so that the order of one user's jobs can be kept: they differ in their `standing` and in
when they became eligible.
"""

from __future__ import annotations

from typing import NamedTuple

from nodectl.scheduler.policy import Policy, Qos
from nodectl.selection.records import JobRecord


class Points(NamedTuple):
    """The parts of a priority; `nice` is subtracted. `direct`: an administrator's value in place of the sum, or 0."""

    age: float
    fairshare: float
    job_size: float
    qos: float
    nice: int
    direct: int


class Priority:
    """The formula of the points. `cpus`: the CPUs of the machine."""

    def __init__(self, policy: Policy, cpus: int) -> None:
        self._policy = policy
        self._cpus = max(cpus, 1)
        self._most_qos = max((one.priority for one in policy.qos.values()), default=0)

    def standing(self, job: JobRecord) -> float:
        """Return the points for size and quality of service, less niceness: the part unchanged while the job waits."""
        return self._job_size(job) - job.nice + self._qos(job)

    def points(self, job: JobRecord, factor: float, now: float) -> Points:
        """Return all parts of the job's points. `factor`: the fair share of the job's user."""
        age = self.age(job.eligible_time or now, now)
        return Points(age, self.share(factor), self._job_size(job), self._qos(job), job.nice, job.direct_priority)

    def _job_size(self, job: JobRecord) -> float:
        size = min(job.details.min_cpus / self._cpus, 1.0)
        return self._policy.priority_weight_job_size * (1.0 - size if self._policy.priority_favor_small else size)

    def _qos(self, job: JobRecord) -> float:
        if not self._most_qos:
            return 0.0
        own = self._policy.qos.get(job.qos, Qos(job.qos)).priority
        return self._policy.priority_weight_qos * own / self._most_qos

    def age(self, eligible: float, now: float) -> float:
        """Return the points for the time waited."""
        policy = self._policy
        return policy.priority_weight_age * min(max(now - eligible, 0.0) / policy.priority_max_age, 1.0)

    @property
    def per_second(self) -> float:
        """The points for each second of waiting."""
        return self._policy.priority_weight_age / self._policy.priority_max_age

    @property
    def most_age(self) -> float:
        """The most points for waiting."""
        return float(self._policy.priority_weight_age)

    def share(self, factor: float) -> float:
        """Return the points for a user's fair-share factor."""
        return self._policy.priority_weight_fairshare * factor
