"""Accounting: the usage of jobs and steps, running and ended, in replies short enough to delay no other call."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nodectl.launch.cgroup import tree
from nodectl.launch.stepd import accounting
from nodectl.model.accounting import usage
from nodectl.model.number import whole
from nodectl.model.wire.dispatch import Call, Refused, invalid
from nodectl.model.wire.shape import Optional, array, integer, text
from nodectl.service.daemon.history import pages
from nodectl.service.daemon.history.decoding import decoded, malformed, readable
from nodectl.service.daemon.history.store import Store
from nodectl.service.daemon.jobs.registry import JOB, Registry
from nodectl.service.daemon.steps.live import LiveStep

if TYPE_CHECKING:
    from nodectl.model.wire.shape import Shape

_MOST_JOBS = 1000
_OF_STEP = ("job", "step", "name", "user", "uid", "state", "submitted", "ntasks")  # what no command can do without
_OF_JOB = ("job_id",)
_MOST_RUNNING = 25  # in one reply: a few files are read for each
_RUNNING = "running"
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
    """The Accounting method of the node."""

    def __init__(self, mount: str, registry: Registry, store: Store) -> None:
        """`mount` is the cgroup2 mount."""
        self._mount = mount
        self._registry = registry
        self._store = store

    def accounting(self, call: Call) -> Mapping[str, object]:
        """Return a page of records. Users get their own records only. Raises Refused."""
        of = call.parameters["of"]
        if of not in ("steps", "jobs"):
            raise invalid("of", "neither steps nor jobs")
        uid = call.parameters.get("uid")
        if not self._registry.permissions.is_admin(call.peer):
            if uid not in (None, call.peer.uid):
                raise Refused("NotPermitted", "only admins are told what others have used")
            uid = call.peer.uid
        wanted = pages.RecordSelection(uid, call.parameters.get("jobs", ()), call.parameters.get("since", 0))
        position = call.parameters.get("next", "")
        try:
            records, following = (self._steps if of == "steps" else self._jobs)(wanted, position)
        except pages.BadPosition:
            raise invalid("next", "not what was replied before") from None
        until = call.parameters.get("until")
        if until is not None:
            submitted = "submitted" if of == "steps" else "submit_time"
            records = [record for record in records if record.get(submitted, 0) <= until]
        return {"records": records, "next": following}

    def _jobs(self, wanted: pages.RecordSelection, position: str) -> tuple[list[dict[str, Any]], str]:
        page = pages.jobs(self._store, wanted, position)
        return list(readable(page.rows, _job)), page.next

    def _steps(self, wanted: pages.RecordSelection, position: str) -> tuple[list[dict[str, Any]], str]:
        """Return a page of steps: first running steps in the order of numbers, then ending steps, then the history."""
        phase, _, last = position.partition(" ")
        if position and phase != _RUNNING:
            page = pages.steps(self._store, wanted, position)
            return list(readable(page.rows, _step)), page.next
        after = _key(last) if position else (0, 0)
        is_meant = _Meant(wanted)
        keys = sorted(key for key, live in self._registry.live.items() if key > after and is_meant(live))
        records = [self._running(self._registry.live[key]) for key in keys[:_MOST_RUNNING]]
        if len(keys) > _MOST_RUNNING:
            job, step = keys[_MOST_RUNNING - 1]
            return records, f"{_RUNNING} {job}.{step}"
        self._registry.batch.flush()
        records += self._ending(is_meant)
        page = pages.steps(self._store, wanted)
        return [*records, *readable(page.rows, _step)], page.next

    def _running(self, live: LiveStep) -> dict[str, Any]:
        """Return the record of a running step, with the cgroup's counters so far."""
        record = live.files.record()  # its client may know of the end before we do
        if record is not None:
            return usage.of_step(record)
        figures: Mapping[str, object] = {}
        if live.step.cgroup and not live.in_prolog:
            group = tree.Group(f"{self._mount}{live.step.cgroup}/user")
            figures = accounting.figures(group, accounting.KernelEvents(group), live.step.limits)
        return usage.of_step({**live.summary(), **figures})

    def _ending(self, is_meant: "_Meant") -> Iterator[dict[str, Any]]:
        """Yield steps not yet in the history: the job is being ended, or the disk is full."""
        for ending in self._registry.ending.values():
            if is_meant(ending.live):
                yield usage.of_step(ending.record)
        for live in self._registry.batch.waiting():  # the disk is full
            record = self._registry.batch.record(*live.key)
            if record is not None and is_meant(live):
                yield usage.of_step(record)


class _Meant:
    """A filter of steps by the user and jobs of a call. A call may name thousands of jobs."""

    def __init__(self, wanted: pages.RecordSelection) -> None:
        self._uid = wanted.uid
        self._jobs = frozenset(wanted.jobs)

    def __call__(self, live: LiveStep) -> bool:
        return self._uid in (None, live.step.uid) and (not self._jobs or live.step.job_id in self._jobs)


def _key(text: str) -> tuple[int, int]:
    """Return the key of the last step of the previous page. Raises BadPosition."""
    job, _, step = text.partition(".")
    numbers = whole(job, 2**32), whole(step, 2**32)
    if numbers[0] is None or numbers[1] is None:
        raise pages.BadPosition(text)
    return numbers[0], numbers[1]


def _step(row: tuple[str, ...]) -> dict[str, Any]:
    """Return the accounting data of a step's row. Raises Malformed."""
    record = decoded(row[0], "a step")
    return _made(lambda: usage.of_step(record), f"step {record.get('job')}.{record.get('step')}", _OF_STEP)


def _job(row: tuple[str, ...]) -> dict[str, Any]:
    """Return the accounting data of a job's row. Raises Malformed."""
    record = decoded(row[0], "a job")
    whose = f"job {record.get('job_id')}"
    resources = decoded(row[1], whose) if row[1] else {}
    return _made(lambda: usage.of_job(record, resources), whose, _OF_JOB)


def _made(make: Callable[[], dict[str, Any]], whose: str, needed: Iterable[str]) -> dict[str, Any]:
    try:
        made = make()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise malformed(whose, repr(error)) from None
    for name in needed:
        if name not in made:
            raise malformed(whose, f"it has no {name}")
    return made
