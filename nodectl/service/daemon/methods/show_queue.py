"""Queue, ShowJob and ExplainJob: the state of jobs, and why jobs wait."""

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING

from nodectl.model.number import whole
from nodectl.model.states import PENDING, SUSPENDED
from nodectl.model.wire import framing
from nodectl.model.wire.dispatch import Call, Refused, invalid
from nodectl.model.wire.shape import Optional, boolean, integer
from nodectl.scheduler.explain import Explanation, Survey
from nodectl.selection.records import BATCH, JobRecord
from nodectl.service.daemon.admission.slices import Work
from nodectl.service.daemon.controller import rows
from nodectl.service.daemon.controller.job_names import LARGEST, BadName, parse
from nodectl.service.daemon.controller.options import WORDS
from nodectl.service.daemon.controller.table import text_of
from nodectl.service.daemon.history.batch_text import unpacking
from nodectl.service.daemon.jobs.registry import Registry
from nodectl.service.daemon.methods.job_calls import JobCalls, no_job

if TYPE_CHECKING:
    from nodectl.model.wire.shape import Shape

_MOST_ROWS = 1000
_ROOM = 1 << 19  # bytes of a page; the row that exceeds them is its last
_WAITING = (PENDING, SUSPENDED)  # states with a reason, which the row shows
QUEUE: "Shape" = {
    **{name: Optional(WORDS) for name in ("jobs", "users", "states", "names")},
    "skip": Optional(integer(0, 2**31)),
    "points": Optional(boolean),
}


class ShowQueue:
    """The methods to show jobs of the node."""

    def __init__(self, calls: JobCalls, registry: Registry) -> None:
        self._calls = calls
        self._registry = registry

    async def queue(self, call: Call) -> Mapping[str, object]:
        """Return a page of the jobs in the queue. The event loop serves pending calls while the page is made."""
        async with self._calls.turn(call):
            return await self._page(call)

    async def _page(self, call: Call) -> Mapping[str, object]:
        now, given, work = self._calls.controller.now(), call.parameters, self._calls.work()
        scheduler, jobs = self._calls.controller.scheduler, self._calls.controller.table.jobs
        named = await self._named(given, work)
        survey = await work.through(scheduler.survey(now))
        skip, room = int(str(given.get("skip", 0))), _ROOM
        matches, commands = Matching(given), self._registry.commands_of_jobs()
        told: list[Mapping[str, object]] = []
        for job in self._in_order(survey) if named is None else named:
            if work.is_due():
                await work.rest()
            if jobs.get(job.job_id) is not job or not self._may_list(call, job) or not matches(job):
                continue
            if skip:
                skip -= 1
                continue
            if len(told) >= _MOST_ROWS or room <= 0:
                return {"jobs": told, "more": True}
            row = self._row(call, job, now, scheduler.brief(job, now, survey))
            if job.job_id in commands and self._calls.permissions.may_see(call.peer, job.user_id):
                row = {**row, "commands": commands[job.job_id]}
            if given.get("points"):
                row = {**row, "points": scheduler.points([job], now)[0]._asdict()}
            told.append(row)
            room -= len(framing.encode(row))
        return {"jobs": told, "more": False}

    async def _named(self, given: Mapping[str, object], work: Work) -> Iterable[JobRecord] | None:
        """Return the jobs named by the call; None where the call names no jobs."""
        texts: Iterable[str] | None = given.get("jobs")  # type: ignore[assignment]  # its shape was checked
        if texts is None:
            return None
        found: dict[JobRecord, None] = {}
        for text in dict.fromkeys(texts):
            found.update((job, None) for job, _ in self._calls.controller.table.named(text, work.spend))
            if work.is_due():
                await work.rest()
        return found

    def _in_order(self, survey: Survey) -> Iterator[JobRecord]:
        """Yield the running jobs, oldest first, then the waiting jobs in the order of the queue."""
        active = [job for job in self._calls.controller.table.jobs.values() if job.job_state != PENDING]
        yield from sorted(active, key=lambda job: (job.start_time, job.job_id))
        yield from survey.jobs

    def _may_list(self, call: Call, job: JobRecord) -> bool:
        return not self._calls.hides_others or self._calls.permissions.may_see(call.peer, job.user_id)

    def _row(self, call: Call, job: JobRecord, now: float, why: Explanation) -> Mapping[str, object]:
        held = rows.held(job, self._calls.controller.selection.nodes)
        told = rows.row(job, held, now, why if job.job_state in _WAITING else None)
        return told if self._calls.permissions.may_see(call.peer, job.user_id) else rows.without_private(told)

    def week_hours(self, call: Call) -> Mapping[str, object]:
        """Return the hours that users with limits used this week; none where users may not see each other's."""
        if self._calls.hides_others and not self._calls.permissions.is_admin(call.peer):
            return {"hours": []}
        controller = self._calls.controller
        return {"hours": controller.scheduler.week_hours(controller.now())}

    async def show_job(self, call: Call) -> Mapping[str, object]:
        """Return the record of a job."""
        controller, name, why = self._calls.controller, str(call.parameters["job"]), None
        job, resources = self._found(name)
        if job is None or not self._may_list(call, job):
            raise no_job(name)
        if job.job_state in _WAITING:
            why = await self._calls.explained(call, job)
            if job.job_state not in _WAITING:  # it has started, or has ended, meanwhile
                why = None
                resources = rows.held(job, controller.selection.nodes)
        task = name.partition("_")[2]
        of_task = int(task) if job.array_tasks and task.isdecimal() else None
        told = rows.record(job, resources, controller.now(), why, controller.selection.nodes[0].name, of_task)
        told["select"] = controller.selection.described(job)
        told["notice_failed"] = controller.parts.notices.failure(job)
        mine = self._calls.permissions.may_see(call.peer, job.user_id)
        return {"record": told if mine else rows.without_private(told)}

    async def newest(self, call: Call) -> Mapping[str, object]:
        """Return the number of the caller's newest job or array, waiting, running or ended."""
        async with self._calls.turn(call):
            found = await self._calls.work().through(self._calls.controller.table.finding_newest(call.peer.uid))
        if not found:
            raise Refused("NoSuchJob", "you have no job", subject="unknown")
        return {"job": found}

    async def script(self, call: Call) -> Mapping[str, object]:
        """Return what a batch job was submitted with: the request, the options and the script, and whose job it is."""
        name = str(call.parameters["job"])
        job, _ = self._found(name)
        if job is None or not self._may_list(call, job):
            raise no_job(name)
        if call.peer.uid not in (0, job.user_id):
            raise Refused("NotPermitted", f"job {name} is not yours")
        packed = self._calls.controller.table.store.batch(text_of(job))
        if packed is None:
            why = "is no batch job" if job.held_by != BATCH else "ended too long ago: its script is not kept any more"
            raise Refused("WrongState", f"job {name} {why}")
        text = await self._calls.work().through(unpacking(packed))
        script = text.script.decode("utf-8", "surrogateescape")
        return {
            "request": text.request["request"], "job": text.request.get("job", {}), "script": script,
            "uid": job.user_id, "gid": job.group_id,
        }  # fmt: skip

    def _found(self, name: str) -> tuple[JobRecord | None, Mapping[str, object]]:
        """Return a job from the queue, the recent jobs or the store, with the resources held now or before."""
        table = self._calls.controller.table
        job = next((one for one, _ in table.named(name)), None)
        try:
            meant = parse(name)
        except BadName as error:
            raise invalid("job", str(error)) from None
        if job is None and not meant.tasks:
            job = table.get(meant.job)
        if job is not None and job.job_resrcs is not None:
            return job, rows.held(job, self._calls.controller.selection.nodes)
        if job is not None and job.is_active:
            return job, {}
        if not meant.tasks:
            kept = table.store.find(meant.job)
            return (job, {}) if kept is None else (job or kept.record, kept.resources)
        index = whole(meant.tasks, LARGEST)
        kept = None if index is None else table.store.task(meant.job, index)
        return (job, {}) if kept is None else (kept.record, kept.resources)

    async def explain_job(self, call: Call) -> Mapping[str, object]:
        """Return the reason why a job waits."""
        name = str(call.parameters["job"])
        job = next((one for one, _ in self._calls.controller.table.named(name)), None)
        if job is None or not self._may_list(call, job):
            raise self._calls.none(call, name)
        why = await self._calls.explained(call, job)
        told = {
            "state": job.job_state, "reason": why.reason, "words": why.words, "for": list(why.for_whom),
            "start": why.expected_start, "help": list(why.what_would_help),
        }  # fmt: skip
        return {"explanation": told}


class Matching:
    """A filter of jobs by the lists of a call: users, states, names. There may be many jobs and long lists."""

    def __init__(self, given: Mapping[str, object]) -> None:
        self._users, states, self._names = (_as_set(given.get(name)) for name in ("users", "states", "names"))
        self._states = None if states is None else {state.upper() for state in states}

    def __call__(self, job: JobRecord) -> bool:
        """Return True for a job which matches every list."""
        users = self._users
        if users is not None and job.user_name not in users and str(job.user_id) not in users:
            return False
        if self._states is not None and job.job_state not in self._states:
            return False
        return self._names is None or job.name in self._names


def _as_set(words: object) -> Set[str] | None:
    return None if words is None else frozenset(words)  # type: ignore[call-overload]  # its shape was checked
