"""Reservations: cores kept for users in a span of time. In the daemon's event loop and in planning commands."""

from __future__ import annotations

import string
from collections.abc import Iterable

from bitarray import bitarray

from nodectl.model.states import RESERVATION
from nodectl.model.words import duration
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.scheduler.limits import Block
from nodectl.selection.answers import Refusal
from nodectl.selection.cores import cores_of
from nodectl.selection.host import Selection
from nodectl.selection.records import JobRecord, ReservationRequest

_NAME = frozenset(string.ascii_letters + string.digits + "_-.")
_MOST = 1000


class Reservations:
    """The reservations by name. `has_changed` drops expired reservations."""

    def __init__(self, selection: Selection, made: Iterable[ReservationRequest]) -> None:
        self._selection = selection
        self.by_name: dict[str, ReservationRequest] = {}
        self._cores: dict[str, bitarray] = {}
        self._begun: set[str] = set()
        for one in made:
            self._keep(one)

    def make(self, request: ReservationRequest, active: Iterable[JobRecord], now: float) -> ReservationRequest:
        """Make a reservation and write the cores into `held`. Raises NotAdmitted where no reservation can be made."""
        self._check(request, now)
        nodes = self._selection.nodes
        busy = bitarray(nodes.core_count)
        for name, one in self.by_name.items():
            if one.start_time < request.end_time and request.start_time < one.end_time:
                busy |= self._cores[name]
        for job in active:
            if job.job_resrcs is not None and max(job.end_time, now) > request.start_time:
                busy |= job.job_resrcs.core_bitmap
        try:
            wanted = [nodes.by_name[name].index for name in request.node_list.split(",") if name]
        except KeyError as error:
            raise NotAdmitted(f"Invalid node name specified: {error.args[0]}", "node name") from None
        offered = nodes.bitmap(wanted or range(len(nodes)))
        found = self._selection.resv_test(request, offered, busy, now)
        if isinstance(found, Refusal):
            raise NotAdmitted(f"nothing can be reserved for this: {found.reason}")
        cores = cores_of(nodes, found.nodes.search(1)) if found.cores is None else found.cores
        if (cores & busy).any():
            raise NotAdmitted("Requested nodes are busy: running jobs or other reservations have them in this time")
        request.held = {nodes[i].name: nodes.cpu_mask(nodes[i], cores) for i in found.nodes.search(1)}
        request.node_list = ",".join(request.held)
        self._keep(request)
        return request

    def delete(self, name: str) -> None:
        """Delete a reservation. Raises KeyError."""
        del self.by_name[name]
        del self._cores[name]

    def has_changed(self, now: float) -> bool:
        """True where a reservation has begun or ended since the last call. Drops expired reservations."""
        over = [name for name, one in self.by_name.items() if one.end_time <= now]
        for name in over:
            self.delete(name)
        begun = {name for name, one in self.by_name.items() if one.start_time <= now}
        changed = bool(over) or begun != self._begun
        self._begun = begun
        return changed

    def admit(self, job: JobRecord) -> None:
        """Check the job's reservation. Raises NotAdmitted where the job can never run in the reservation."""
        name = job.details.reservation
        if not name:
            return
        one = self.by_name.get(name)
        if one is None:
            raise NotAdmitted(f"Requested reservation is invalid: there is no reservation {name}", "reservation")
        if job.user_id and job.user_name not in one.users:
            raise NotAdmitted(f"Access denied to requested reservation {name}")
        if job.time_limit > one.end_time - one.start_time:
            raise NotAdmitted(
                f"Requested time limit is invalid: reservation {name} is {duration(one.end_time - one.start_time)} long"
            )

    def block(self, job: JobRecord, now: float) -> Block | None:
        """Return the reason for which a job of a reservation cannot run at this time, or None."""
        name = job.details.reservation
        if not name:
            return None
        one = self.by_name.get(name)
        if one is None:
            return Block(RESERVATION, f"reservation {name} is over", "an update of the job to another reservation")
        if now < one.start_time:
            return Block(RESERVATION, f"reservation {name} begins in {duration(round(one.start_time - now))}")
        if job.time_limit and now + job.time_limit > one.end_time:
            left = duration(round(one.end_time - now))
            words = f"reservation {name} ends in {left}, before the job would"
            return Block(RESERVATION, words, f"a time limit of at most {left}")
        return None

    def excluded(self, job: JobRecord, start: float, end: float) -> bitarray | None:
        """Return the cores forbidden to a job running in this span, or None."""
        own = job.details.reservation
        found = ~self._cores[own] if own in self._cores else None
        for name in self.overlapping(job, start, end):
            found = self._cores[name].copy() if found is None else found | self._cores[name]
        return found

    def overlapping(self, job: JobRecord, start: float, end: float) -> list[str]:
        """Return the names of the other reservations in this span."""
        return [
            name for name, one in self.by_name.items()
            if name != job.details.reservation and one.start_time < end and start < one.end_time
        ]  # fmt: skip

    def ends(self, now: float) -> list[float]:
        """Return the future ends of all reservations, in order."""
        return sorted({one.end_time for one in self.by_name.values() if one.end_time > now})

    def next_time(self, now: float) -> float | None:
        """Return the next time at which a reservation begins or ends, or None."""
        times = [at for one in self.by_name.values() for at in (one.start_time, one.end_time) if at > now]
        return min(times, default=None)

    def end_of(self, job: JobRecord) -> float:
        """Return the end of the job's reservation; 0 for a job without a reservation."""
        one = self.by_name.get(job.details.reservation)
        return 0.0 if one is None else one.end_time

    def _check(self, request: ReservationRequest, now: float) -> None:
        name = request.name
        if not name or len(name) > 64 or not _NAME.issuperset(name) or name.startswith("."):
            raise NotAdmitted(f"Invalid reservation name {name[:100]!r}")
        if name in self.by_name:
            raise NotAdmitted(f"Reservation {name} exists already")
        if len(self.by_name) >= _MOST:
            raise NotAdmitted(f"there are {_MOST} reservations already")
        if not request.users:
            raise NotAdmitted("Reservation names no user")
        if not request.start_time < request.end_time or request.end_time <= now:
            raise NotAdmitted("Invalid time specified: a reservation ends after its begin, and after now")

    def _keep(self, one: ReservationRequest) -> None:
        nodes = self._selection.nodes
        held = {nodes.by_name[name].index: mask for name, mask in one.held.items() if name in nodes.by_name}
        self.by_name[one.name] = one
        self._cores[one.name] = nodes.core_bitmap(held)
