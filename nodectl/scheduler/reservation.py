"""Reservations: cores kept for users in a span of time. In the daemon's event loop and in planning commands."""

from __future__ import annotations

import math
import string
import time
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from bitarray import bitarray

from nodectl.model.device_part import FREE, Load, conflict, device_of, part_for
from nodectl.model.reasons import RESERVATION
from nodectl.model.value_class import replace
from nodectl.model.words import duration, moment
from nodectl.placement.binding.devices import of_gres
from nodectl.placement.machine.declared_devices import Device
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.scheduler.limits import Block, is_gpu
from nodectl.selection.answers import Refusal
from nodectl.selection.cores import cores_of
from nodectl.selection.host import Selection
from nodectl.selection.records import JobRecord, ReservationRequest

_NAME = frozenset(string.ascii_letters + string.digits + "_-.")
_MOST = 1000
_DAY = 86_400
REPEATS = {"DAILY": 1, "WEEKDAY": 1, "WEEKLY": 7}
"""Flags of reservations that come again after so many days; WEEKDAY from Monday to Friday."""
_CYCLE = 15 * _DAY  # two that come again meet within a week, or never; twice, as one day lacks an hour of the clock


class _Kept(NamedTuple):
    """What stays free for some reservations: their names, and how many GPUs.

    `busy` is how many GPUs other jobs may have in that time, from `begin` until `over` at the latest; they have parts
    of those in `shared`.
    """

    names: str
    gpus: int
    busy: int
    shared: list[tuple[Device, Load]]
    begin: float
    over: float


class Reservations:
    """The reservations by name, with the times of the present or next occurrence. `has_changed` drops expired ones.

    The record of a reservation, which is also on the disk, has its times as they were asked for. Every occurrence is
    reckoned from these: an occurrence on the day on which clocks change may be at another time of the day.
    """

    def __init__(self, selection: Selection, made: Iterable[ReservationRequest]) -> None:
        self._selection = selection
        self._gpus = sum(is_gpu(device.key) for node in selection.nodes for device in node.devices)
        self.by_name: dict[str, ReservationRequest] = {}
        self._made: dict[str, ReservationRequest] = {}
        self._seen = -math.inf  # `by_name` has the first occurrences that end after this time
        self._cores: dict[str, bitarray] = {}
        self._begun: set[str] = set()
        self._counted: tuple[object, ...] = ()  # for which time and queue the next ones are
        self._keeping: list[tuple[float, str]] = []  # begin and name of those that keep GPUs, in order
        self._kept: dict[tuple[int, str], _Kept | None] = {}
        for one in made:
            self._keep(one)

    def make(self, request: ReservationRequest, active: Iterable[JobRecord], now: float) -> ReservationRequest:
        """Make a reservation and write the cores into `held`. Raises NotAdmitted where no reservation can be made."""
        self._check(request, now)
        start, end = occurrence(request, now)
        first = replace(request, start_time=start, end_time=end)
        nodes = self._selection.nodes
        if request.core_cnt > nodes.core_count:
            raise NotAdmitted(f"there are {nodes.core_count} cores, and {request.core_cnt} are asked for")
        busy = bitarray(nodes.core_count)
        for name, one in self._made.items():
            if _meet(one, request):
                busy |= self._cores[name]
        for job in active:
            if job.job_resrcs is not None and max(job.end_time, now) > start:
                busy |= job.job_resrcs.core_bitmap
        try:
            wanted = [nodes.by_name[name].index for name in request.node_list.split(",") if name]
        except KeyError as error:
            raise NotAdmitted(f"Invalid node name specified: {error.args[0]}", "node name") from None
        self._admit_gpus(request, active, start, now)
        offered = nodes.bitmap(wanted or range(len(nodes)))
        found = self._selection.resv_test(first, offered, busy, now)
        if isinstance(found, Refusal):
            raise NotAdmitted(f"nothing can be reserved for this: {found.reason}")
        cores = cores_of(nodes, found.nodes.search(1)) if found.cores is None else found.cores
        if (cores & busy).any():
            raise NotAdmitted("Requested nodes are busy: running jobs or other reservations have them in this time")
        request.held = {nodes[i].name: nodes.cpu_mask(nodes[i], cores) for i in found.nodes.search(1)}
        request.node_list = ",".join(request.held)
        self._seen = max(self._seen, now)
        self._keep(request)
        return request

    def _admit_gpus(self, request: ReservationRequest, active: Iterable[JobRecord], start: float, now: float) -> None:
        if not request.gpus:
            return
        others = sum(one.gpus for one in self._made.values() if one.gpus and _meet(one, request))
        busy = len(_gpus_of(job for job in active if max(job.end_time, now) > start))
        if request.gpus + others + busy > self._gpus:
            raise NotAdmitted(
                f"there are {self._gpus} GPUs, and in this time other reservations keep {others} and running jobs may "
                f"use {busy}"
            )

    def block_gpus(
        self, job: JobRecord, gpus: int, active: Iterable[JobRecord], now: float, version: int
    ) -> Block | None:
        """Return the reason for which a job with GPUs would take those of a reservation that is not its own, or None.

        Counts only: which GPUs stay free is not fixed. A GPU of which jobs have parts counts once. `version` is the
        queue's: what was counted for it at this time is kept, because a round asks for each waiting job.
        """
        found = self._kept_from(job, active, now, version) if gpus else None
        if found is None:
            return None
        busy, left = found.busy, self._gpus - found.gpus - found.busy
        if gpus <= left or (left >= 0 and _has_room(job, found.shared)):
            return None
        words = f"of {self._gpus} GPUs, reservation {found.names} keeps {found.gpus} and other jobs use {busy}"
        help_ = f"a time limit that ends before {moment(found.begin)}" if found.begin > now else ""
        return Block(RESERVATION, words, help_, until=found.over)

    def _kept_from(self, job: JobRecord, active: Iterable[JobRecord], now: float, version: int) -> _Kept | None:
        """Return what other reservations keep in the time of the job, None for nothing."""
        if self._counted != (now, version):
            self._counted = now, version
            self._keeping = sorted((self._times(name, now)[0], name) for name, one in self._made.items() if one.gpus)
            self._kept = {}
        end = now + job.time_limit if job.time_limit else math.inf
        count, own = bisect_left(self._keeping, (end, "")), job.details.reservation
        if (count, own) not in self._kept:
            found = [(begin, name) for begin, name in self._keeping[:count] if name != own]
            self._kept[count, own] = self._sum(found, active, now) if found else None
        return self._kept[count, own]

    def _sum(self, keeping: list[tuple[float, str]], active: Iterable[JobRecord], now: float) -> _Kept:
        names, begin = {name for _, name in keeping}, keeping[0][0]
        busy = _gpus_of(
            one for one in active if one.details.reservation not in names and max(one.end_time, now) > begin
        )
        nodes, ledger = self._selection.nodes, self._selection.ledger
        loads = {index: ledger.loads(index) for index, _ in busy}
        of_busy = [
            (device, loads[index].get(device.key, FREE))
            for index in loads
            for device in nodes[index].devices
            if (index, device.key) in busy
        ]
        return _Kept(
            ", ".join(sorted(names)),
            sum(self._made[name].gpus for name in names),
            len(busy),
            [(device, load) for device, load in of_busy if load.is_shared],
            begin,
            max(self._times(name, now)[1] for name in names),
        )

    def delete(self, name: str) -> None:
        """Delete a reservation. Raises KeyError."""
        del self.by_name[name]
        del self._made[name]
        del self._cores[name]
        self._counted = ()

    def has_changed(self, now: float) -> bool:
        """True where a reservation has begun or ended since the last call.

        Drops expired reservations, and moves the times of those that come again: to the next ones, or back to earlier
        ones where the clock was set back.
        """
        is_back = now < self._seen
        self._seen = now
        over = [name for name, one in self.by_name.items() if is_back or one.end_time <= now]
        for name in over:
            one, made = self.by_name[name], self._made[name]
            if repeat_of(made):
                one.start_time, one.end_time = occurrence(made, now)
                self._counted = ()
            elif one.end_time <= now:
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
        if job.time_limit > (longest := one.end_time - one.start_time):
            raise NotAdmitted(
                f"Requested time limit is invalid: reservation {name} is {duration(longest)} long, the job asks for "
                f"{duration(job.time_limit)}: name a shorter --time"
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
            name for name in self.by_name
            if name != job.details.reservation and _is_within(self._times(name, start), start, end)
        ]  # fmt: skip

    def _times(self, name: str, after: float) -> tuple[float, float]:
        """Return begin and end of the first occurrence of the reservation that ends after this time."""
        one = self.by_name[name]
        if self._seen <= after < one.end_time:
            return one.start_time, one.end_time
        return occurrence(self._made[name], after)

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

    def _keep(self, one: ReservationRequest) -> None:
        nodes = self._selection.nodes
        held = {nodes.by_name[name].index: mask for name, mask in one.held.items() if name in nodes.by_name}
        start, end = occurrence(one, self._seen)
        self.by_name[one.name] = replace(one, start_time=start, end_time=end)
        self._made[one.name] = one
        self._counted = ()
        self._cores[one.name] = nodes.core_bitmap(held)


def _gpus_of(jobs: Iterable[JobRecord]) -> set[tuple[int, str]]:
    """Return node and device of the GPUs that the jobs hold, whole or in parts."""
    return {
        (node, device_of(key))
        for job in jobs
        if job.job_resrcs is not None
        for node, keys in job.job_resrcs.gres.items()
        for key in keys
        if is_gpu(key)
    }


def _has_room(job: JobRecord, shared: Iterable[tuple[Device, Load]]) -> bool:
    """True where the job asks for a part of a GPU, and a shared GPU has room for it: such GPUs are filled first."""
    wanted = [one for one in of_gres(job.details.gres) if one.is_share]
    if not wanted or job.details.min_nodes > 1:
        return False
    asked = wanted[0]
    for device, load in shared:
        part = part_for(device, asked.shards, asked.memory) if asked.type in ("", device.type) else None
        if part is not None and not conflict(device, load, part, job.user_id):
            return True
    return False


def repeat_of(one: ReservationRequest) -> str:
    """Return the flag by which a reservation comes again, or ""."""
    return next((flag for flag in one.flags if flag in REPEATS), "")


def occurrence(one: ReservationRequest, after: float) -> tuple[float, float]:
    """Return begin and end of the first occurrence that ends after this time, at the same times of the local clock.

    `one` has the times as they were asked for. A time in the hour that the clock leaves out is the end of that hour; of
    an hour that comes twice the first one counts. So what does not meet by the clock never meets. An occurrence that is
    wholly in the hour left out does not take place.
    """
    repeat = repeat_of(one)
    days = 0
    if repeat and one.end_time <= after:
        days = max(0, int((after - one.end_time) // _DAY) - 1)
        days -= days % REPEATS[repeat]
    while True:
        start, end = _later(one.start_time, days), _later(one.end_time, days)
        is_on = start < end and (repeat != "WEEKDAY" or time.localtime(start).tm_wday < 5)
        if not repeat or (is_on and end > after):
            return start, end
        days += REPEATS[repeat]


def _later(at: float, days: int) -> float:
    """Return when the local clock shows the same time so many days later; mktime(3) may choose the hour freely.

    In the hour that the clock leaves out this is when it does.
    """
    if not days:
        return at
    here = time.localtime(at).tm_gmtoff
    clock = at + here + days * _DAY  # as if the clock were one of Greenwich
    before, behind = (time.localtime(clock - here + days).tm_gmtoff for days in (-_DAY, _DAY))
    for offset in (before, behind):
        if time.localtime(clock - offset).tm_gmtoff == offset:
            return clock - offset
    span = range(int(clock - behind), int(clock - before))
    return float(span.start + bisect_left(span, 1, key=lambda at: int(time.localtime(at).tm_gmtoff != before)))


def _is_within(times: tuple[float, float], start: float, end: float) -> bool:
    return times[0] < end and start < times[1]


def _overlaps(one: ReservationRequest, start: float, end: float) -> bool:
    """True where any occurrence of the reservation is in this span."""
    return _is_within(occurrence(one, start), start, end)


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
