"""The events of a job, by way of notice, and the content of notices. Functions of values, in the daemon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodectl.model import notice
from nodectl.model.config import Config
from nodectl.model.states import CANCELLED, COMPLETED, TIMEOUT
from nodectl.selection.records import BATCH, JobRecord
from nodectl.service.daemon.history.notice import Notice
from nodectl.service.daemon.notices.ways import COMMAND, MAIL, SITE

Wishes = Mapping[str, frozenset[str]]
_WELL = (COMPLETED, CANCELLED)
_LONGEST = 200  # characters of a name


def of(job: JobRecord, config: Config) -> Wishes:
    """Return the wanted events of a job, by way. The job may be a waiting array, or a task of an array."""
    types = frozenset(filter(None, job.details.notices.get("types", "").split(",")))
    found = {
        MAIL: types if config.sendmail else frozenset(),
        COMMAND: notice.OF_COMMAND if job.details.notices.get("command") else frozenset(),
        SITE: types.union(config.notify_events) if config.notify_command else frozenset(),
    }
    return {way: events for way, events in found.items() if events}


def is_told_as_a_whole(job: JobRecord) -> bool:
    """Return True for a job of an array with notices for the whole array, which is the rule."""
    return bool(job.array_job_id) and notice.ARRAY_TASKS not in job.details.notices.get("types", "").split(",")


def shares_of_limit(job: JobRecord, config: Config) -> Iterator[tuple[str, int]]:
    """Yield the wanted events between a job's start and its time limit, each with the percent of the limit."""
    wanted = frozenset().union(*of(job, config).values())
    return ((event, percent) for event, percent in notice.SHARES_OF_LIMIT.items() if event in wanted)


def events_of_end(wanted: frozenset[str], states: Mapping[str, int]) -> list[str]:
    """Return the events of the end of a job, or of an array, among the wanted ones. `states`: how many ended how."""
    failed = any(count and state not in _WELL for state, count in states.items())
    found = [notice.TIME_LIMIT] if notice.TIME_LIMIT in wanted and states.get(TIMEOUT) else []
    if failed and notice.FAIL in wanted:
        return [*found, notice.FAIL]
    return [*found, notice.END] if notice.END in wanted else found


def made(
    job: JobRecord, event: str, way: str, *, at: float, whole: bool = False, words: str = "", spell: int = 0
) -> Notice:
    """Return the notice of an event of a job, of its array as a `whole`; `at`, seconds since the epoch, is when.

    `words` say more than the job's record does. Events that come several times in a run differ in their `spell`.
    """
    details = job.details
    number = job.array_job_id if whole else job.job_id
    task = "" if whole or job.array_task_id is None else f"{job.array_job_id}_{job.array_task_id}"
    record = {
        "id": task or str(number),
        "array": job.array_job_id,
        "name": job.name[:_LONGEST],
        "user": job.user_name,
        "state": job.job_state,
        "reason": words or job.state_desc[:_LONGEST],
        "exit_code": job.exit_code,
        "submit": job.submit_time,
        "start": job.start_time,
        "time_limit": job.time_limit,
        "work_dir": details.work_dir,
        "has_log": job.held_by == BATCH and not whole,
        "at": at,
        **({"secure": details.notices["secure"]} if way != SITE else {}),
        **({"to": details.notices["user"]} if way == MAIL else {}),
        **({"command": details.notices["command"]} if way == COMMAND else {}),
    }
    if spell:
        return Notice(
            number, job.restart_cnt, f"{event}.{spell}", way, job.user_id, {**record, "event": event, "spell": spell}
        )
    return Notice(number, 0 if whole else job.restart_cnt, event, way, job.user_id, record)
