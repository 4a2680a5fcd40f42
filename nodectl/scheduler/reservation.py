"""Reservations: cores kept for users in a span of time. In the daemon's event loop and in planning commands."""

from __future__ import annotations

import math
import string
import time
from collections.abc import Iterable

from bitarray import bitarray

from nodectl.model.states import RESERVATION
from nodectl.model.words import duration, moment
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.scheduler.limits import Block, given, is_gpu
from nodectl.selection.answers import Refusal
from nodectl.selection.cores import cores_of
from nodectl.selection.host import Selection
from nodectl.selection.records import JobRecord, ReservationRequest

_NAME = frozenset(string.ascii_letters + string.digits + "_-.")
_MOST = 1000
_DAY = 86_400
REPEATS = {"DAILY": 1, "WEEKDAY": 1, "WEEKLY": 7}
"""Flags of reservations that come again after so many days; WEEKDAY from Monday to Friday."""
_CYCLE = 8 * _DAY  # two that come again meet within a week, or never; a day more, for clocks that change


class Reservations:
    """The reservations by name. `has_changed` drops expired reservations."""

    def __init__(self, selection: Selection, made: Iterable[ReservationRequest]) -> None:
        self._selection = selection
        self._gpus = sum(is_gpu(device.key) for node in selection.nodes for device in node.devices)
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
            if _meet(one, request):
                busy |= self._cores[name]
        for job in active:
            if job.job_resrcs is not None and max(job.end_time, now) > request.start_time:
                busy |= job.job_resrcs.core_bitmap
        try:
            wanted = [nodes.by_name[name].index for name in request.node_list.split(",") if name]
        except KeyError as error:
            raise NotAdmitted(f"Invalid node name specified: {error.args[0]}", "node name") from None
        self._admit_gpus(request, active, now)
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

    def _admit_gpus(self, request: ReservationRequest, active: Iterable[JobRecord], now: float) -> None:
        if not request.gpus:
            return
        others = sum(one.gpus for one in self.by_name.values() if _meet(one, request))
        busy = sum(_gpus(job) for job in active if max(job.end_time, now) > request.start_time)
        if request.gpus + others + busy > self._gpus:
            raise NotAdmitted(
                f"there are {self._gpus} GPUs, and in this time other reservations keep {others} and running jobs may "
                f"use {busy}"
            )

    def block_gpus(self, job: JobRecord, gpus: int, active: Iterable[JobRecord], now: float) -> Block | None:
        """Return the reason for which a job with GPUs would take those of a reservation that is not its own, or None.

        Counts only: which GPUs stay free is not fixed.
        """
        if not gpus or not any(one.gpus for one in self.by_name.values()):
            return None
        end = now + job.time_limit if job.time_limit else math.inf
        keeping = [one for name in self.overlapping(job, now, end) if (one := self.by_name[name]).gpus]
        if not keeping:
            return None
        names = {one.name for one in keeping}
        begin = min(occurrence(one, now)[0] for one in keeping)
        busy = sum(
            _gpus(one) for one in active if one.details.reservation not in names and max(one.end_time, now) > begin
        )
        kept = sum(one.gpus for one in keeping)
        if busy + gpus + kept <= self._gpus:
            return None
        words = f"of {self._gpus} GPUs, reservation {', '.join(sorted(names))} keeps {kept} and other jobs use {busy}"
        help_ = f"a time limit that ends before {moment(begin)}" if begin > now else ""
        return Block(RESERVATION, words, help_, until=max(occurrence(one, now)[1] for one in keeping))

    def delete(self, name: str) -> None:
        """Delete a reservation. Raises KeyError."""
        del self.by_name[name]
        del self._cores[name]

    def has_changed(self, now: float) -> bool:
        """True where a reservation has begun or ended since the last call.

        Drops expired reservations, and moves the times of those that come again.
        """
        over = [name for name, one in self.by_name.items() if one.end_time <= now]
        for name in over:
            one = self.by_name[name]
            if repeat_of(one):
                one.start_time, one.end_time = occurrence(one, now)
            else:
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
            if name != job.details.reservation and _overlaps(one, start, end)
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
        repeat = repeat_of(request)
        if repeat and request.end_time - request.start_time > REPEATS[repeat] * _DAY:
            raise NotAdmitted("Invalid time specified: a reservation ends before it comes again")
        request.start_time, request.end_time = occurrence(request, now)

    def _keep(self, one: ReservationRequest) -> None:
        nodes = self._selection.nodes
        held = {nodes.by_name[name].index: mask for name, mask in one.held.items() if name in nodes.by_name}
        self.by_name[one.name] = one
        self._cores[one.name] = nodes.core_bitmap(held)


def _gpus(job: JobRecord) -> int:
    return 0 if job.job_resrcs is None else given(job.job_resrcs).gpus


def repeat_of(one: ReservationRequest) -> str:
    """Return the flag by which a reservation comes again, or ""."""
    return next((flag for flag in one.flags if flag in REPEATS), "")


def occurrence(one: ReservationRequest, after: float) -> tuple[float, float]:
    """Return begin and end of the first occurrence that ends after this time, at the same times of the local clock."""
    repeat = repeat_of(one)
    days = 0
    if repeat and one.end_time <= after:
        days = max(0, int((after - one.end_time) // _DAY) - 1)
        days -= days % REPEATS[repeat]
    while True:
        start, end = _later(one.start_time, days), _later(one.end_time, days)
        is_on = repeat != "WEEKDAY" or time.localtime(start).tm_wday < 5
        if not repeat or (is_on and end > after):
            return start, end
        days += REPEATS[repeat]


def _later(at: float, days: int) -> float:
    if not days:
        return at
    day = time.localtime(at)
    return time.mktime((*day[:2], day.tm_mday + days, *day[3:6], 0, 0, -1)) + at % 1


def _overlaps(one: ReservationRequest, start: float, end: float) -> bool:
    """True where any occurrence of the reservation is in this span."""
    begin, over = occurrence(one, start)
    return begin < end and start < over


def _meet(one: ReservationRequest, other: ReservationRequest) -> bool:
    if not repeat_of(one):
        return _overlaps(other, one.start_time, one.end_time)
    if not repeat_of(other):
        return _overlaps(one, other.start_time, other.end_time)
    at = begin = max(one.start_time, other.start_time)
    while at < begin + _CYCLE:
        start, end = occurrence(one, at)
        if _overlaps(other, start, end):
            return True
        at = end
    return False
