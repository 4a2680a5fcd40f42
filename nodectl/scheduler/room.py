"""Which cores are nobody's to take: those that are kept for somebody, or not free although a plugin may think so.

In the daemon's event loop and in commands that plan.
"""

from __future__ import annotations

from bitarray import bitarray

from nodectl.model.value_class import dataclass, field
from nodectl.scheduler.book import YEAR, Book
from nodectl.scheduler.reservation import Reservations
from nodectl.selection.records import JobRecord, JobResources

_NOBODY_KNOWS = 300 * 86_400.0


@dataclass(slots=True)
class Shadow:
    """What the first in line gets, and when it does by what is known now. `strict`: nobody else is given anything of
    it, however soon they would end, for it has waited too long already; without resources nobody is given anything.
    """

    job: JobRecord
    start: float
    resources: JobResources | None
    strict: bool = False

    @property
    def pool(self) -> str:
        """The reservation for which it holds, "" for jobs outside of all."""
        return self.job.details.reservation

    def touches(self, end: float) -> bool:
        """True where a job that runs until then must keep off."""
        return self.strict or end > self.start


@dataclass(slots=True)
class Claim:
    """Resources that other jobs are giving up for this one."""

    job: JobRecord
    resources: JobResources
    victims: list[JobRecord] = field(default_factory=list)


class Room:
    """`shadows`: by reservation, see `first`. `claims`: by number of the job."""

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
        """True where cores that are taken can be given to another job."""
        return self._selection.parameters.share_count > 1

    def first(self, job: JobRecord) -> Shadow | None:
        """What is kept for the first in line where this job is in line. Nothing known counts once some room was freed,
        until the line was looked at.
        """
        return None if self._book.freed else self.shadows.get(job.details.reservation)

    def free_cpus(self) -> int:
        """No job can be given more than these now."""
        if self.is_shared:
            return int(self._selection.nodes.core_count) * self._threads
        return int((self._usable & ~self._selection.ledger.busy).count()) * self._threads

    def end_of(self, job: JobRecord, start: float) -> float:
        """When a job would end that starts then."""
        if job.time_limit:
            return start + job.time_limit
        return self._reservations.end_of(job) or job.details.deadline or start + YEAR

    def excluded(self, job: JobRecord, now: float) -> bitarray | None:
        """Cores that this job is not offered, were it to start now."""
        end = self.end_of(job, now)
        found = self.kept(job, now, end)
        shadow = self.first(job)
        if shadow is not None and shadow.job is not job and shadow.resources is not None and shadow.touches(end):
            found = _with(found, shadow.resources.core_bitmap)
        return found

    def kept(self, job: JobRecord, start: float, end: float) -> bitarray | None:
        """Without those of the first in line: reservations, claims, jobs that end or want to go on."""
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

    def delays(self, job: JobRecord, resources: JobResources, now: float) -> bitarray | None:
        """The nodes of which this job would hold memory or devices that the first in line needs when it starts."""
        shadow = self.first(job)
        if shadow is None or shadow.job is job or shadow.resources is None:
            return None
        if not shadow.touches(self.end_of(job, now)):
            return None
        found: bitarray | None = None
        for node in shadow.resources.node_bitmap.search(1):
            if self._takes_memory(shadow, resources, node) or set(shadow.resources.gres.get(node, ())).intersection(
                resources.gres.get(node, ())
            ):
                found = bitarray(len(self._selection.nodes)) if found is None else found
                found[node] = 1
        return found

    def _takes_memory(self, shadow: Shadow, resources: JobResources, node: int) -> bool:
        wanted, asked = resources.memory.get(node, 0), 0
        if shadow.resources is not None:
            asked = shadow.resources.memory.get(node, 0)
        record = self._selection.nodes[node]
        if not wanted or not asked or not record.real_memory or not self._selection.parameters.tracks_memory:
            return False
        later = sum(
            one.job_resrcs.memory.get(node, 0)
            for one in self._book.active.values()
            if one.job_resrcs is not None and (shadow.strict or one.end_time > shadow.start)
        )
        return bool(later + asked + wanted > record.real_memory - record.mem_spec_limit)

    def is_closed(self, job: JobRecord) -> bool:
        """True where nobody starts before the first in line, which has waited too long for an unknown start."""
        shadow = self.first(job)
        return shadow is not None and shadow.resources is None and shadow.job is not job

    def shadow_of(self, job: JobRecord, start: float, resources: JobResources | None, now: float) -> Shadow:
        """What is kept for the first in line."""
        strict = resources is None or (self._book.line.is_its_turn(job) and start - now > _NOBODY_KNOWS)
        return Shadow(job, start, resources, strict)

    def forget(self, job: JobRecord) -> None:
        """The job started, or left the line: nothing is kept for it."""
        if self.claims.pop(job.job_id, None) is not None:
            self._book.freed = True
        shadow = self.shadows.get(job.details.reservation)
        if shadow is not None and shadow.job is job:
            del self.shadows[job.details.reservation]
            self._book.freed = True


def _with(found: bitarray | None, cores: bitarray) -> bitarray:
    return cores.copy() if found is None else found | cores
