"""Limits for each user at a time, in all and by quality of service. In the daemon and in planning commands.

Root has no limits. A limit that a quality of service sets goes before the one of the keys.
"""

from __future__ import annotations

from nodectl.model.device_part import MEMORY, SHARD, counted
from nodectl.model.reasons import USER_LIMITS
from nodectl.model.value_class import dataclass, names
from nodectl.model.words import count_words
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.scheduler.policy import Policy, UserLimits
from nodectl.selection.records import JobRecord, JobResources

_NAMES = {"jobs": ("running job", ""), "cpus": ("CPU", ""), "memory": ("MiB", "MiB"), "devices": ("device", "")}


@dataclass(slots=True)
class Demand:
    """The amounts taken by a job from the user's limits."""

    jobs: int = 1
    cpus: int = 0
    memory: int = 0
    devices: int = 0
    gpus: int = 0  # among the devices


_NOTHING = Demand(0)


def asked(job: JobRecord) -> Demand:
    """Return the demand by the job's request; the job may be given more, as whole cores."""
    details = job.details
    nodes = max(details.min_nodes, 1)
    memory = details.pn_min_memory * nodes or details.mem_per_cpu * details.min_cpus
    if not details.gres:  # a round asks for each waiting job
        return Demand(1, details.min_cpus, memory)
    gpus = counted({name: number for name, number in details.gres.items() if is_gpu(name)})
    return Demand(1, details.min_cpus, memory, counted(details.gres) * nodes, gpus * nodes)


def given(resources: JobResources) -> Demand:
    """Return the demand of resources held."""
    keys = [key for devices in resources.gres.values() for key in devices]
    return Demand(1, resources.ncpus, sum(resources.memory.values()), len(keys), sum(map(is_gpu, keys)))


def is_gpu(name: str) -> bool:
    """True for a kind of devices, a key of one, or a kind of parts: gpu, gpu:0, shard. A part counts as one GPU."""
    return name.partition(":")[0] in ("gpu", SHARD, MEMORY)


@dataclass(frozen=True, slots=True)
class Block:
    """The reason for which a job does not start.

    `reason`: Slurm's word. `words`: one sentence. `help`: what would change it. `kind`: that of the plugin's refusal,
    "" where the plugin was not asked. `until`: when it ends by itself at the latest, 0 where that is unknown.
    """

    reason: str
    words: str
    help: str = ""
    kind: str = ""
    until: float = 0.0


@dataclass(slots=True)
class _Use:
    jobs: int = 0
    cpus: int = 0
    memory: int = 0
    devices: int = 0
    submitted: int = 0

    def add(self, demand: Demand, sign: int) -> None:
        self.jobs += sign
        self.cpus += sign * demand.cpus
        self.memory += sign * demand.memory
        self.devices += sign * demand.devices


class Accounts:
    """The present use of all users, compared with the limits."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._use: dict[tuple[int, str], _Use] = {}  # by user and quality of service; "" for all of them
        self._charged: dict[int, tuple[str, Demand]] = {}
        self._submitted: dict[int, str] = {}
        limits = (policy.limits, *(one.limits for one in policy.qos.values()))
        self.has_limits = any(getattr(one, name) for one in limits for name in _NAMES)

    def submitted(self, job: JobRecord) -> None:
        """Count a job as submitted."""
        if job.job_id not in self._submitted:
            self._submitted[job.job_id] = job.qos
            for use in self._uses(job.user_id, job.qos):
                use.submitted += 1

    def gone(self, job: JobRecord) -> None:
        """Stop counting a job, which has left the queue."""
        self.stopped(job)
        qos = self._submitted.pop(job.job_id, None)
        if qos is not None:
            for use in self._uses(job.user_id, qos):
                use.submitted -= 1
            self._tidy(job.user_id, qos)

    def started(self, job: JobRecord) -> None:
        """Charge the job's resources: the job holds resources, or has given all away and ends."""
        self._charge(job, Demand() if job.job_resrcs is None else given(job.job_resrcs))

    def promised(self, job: JobRecord, resources: JobResources) -> None:
        """Charge the job for resources promised to it, until `stopped`: victims are making room."""
        self._charge(job, given(resources))

    def _charge(self, job: JobRecord, demand: Demand) -> None:
        if job.job_id not in self._charged:
            self._charged[job.job_id] = (job.qos, demand)
            for use in self._uses(job.user_id, job.qos):
                use.add(demand, 1)

    def stopped(self, job: JobRecord) -> None:
        """Stop charging the job's resources."""
        charged = self._charged.pop(job.job_id, None)
        if charged is not None:
            for use in self._uses(job.user_id, charged[0]):
                use.add(charged[1], -1)

    def admit(self, job: JobRecord) -> None:
        """Check the user's limits for a new job.

        Raises NotAdmitted for too many jobs, or for more than the user may ever have.
        """
        if not job.user_id:
            return
        for use, limits, whose in self._limits(job):
            if limits.submitted and use.submitted >= limits.submitted:
                raise NotAdmitted(
                    f"{job.user_name} has {count_words(use.submitted, 'job')} waiting or running, {limits.submitted} "
                    f"is the most{whose} ({USER_LIMITS['submitted']})"
                )
        self.admit_demand(job, asked(job), "asks for")

    def admit_demand(self, job: JobRecord, demand: Demand, verb: str) -> None:
        """Check the demand. Raises NotAdmitted for more than the user may ever have."""
        for _, limits, whose in self._limits(job) if self.has_limits and job.user_id else ():
            for name in ("cpus", "memory", "devices"):
                most, wanted = getattr(limits, name), getattr(demand, name)
                if most and wanted > most:
                    raise NotAdmitted(
                        f"the job {verb} {count_words(wanted, *_NAMES[name])}, {most} is the most for one user{whose} "
                        f"({USER_LIMITS[name]})"
                    )

    def block(self, job: JobRecord, demand: Demand) -> Block | None:
        """Return the reason for which a job with this demand cannot start now, or None.

        Resources promised to the job itself do not count against it.
        """
        if not self.has_limits or not job.user_id:
            return None
        _, own = self._charged.get(job.job_id, ("", _NOTHING))
        for use, limits, whose in self._limits(job):
            for name, nouns in _NAMES.items():
                most, others = getattr(limits, name), getattr(use, name) - getattr(own, name)
                if most and others + getattr(demand, name) > most:
                    has = count_words(others, *nouns)
                    where = "" if name == "jobs" else " in running jobs"
                    words = f"{job.user_name} has {has}{where}, {most} is the most for one user{whose}"
                    when = f"it can start when other jobs of {job.user_name} have ended"
                    return Block(USER_LIMITS[name], words, when)
        return None

    def leaves(self, job: JobRecord, demand: Demand, other: JobRecord, wanted: Demand) -> bool:
        """True where the user could still have `wanted` for the second job if `job` had `demand`."""
        uses = self._uses(job.user_id, job.qos)
        for use in uses:
            use.add(demand, 1)
        try:
            return self.block(other, wanted) is None
        finally:
            for use in uses:
                use.add(demand, -1)

    def users(self) -> int:
        """Return the number of users with jobs."""
        return len({user for user, _ in self._use})

    def _uses(self, user: int, qos: str) -> tuple[_Use, _Use]:
        return self._of((user, "")), self._of((user, qos))

    def _of(self, key: tuple[int, str]) -> _Use:
        found = self._use.get(key)
        if found is None:
            found = self._use[key] = _Use()
        return found

    def _tidy(self, user: int, qos: str) -> None:
        for key in ((user, ""), (user, qos)):
            if key in self._use and not self._use[key].submitted:
                del self._use[key]

    def _limits(self, job: JobRecord) -> list[tuple[_Use, UserLimits, str]]:
        """Return the limits for the job: the ones set by the quality of service, and for the rest the keys."""
        general, own = self._uses(job.user_id, job.qos)
        qos = self._policy.qos.get(job.qos)
        if qos is None or qos.limits == UserLimits():
            return [(general, self._policy.limits, "")]
        rest = {name: 0 if getattr(qos.limits, name) else getattr(self._policy.limits, name)
                for name in names(UserLimits)}  # fmt: skip
        return [(own, qos.limits, f" in quality of service {qos.name}"), (general, UserLimits(**rest), "")]
