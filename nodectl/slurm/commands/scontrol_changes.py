"""scontrol's changes: jobs, steps, and whether the node takes jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nodectl.client import waiting
from nodectl.client.command import Failed, complain
from nodectl.client.job_changes import assigned
from nodectl.client.session import Session
from nodectl.client.step_name import step_of
from nodectl.model.number import seconds
from nodectl.model.states import BEGUN, PENDING
from nodectl.model.wire.names import NODE
from nodectl.slurm.commands import jobs, machine_facts, reservations
from nodectl.slurm.commands.host_names import expanded
from nodectl.slurm.commands.option_words import Given

_JOB = ("jobid", "job")
_DRAIN = ("drain", "draining", "drained")
_RESUME = ("resume", "idle", "undrain")
_OVER = "Job/step already completing or completed"


def _for_each(session: Session, verb: str, words: list[str], act: Callable[[str], object]) -> int:
    """Call `act` for every job. Return 0, or 1 with a line on stderr for each Failed."""
    status = 0
    plain = [word.partition("=")[2] or word for word in words if word.lower() not in _JOB]
    names = jobs.jobs_named(plain)
    if not names:
        raise Failed(f"too few arguments for keyword:{verb}")
    for name in names:
        try:
            act(name)
        except Failed as failed:
            complain(_why(session, failed, name))
            status = 1
    return status


def _why(session: Session, failed: Failed, name: str) -> str:
    """Return the reason of a failure, in scontrol's words for an unknown or ended job."""
    if failed.name != f"{NODE}.NoSuchJob":
        return f"{failed} for job {name}"
    over = jobs.record_of(session, name.partition("_[")[0]) is not None
    return f"{_OVER if over else jobs.INVALID} for job {name}"


def hold(session: Session, given: Given, words: list[str]) -> int:
    """Hold waiting jobs."""
    return _for_each(session, "hold", words, lambda job: session.call("Hold", jobs=[job]))


def release(session: Session, given: Given, words: list[str]) -> int:
    """Release held jobs."""
    return _for_each(session, "release", words, lambda job: session.call("ReleaseJobs", jobs=[job]))


def requeue(session: Session, given: Given, words: list[str]) -> int:
    """Requeue running batch jobs."""
    return _for_each(session, "requeue", words, lambda job: session.call("Requeue", (), jobs=[job]))


def requeue_and_hold(session: Session, given: Given, words: list[str]) -> int:
    """Requeue running batch jobs, and hold the jobs until a release."""
    plain = [word for word in words if not word.lower().startswith("state=")]
    return _for_each(session, "requeuehold", plain, lambda job: session.call("Requeue", (), jobs=[job], hold=True))


def suspend(session: Session, given: Given, words: list[str]) -> int:
    """Suspend running jobs."""
    return _for_each(session, "suspend", words, lambda job: session.call("SuspendJob", job=job))


def resume(session: Session, given: Given, words: list[str]) -> int:
    """Resume suspended jobs."""
    return _for_each(session, "resume", words, lambda job: session.call("ResumeJob", job=job))


def wait_job(session: Session, given: Given, words: list[str]) -> int:
    """Wait until a job has resources. Return 0, or 1 if the job ends first."""
    names = jobs.jobs_named(words)
    if len(names) != 1 or not names[0].isdecimal():
        raise Failed("wait_job wants the number of one job")
    seen, status = "", 1
    while True:
        reply = waiting.asked(session, job=int(names[0]), seen=seen)
        if reply["state"] != PENDING:
            status = int(reply["state"] not in BEGUN)
            break
        seen = str(reply["seen"])
    return status


def update(session: Session, given: Given, words: list[str]) -> int:
    """Run update KEY=VALUE..., where the first key names the object to change. Raises Failed."""
    first, _, value = words[0].partition("=") if words else ("", "", "")
    kind, rest = first.lower(), words[1:]
    if kind in (*_JOB, "stepid", "step", "node", "nodename", "partition", "partitionname") and not value and rest:
        value, rest = rest[0], rest[1:]  # update job 7 ...
    if kind in _JOB:
        return _for_each(session, "update", [value], lambda job: _update_job(session, job, rest))
    if kind in ("stepid", "step"):
        return _update_step(value, rest)
    if kind in ("node", "nodename"):
        return _update_node(session, value, rest)
    raise Failed(f"Update of {first[:40] or 'nothing'}: only JobId=, StepId= and NodeName= are changed here")


def _update_job(session: Session, name: str, words: list[str]) -> None:
    plain = []
    for word in words:
        key, _, text = word.partition("=")
        if key.lower() == "timelimit" and text[:1] in ("+", "-"):
            plain.append(f"TimeLimit={_moved(session, name, text)}")
        elif key.lower() == "priority" and text == "0":
            session.call("Hold", jobs=[name])
        elif key.lower() == "name":
            plain.append(f"JobName={text}")
        else:
            plain.append(word)
    try:
        changes = assigned(plain)
    except ValueError as error:
        raise Failed(f"Update of this parameter is not supported: {error}") from None
    if changes:
        session.call("UpdateJob", (), job=name, **changes)


def _moved(session: Session, name: str, text: str) -> str:
    """Return the new limit for TimeLimit=+10 (more) or -10 (less), as minutes and seconds."""
    record: Any = jobs.record_of(session, name) or {}
    try:
        moved = int(record.get("time_limit") or 0) + (1 if text[0] == "+" else -1) * int(seconds(text[1:]))
    except ValueError as error:
        raise Failed(f"{error} for TimeLimit.") from None
    if not record.get("time_limit") or moved <= 0:
        raise Failed("Requested time limit is invalid (missing or exceeds some limit)")
    return f"{moved // 60}:{moved % 60:02}"


def _update_step(name: str, words: list[str]) -> int:
    try:
        step_of(name)
    except ValueError as error:
        raise Failed(str(error)) from None
    keys = ", ".join(word.partition("=")[0] for word in words) or "nothing"
    raise Failed(f"Update of {keys} of a step is not supported: `nodectl update {name}` changes its limits")


def _update_node(session: Session, names: str, words: list[str]) -> int:
    if names.upper() != "ALL":  # a script may mean another machine of its cluster
        machine_facts.look_for_nodes(session, expanded(names) or [""])
    values = {key.lower(): text for key, _, text in (word.partition("=") for word in words)}
    state = values.pop("state", "").lower()
    if state in _DRAIN:
        session.call("UpdateNode", state="drain", reason=values.get("reason", ""))
    elif state in _RESUME:
        session.call("UpdateNode", state="resume")
    else:
        raise Failed(f"Invalid node state specified: {state[:20] or 'none'}: DRAIN (with Reason=) or RESUME")
    return 0


def create(session: Session, given: Given, words: list[str]) -> int:
    """Run create reservation KEY=VALUE..."""
    reservations.create(session, words)
    return 0


def delete(session: Session, given: Given, words: list[str]) -> int:
    """Run delete ReservationName=NAME."""
    reservations.delete(session, words)
    return 0
