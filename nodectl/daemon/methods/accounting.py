"""Accounting: what jobs and steps used, running ones and ended ones, in replies that keep nobody else waiting."""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nodectl.accounting import usage
from nodectl.daemon.history import pages
from nodectl.daemon.history.store import Store
from nodectl.daemon.jobs.registry import JOB, Registry
from nodectl.wire.dispatch import Call, Refused, invalid
from nodectl.wire.shape import Optional, array, integer, text

if TYPE_CHECKING:
    from nodectl.wire.shape import Shape

_MOST_JOBS = 1000
_TIME = Optional(integer(0, 1 << 40))
ACCOUNTING: "Shape" = {
    "of": text(16),
    "uid": Optional(integer(0, 2**32 - 1)),
    "jobs": Optional(array(JOB, most=_MOST_JOBS)),
    "since": _TIME,
    "until": _TIME,
    "next": Optional(text(128)),
}


class Accounting:
    """The method of one node."""

    def __init__(self, registry: Registry, store: Store) -> None:
        self._registry = registry
        self._store = store

    def accounting(self, call: Call) -> Mapping[str, object]:
        """One page of records. Users are told of what is theirs. Raises Refused."""
        of = call.parameters["of"]
        if of not in ("steps", "jobs"):
            raise invalid("of", "neither steps nor jobs")
        uid = call.parameters.get("uid")
        if not self._registry.permissions.is_admin(call.peer):
            if uid not in (None, call.peer.uid):
                raise Refused("NotPermitted", "only admins are told what others have used")
            uid = call.peer.uid
        wanted = pages.Wanted(uid, call.parameters.get("jobs", ()), call.parameters.get("since", 0))
        position = call.parameters.get("next", "")
        records: list[dict[str, Any]] = []
        if of == "steps" and not position:
            self._registry.batch.flush()
            records += self._running(wanted)
        try:
            page = (pages.steps if of == "steps" else pages.jobs)(self._store, wanted, position)
        except pages.BadPosition:
            raise invalid("next", "not what was replied before") from None
        make = _step if of == "steps" else _job
        records += (make(*row) for row in page.rows)
        until = call.parameters.get("until")
        if until is not None:
            submitted = "submitted" if of == "steps" else "submit_time"
            records = [record for record in records if record.get(submitted, 0) <= until]
        return {"records": records, "next": page.next}

    def _running(self, wanted: pages.Wanted) -> Iterator[dict[str, Any]]:
        """Steps that run, and those after which their jobs are being ended: the history does not have them yet."""
        for live in self._registry.live.values():
            if _is_wanted(wanted, live.step.job_id, live.step.uid):
                yield usage.of_step(live.files.record() or live.summary())
        for ending in self._registry.ending.values():
            if _is_wanted(wanted, ending.live.step.job_id, ending.live.step.uid):
                yield usage.of_step(ending.record)
        for live in self._registry.batch.waiting():  # the disk is full
            record = self._registry.batch.record(*live.key)
            if record is not None and _is_wanted(wanted, live.step.job_id, live.step.uid):
                yield usage.of_step(record)


def _is_wanted(wanted: pages.Wanted, job: int, uid: int) -> bool:
    return wanted.uid in (None, uid) and (not wanted.jobs or job in wanted.jobs)


def _step(record: str) -> dict[str, Any]:
    return usage.of_step(json.loads(record))


def _job(record: str, resources: str) -> dict[str, Any]:
    return usage.of_job(json.loads(record), json.loads(resources) if resources else {})
