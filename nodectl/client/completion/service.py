"""Candidates known only to the service: jobs, steps, reservations.

A shell waits for the answer, so nothing here waits for long, starts processes or complains: the caller has set a limit.
"""

import os
from collections.abc import Iterator
from typing import Any

from nodectl.client.command import Failed, GlobalOptions
from nodectl.client.completion.grammar import Item
from nodectl.client.completion.values import Candidate
from nodectl.client.configuration import configured
from nodectl.client.job_name import NEWEST
from nodectl.client.render.job_columns import name_of
from nodectl.client.session import Session
from nodectl.model.device_part import SHARD, device_of, part_of
from nodectl.model.states import PENDING, RUNNING, SUSPENDED
from nodectl.model.step_number import BATCH, step_name

_ENDED = 20  # of steps that have ended so many are told
_OF_JOBS = frozenset({"JOB", "JOBS", "JOB[.STEP]", "JOB[.STEP],..."})
_JOB_OPTIONS = frozenset({"--jobid", "--job", "--jobs"})
# Commands for which jobs in some states only make sense.
_STATES = {
    "hold": (PENDING,), "release": (PENDING,), "requeue": (RUNNING, SUSPENDED), "resume": (SUSPENDED,),
    "suspend": (RUNNING,), "enter": (RUNNING,), "login": (RUNNING,), "attach": (RUNNING,), "bcast": (RUNNING,),
    "signal": (RUNNING,), "run": (RUNNING,), "bulk": (RUNNING,), "trace": (RUNNING,),
}  # fmt: skip
_OF_THE_PAST = ("show", "trace", "acct")  # commands that tell of steps that have ended too
_OF_ENDED_JOBS = ("log", "resubmit")  # and of jobs


def candidates(settings: GlobalOptions, command: str, item: Item) -> list[Candidate]:
    """Return the service's candidates for this place; none where no service runs."""
    if "--partition" in item.names:
        return _partition(settings)
    find = _finder(command, item)
    if find is None:
        return []
    try:
        session = Session(settings, start_private=False)
    except (Failed, OSError):
        return []
    try:
        return list(dict(find(session)).items())
    except Failed:
        return []
    finally:
        session.close()


def _partition(settings: GlobalOptions) -> list[Candidate]:
    """Return the partition of every job, from the configuration, because no job need exist."""
    try:
        return [(configured(settings.config).partition_name, "every job is in it")]
    except Failed:
        return []


def _finder(command: str, item: Item) -> Any:
    if "--reservation" in item.names or (command == "reserve" and item.metavar == "NAME" and not item.names):
        return _reservations
    if "--gres" in item.names:
        return _devices
    if item.metavar in _OF_JOBS or _JOB_OPTIONS.intersection(item.names):
        return lambda session: _jobs(session, command, steps="STEP" in item.metavar)
    return None


def _jobs(session: Session, command: str, *, steps: bool) -> Iterator[Candidate]:
    wanted: dict[str, Any] = {"states": list(_STATES[command])} if command in _STATES else {}
    if os.geteuid() != 0:
        wanted["users"] = [str(os.geteuid())]
    queued: Any = session.call("Queue", **wanted)["jobs"]
    for job in queued:
        yield name_of(job).partition("_[")[0], f"{job.get('name') or '-'} {str(job['state']).lower()}"
    if len(queued) > 1:
        yield NEWEST, "your newest job"
    if command in _OF_ENDED_JOBS:
        ended: Any = session.call("List", ended=_ENDED)["steps"]
        for step in ended:
            if step["step"] == BATCH:
                yield str(step["job"]), f"{step['name']} {str(step['state']).lower()}"
    if steps:
        running: Any = session.call("List", ended=_ENDED if command in _OF_THE_PAST else 0)["steps"]
        for step in running:
            yield step_name(step["job"], step["step"]), f"{step['name']} {str(step['state']).lower()}"


def _reservations(session: Session) -> Iterator[Candidate]:
    for one in session.call("Reservations")["reservations"]:  # type: ignore[attr-defined]
        yield str(one["name"]), ""


def _devices(session: Session) -> Iterator[Candidate]:
    for node in session.call("Nodes")["nodes"]:  # type: ignore[attr-defined]
        for word in map(str, node.get("gres") or ()):
            yield device_of(word).rpartition(":")[0] or word, word
            if (part := part_of(word)) is not None and part.shards:
                yield SHARD, word
