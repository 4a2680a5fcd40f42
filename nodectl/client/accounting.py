"""Accounting data of the service for `nodectl acct` and `nodectl report`: users, jobs, times and paged calls."""

from __future__ import annotations

import math
import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodectl.client import job_name
from nodectl.client.command import Failed
from nodectl.client.session import Session
from nodectl.model.accounting.rows import Row, rows_of
from nodectl.model.step_number import step_number

_MOST_JOBS = 1000  # in one call
_LAST_ID = 2**32 - 1
_WORD = re.compile(r"(?P<job>\d{1,10})(?:_(?P<task>\d{1,10}))?(?:\.(?P<step>\d{1,10}|batch|extern))?")


@dataclass(frozen=True, slots=True)
class Named:
    """A job, a task of an array or a step, such as 7, 7_3, 7.0, 7_3.batch. `task` and `step` are None for all."""

    job: int
    task: int | None
    step: int | None

    def has(self, row: Row) -> bool:
        """Return True if the job's row is named, with or without steps."""
        if self.task is not None:
            return (row.array_job, row.array_task) == (self.job, self.task)
        return self.job in (row.job, row.array_job)


def named(session: Session, text: str) -> list[Named]:
    """Parse jobs and steps between commas, and ask the service which is the last. Raises Failed."""
    return [one for word in job_name.separated(text) for one in _named(session, word)]


def _named(session: Session, word: str) -> list[Named]:
    plain = _WORD.fullmatch(word)
    if plain is not None and 0 < int(plain["job"]) <= _LAST_ID:
        step = step_number(plain["step"]) if plain["step"] else None
        return [Named(int(plain["job"]), int(plain["task"]) if plain["task"] else None, step)]
    try:
        names = job_name.names_of(word)
    except ValueError:
        raise Failed(
            f"{word[:40]!r} is no job and no step: 7, 7.0, 7.batch, 7_3, 7_3.batch, 7_[0-4], 7-12, last"
        ) from None
    found: list[Named] = []
    for name in job_name.named(session, names, apart=True):
        found += [Named(name[0], None, name[1])] if isinstance(name, tuple) else _named(session, name)
    return found


def user_ids(text: str) -> list[int]:
    """Parse users between commas, by name or number. Raises Failed."""
    found = []
    for word in filter(None, map(str.strip, text.split(","))):
        try:
            found.append(pwd.getpwnam(word).pw_uid)
        except (KeyError, ValueError):
            if not word.isdecimal() or int(word) > _LAST_ID:
                raise Failed(f"no user {word[:40]!r} on this machine; `getent passwd` lists them") from None
            found.append(int(word))
    return found


@dataclass(frozen=True, slots=True)
class Asked:
    """The rows to ask for: users (empty: all visible to the caller), jobs (empty: all), and the time."""

    users: Sequence[int] = ()
    jobs: Sequence[Named] = ()
    since: float = 0.0
    until: float | None = None


def ask(session: Session, asked: Asked, *, every_run: bool = False) -> list[tuple[Row, list[Row]]]:
    """Return jobs with steps, ordered by number. Raises Failed."""
    jobs = list(_records(session, "jobs", asked, [one.job for one in asked.jobs]))
    tasks = {job["job_id"] for job in jobs if asked.jobs}
    numbers = sorted(tasks | {one.job for one in asked.jobs})
    found = rows_of(jobs, _records(session, "steps", asked, numbers), every_run=every_run)
    if not asked.jobs:
        return found
    meant = []
    for job, steps in found:
        names = [one for one in asked.jobs if one.has(job)]
        if any(one.step is None for one in names):
            meant.append((job, steps))
        elif chosen := [step for step in steps if any(one.step == step.step for one in names)]:
            meant.append((job, chosen))
    return meant


def _records(session: Session, of: str, asked: Asked, jobs: Sequence[int]) -> Iterator[Mapping[str, Any]]:
    numbers = sorted(set(jobs))
    lots = [numbers[place : place + _MOST_JOBS] for place in range(0, len(numbers), _MOST_JOBS)] or [[]]
    for uid in asked.users or (None,):
        for lot in lots:
            yield from _pages(session, of, asked, uid, lot)


def _pages(
    session: Session, of: str, asked: Asked, uid: int | None, jobs: Sequence[int]
) -> Iterator[Mapping[str, Any]]:
    wanted: dict[str, Any] = {"of": of, "since": max(0, math.floor(asked.since))}
    if uid is not None:
        wanted["uid"] = uid
    if jobs:
        wanted["jobs"] = jobs
    if asked.until is not None:
        wanted["until"] = max(0, math.ceil(asked.until))
    position = ""
    while True:
        if position:
            wanted["next"] = position
        reply: Mapping[str, Any] = session.call("Accounting", **wanted)
        yield from reply["records"]
        position = reply["next"]
        if not position:
            return
