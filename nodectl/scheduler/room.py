"""Cores not to be given away: cores kept for some job, or not free although a plugin may think so.

In the daemon's event loop and in planning commands.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from bitarray import bitarray

from nodectl.model.device_part import FREE, clash, device_of, part_of
from nodectl.model.value_class import dataclass, field
from nodectl.scheduler import preemption
from nodectl.scheduler.book import YEAR, Book
from nodectl.scheduler.decisions import SUSPEND
from nodectl.scheduler.limits import Demand, asked, given
from nodectl.scheduler.reservation import Reservations
from nodectl.selection.records import JobRecord, JobResources

_NOBODY_KNOWS = 300 * 86_400.0


@dataclass(slots=True)
class Shadow:
    """The place kept for the first job in line, and the start by present knowledge.

    `strict`: no other job gets anything of it, however soon that job would end, because the first in line has waited
    too long already. Without `resources` no other job gets anything.
    """

    job: JobRecord
    start: float
    resources: JobResources | None
    strict: bool = False

    @property
    def pool(self) -> str:
        """The reservation for which the shadow holds, "" for jobs outside of all reservations."""
        return self.job.details.reservation

    def touches(self, end: float) -> bool:
        """True where a job running until `end` must keep off."""
        return self.strict or end > self.start


@dataclass(slots=True)
class Claim:
    """Resources to be freed for this job by victims."""

    job: JobRecord
    resources: JobResources
    victims: list[JobRecord] = field(default_factory=list)


class _Promise(NamedTuple):
    job: JobRecord
    resources: JobResources


class Room:
    """The cores kept for jobs. `shadows`: by reservation, see `first`. `claims`: by number of the job."""

    def __init__(self, book: Book, reservations: Reservations) -> None:
        self._book = book
        self._selection = book.selection
        self._reservations = reservations
        self.shadows: dict[str, Shadow] = {}
        self.claims: dict[int, Claim] = {}
        nodes = self._selection.nodes
        self._usable = nodes.core_bitmap({node.index: node.config.usable & ~node.reserved_cpus for node in nodes})
        self._threads = max((core.mask.bit_count() for node in nodes for core in node.config.cores), default=1)

    @property
    def is_shared(self) -> bool:
        """True where taken cores can be given to another job."""
        return self._selection.parameters.share_count > 1

    def first(self, job: JobRecord) -> Shadow | None:
        """Return the shadow of the first in line in this job's pool.

        None once some room was freed, until the line was looked at: until then no shadow counts.
        """
        return None if self._book.freed else self.shadows.get(job.details.reservation)

    def _ahead(self, job: JobRecord) -> Shadow | None:
        """Return the shadow to be respected by this job, or None.

        None for a job for which others have made room. The shadow was respected before they did, and since then the
        first in line may only have been promised what these jobs have left.
        """
        shadow = self.first(job)
        return None if shadow is None or shadow.job is job or job.job_id in self.claims else shadow

    def free_cpus(self) -> int:
        """Return the most CPUs available to a job now."""
        if self.is_shared:
            return int(self._selection.nodes.core_count) * self._threads
        return int((self._usable & ~self._selection.ledger.busy).count()) * self._threads

    def end_of(self, job: JobRecord, start: float) -> float:
        """Return the end of a job started at `start`."""
        if job.time_limit:
            return start + job.time_limit
        return self._reservations.end_of(job) or job.details.deadline or start + YEAR

    def excluded(self, job: JobRecord, now: float) -> bitarray | None:
        """Return the cores withheld from this job if the job starts now, or None."""
        end = self.end_of(job, now)
        found = self.kept(job, now, end)
        claim, shadow = self.claims.get(job.job_id), self._ahead(job)
        if claim is not None:
            found = _with(found, ~claim.resources.core_bitmap)
        if shadow is not None and shadow.resources is not None and shadow.touches(end):
            found = _with(found, shadow.resources.core_bitmap)
        return found

    def kept(self, job: JobRecord, start: float, end: float) -> bitarray | None:
        """Return the cores kept by reservations, claims, and completing or resuming jobs, not for the first in line."""
        found = self._reservations.excluded(job, start, end) if self._reservations.by_name else None
        for claim in self.claims.values():
            if claim.job is not job:
                found = _with(found, claim.resources.core_bitmap)
        for one in self._book.resuming.values():
            if one.job_resrcs is not None and one is not job:
                found = _with(found, one.job_resrcs.core_bitmap)
        sharers = self._selection.parameters.sharers
        for one in self._book.completing.values():
            if one.job_resrcs is not None and min(sharers(job), sharers(one)) <= 1:
                found = _with(found, one.job_resrcs.core_bitmap)
        return found

    def delays(
        self, job: JobRecord, resources: JobResources, now: float, victims: Iterable[JobRecord] = ()
    ) -> bitarray | None:  # fmt: skip
        """Return the nodes on which the job would hold memory or devices promised to the first in line or to a claim.

        All nodes, where the job would hold what the user of the first in line may have. None for no nodes. `victims`
        would make room for this job.
        """
        if self.takes_from_first(job, given(resources)):
            return bitarray("1") * len(self._selection.nodes)
        claims = [claim for claim in self.claims.values() if claim.job is not job]
        shadow = self._ahead(job)
        if shadow is not None and not shadow.touches(self.end_of(job, now)):
            shadow = None
        later = [] if shadow is None else self._promised(shadow, claims, now)
        if not claims and not later:
            return None
        soon, gone = [_Promise(claim.job, claim.resources) for claim in claims], self._gone(victims)
        found = bitarray(len(self._selection.nodes))
        for node in resources.node_bitmap.search(1):
            found[node] = self._takes(job, resources, soon, node, gone)
            if shadow is not None and later:
                found[node] |= self._takes(job, resources, later, node, self._over(shadow, gone))
        return found if found.any() else None

    def _takes(
        self, job: JobRecord, resources: JobResources, promised: list[_Promise], node: int, over: set[JobRecord]
    ) -> bool:
        """True where a node lacks memory, or devices, for `resources` and the promised resources.

        `over`: jobs that hold nothing any more at the time of the promise.
        """
        ledger, there = self._selection.ledger, [one.resources for one in promised]
        wanted, kept = resources.memory.get(node, 0), sum(one.memory.get(node, 0) for one in there)
        if wanted and kept and wanted + kept > ledger.memory_free(node) + preemption.memory(over, node):
            return True
        names = set(map(device_of, resources.gres.get(node, ())))
        names.intersection_update(device_of(key) for one in there for key in one.gres.get(node, ()))
        if not names:
            return False
        loads = ledger.loads(node, over)
        for one in promised:
            for key in one.resources.gres.get(node, ()):
                name = device_of(key)
                loads[name] = loads.get(name, FREE).plus(part_of(key), one.job.user_id)
        keys = [key for key in resources.gres[node] if device_of(key) in names]
        return bool(clash(self._selection.nodes[node].devices, loads, keys, job.user_id))

    def _promised(self, shadow: Shadow, claims: list[Claim], now: float) -> list[_Promise]:
        """Return what is promised to the first in line, and by the other claims still in force at that start."""
        if shadow.resources is None:
            return []
        others = [claim for claim in claims if claim.job is not shadow.job]
        lasting = [_Promise(one.job, one.resources) for one in others if shadow.touches(self.end_of(one.job, now))]
        return [_Promise(shadow.job, shadow.resources), *lasting]

    def _gone(self, victims: Iterable[JobRecord]) -> set[JobRecord]:
        """Return the jobs whose memory will be free: `victims`, and all jobs making room already.

        Suspended jobs keep their memory.
        """
        leaving = chain(victims, *map(self.leaving, self.claims.values()))
        return {one for one in leaving if preemption.way(self._book.policy, one) != SUSPEND}

    def _over(self, shadow: Shadow, gone: set[JobRecord]) -> set[JobRecord]:
        """Return the active jobs that hold nothing any more at the start of the first in line."""
        active = self._book.active.values()
        return {one for one in active if one in gone or not (shadow.strict or one.end_time > shadow.start)}

    def claim(self, claim: Claim) -> None:
        """Keep resources, freed by the victims, for the job of the claim."""
        self.claims[claim.job.job_id] = claim
        self._book.accounts.promised(claim.job, claim.resources)

    def give_up(self, job: JobRecord) -> None:
        """Drop the job's claim."""
        if self.claims.pop(job.job_id, None) is not None:
            self._book.accounts.stopped(job)
            self._book.freed = True

    def leaving(self, claim: Claim) -> list[JobRecord]:
        """Return the victims still holding resources for the claim.

        Victims that stay, or that have gone and run again, are left out.
        """
        active, number = self._book.active, claim.job.job_id
        return [one for one in claim.victims if one.preempted_by == number and active.get(one.job_id) is one]

    def takes_from_first(self, job: JobRecord, demand: Demand) -> bool:
        """True where the first in line has the same user, and could not start any more beside this demand.

        However soon the job would end: a job that cannot start for the time being is not first in line, and has no
        promise.
        """
        shadow, accounts = self._ahead(job), self._book.accounts
        if not accounts.has_limits or shadow is None or shadow.job.user_id != job.user_id:
            return False
        wanted = asked(shadow.job) if shadow.resources is None else given(shadow.resources)
        return not accounts.leaves(job, demand, shadow.job, wanted)

    def is_closed(self, job: JobRecord) -> bool:
        """True where no job starts before the first in line, which has waited too long for an unknown start."""
        shadow = self._ahead(job)
        return shadow is not None and shadow.resources is None

    def shadow_of(self, job: JobRecord, start: float, resources: JobResources | None, now: float) -> Shadow:
        """Make the shadow of the first in line."""
        strict = resources is None or (self._book.line.is_its_turn(job) and start - now > _NOBODY_KNOWS)
        return Shadow(job, start, resources, strict)

    def tidy(self) -> None:
        """Drop places kept for jobs no longer in line, for example a job waiting for another job again."""
        kept = *(claim.job for claim in self.claims.values()), *(shadow.job for shadow in self.shadows.values())
        for job in kept:
            if job not in self._book.line:
                self.forget(job)

    def forget(self, job: JobRecord) -> None:
        """Drop the place and the claim of a job, which started or left the line."""
        self.give_up(job)
        shadow = self.shadows.get(job.details.reservation)
        if shadow is not None and shadow.job is job:
            del self.shadows[job.details.reservation]
            self._book.freed = True


def _with(found: bitarray | None, cores: bitarray) -> bitarray:
    return cores.copy() if found is None else found | cores
