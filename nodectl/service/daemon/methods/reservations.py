"""CreateReservation, DeleteReservation and Reservations: cores kept for the jobs of some users."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nodectl.model.value_class import values
from nodectl.model.wire.dispatch import Call, Refused, invalid, subject
from nodectl.model.wire.shape import Optional, integer
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.scheduler.reservation import REPEATS
from nodectl.selection.records import ReservationRequest
from nodectl.service.daemon.controller.commits import NotWritten
from nodectl.service.daemon.controller.options import MOMENT, WORD, WORDS
from nodectl.service.daemon.methods.job_calls import JobCalls

if TYPE_CHECKING:
    from nodectl.model.wire.shape import Shape

CREATE: "Shape" = {
    "name": Optional(WORD),
    "start": MOMENT,
    "end": Optional(MOMENT),
    "duration": Optional(integer(1, 100 * 366 * 86_400)),
    "cores": Optional(integer(1, 2**31)),
    "cpus": Optional(integer(1, 2**31)),
    "users": WORDS,
    "repeat": Optional(WORD),
    "gpus": Optional(integer(1, 2**31)),
}
DELETE: "Shape" = {"name": WORD}


class ReservationMethods:
    """The reservation methods of the node."""

    def __init__(self, calls: JobCalls) -> None:
        self._calls = calls

    async def create(self, call: Call) -> Mapping[str, object]:
        """Create a reservation."""
        self._calls.must_be_admin(call)
        controller, now = self._calls.controller, time.time()
        request = self._request(call.parameters, now)
        try:
            made = controller.scheduler.reserve(request, now)
        except NotAdmitted as error:
            raise Refused("WrongState", str(error), **subject(error.subject)) from None
        controller.table.store.put_reservation(made.name, values(made))
        controller.rounds.kick()
        try:
            await controller.table.commits.durable()
        except NotWritten as error:
            controller.table.store.forget_statement("reservation", made.name)
            controller.scheduler.delete_reservation(made.name)
            raise Refused("WrongState", f"reservation {made.name!r} was not made: {error}") from None
        return {"name": made.name}

    def _request(self, given: Mapping[str, object], now: float) -> ReservationRequest:
        start = max(float(str(given["start"])), now)
        if ("end" in given) == ("duration" in given):
            raise invalid("end", "give an end or a duration")
        end = float(str(given["end"])) if "end" in given else start + float(str(given["duration"]))
        if end <= start:
            raise invalid("end", "it is before the beginning")
        users: list[str] = given["users"]  # type: ignore[assignment]  # its shape was checked
        if not users:
            raise invalid("users", "name those for whom it is")
        repeat = str(given.get("repeat", "")).upper()
        if repeat and repeat not in REPEATS:
            raise invalid("repeat", f"is one of {', '.join(map(str.lower, REPEATS))}")
        cores = int(str(given.get("cores", 0))) or self._cores_of(int(str(given.get("cpus", 0))))
        name = str(given.get("name") or self._free_name(users[0]))
        if name in self._calls.controller.scheduler.reservations:
            raise invalid("name", f"there is a reservation {name!r}")
        return ReservationRequest(
            name,
            start,
            end,
            core_cnt=cores,
            users=tuple(users),
            flags=(repeat,) if repeat else (),
            gpus=int(str(given.get("gpus", 0))),
        )

    def _cores_of(self, cpus: int) -> int:
        """Return the number of cores with at least `cpus` CPUs."""
        node = self._calls.controller.selection.nodes[0]
        threads = max(1, int(node.config.usable.bit_count()) // max(1, int(node.cores)))
        return -(-cpus // threads)

    def _free_name(self, user: str) -> str:
        """Return an unused name in Slurm's style: the user and a number."""
        there = self._calls.controller.scheduler.reservations
        return next(f"{user}_{number}" for number in range(1, len(there) + 2) if f"{user}_{number}" not in there)

    async def delete(self, call: Call) -> Mapping[str, object]:
        """Delete a reservation."""
        self._calls.must_be_admin(call)
        controller, name = self._calls.controller, str(call.parameters["name"])
        try:
            controller.scheduler.delete_reservation(name)
        except KeyError:
            raise Refused("NoSuchReservation", f"there is no reservation {name!r}", subject="reservation") from None
        controller.table.store.drop_reservation(name)
        controller.rounds.kick()
        try:
            await controller.table.commits.durable()
        except NotWritten as error:
            raise Refused("WrongState", f"reservation {name!r} is removed, but not on the disk yet: {error}") from None
        return {}

    def reservations(self, call: Call) -> Mapping[str, object]:
        """Return all reservations."""
        found = [values(one) for one in self._calls.controller.scheduler.reservations.values()]
        return {"reservations": sorted(found, key=lambda one: (one["start_time"], one["name"]))}
