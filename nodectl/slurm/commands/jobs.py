"""Jobs from the service, chosen by the options of squeue and scancel."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nodectl.client.accounting import Asked, ask
from nodectl.client.command import Failed
from nodectl.client.job_name import job_of
from nodectl.client.session import Session
from nodectl.model import brackets
from nodectl.model.states import IN_QUEUE
from nodectl.model.wire.names import NODE
from nodectl.scheduler import job_array
from nodectl.slurm.commands.job_fields import STATES

INVALID = "Invalid job id specified"
_SHOWN_AFTERWARDS = 300.0  # seconds for which an ended job is listed if the user asks for all states
_MOST_TASKS = 100_000  # of arrays that are listed one by one
_LAST_UID = 2**32 - 1


def users_named(words: Iterable[str]) -> list[str]:
    """Return the numbers of users given by name or number. Raises Failed."""
    found = []
    for word in words:
        try:
            found.append(str(pwd.getpwnam(word).pw_uid))
        except (KeyError, ValueError):
            if not word.isdecimal() or int(word[:11]) > _LAST_UID:
                raise Failed(f"Invalid user: {word[:40]}") from None
            found.append(word)
    return found


def me() -> str:
    """Return this user's number."""
    return str(os.getuid())


def states_named(words: Iterable[str]) -> list[str]:
    """Return the states given by name or short form; all states for `all`. Raises Failed."""
    found = []
    for word in words:
        name = word.upper()
        if name == "ALL":
            return list(STATES)
        state = next((long for long, short in STATES.items() if name in (long, short)), None)
        if state is None:
            known = ",".join(STATES)
            raise Failed(f"Invalid job state specified: {word[:40]}; valid job states include: {known}")
        found.append(state)
    return found


def jobs_named(words: Iterable[str]) -> list[str]:
    """Return the jobs given by number, 7_3 for a task of an array; commas within brackets stay. Raises Failed."""
    text = ",".join(words)
    try:
        return [job_of(word) for word in brackets.words(text) if word]
    except ValueError:
        raise Failed(f"Invalid job id: {text[:40]}") from None


def queued(session: Session, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the jobs of the queue matching `wanted`."""
    jobs = session.rows("Queue", "jobs", **{name: value for name, value in wanted.items() if value})
    return list({job["job"]: job for job in jobs}.values())


def ended(session: Session, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the ended jobs among `names`, or without names all jobs ended a short time ago."""
    if names:
        records = [record_of(session, name) for name in names]
    else:
        rows = ask(session, Asked((), (), time.time() - _SHOWN_AFTERWARDS))
        records = [record_of(session, str(row.job)) for row, _ in rows if row.ended]
    return [record for record in records if record is not None and record["state"] not in IN_QUEUE]


def record_of(session: Session, name: str) -> dict[str, Any] | None:
    """Return the whole record of a job, None for an unknown job."""
    try:
        record: Any = session.call("ShowJob", job=name)["record"]
    except Failed as failed:
        if failed.name != f"{NODE}.NoSuchJob":
            raise
        return None
    found: dict[str, Any] = record
    return found


def one_by_one(jobs: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a row for each waiting task of an array."""
    left = _MOST_TASKS
    for job in jobs:
        if not job.get("array_tasks"):
            yield job
            continue
        for index in job_array.indices(job_array.tasks_of(job["array_tasks"])):
            if not left:
                return
            left -= 1
            yield {**job, "array_job": job.get("array_job") or job["job"], "array_task": index, "array_tasks": ""}
