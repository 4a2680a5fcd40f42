"""Waiting for the turn of a job or a step.

A job waits while the machine is full or as an option says; a step waits while other steps have the CPUs of its job.
Imported only then. A waiting job belongs to its client: when the client stops waiting, by a signal or an end, the job
is given up. The wait outlives the service, whose successor is asked again.
"""

import os
import sys
import time

from nodectl.client.command import Failed, Interrupted, Program
from nodectl.client.session import Gone
from nodectl.client.signals import TooLate
from nodectl.model.states import BEGUN, COMPLETED, IN_QUEUE, PENDING, REQUEUED
from nodectl.model.wire.names import NODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from nodectl.client.session import Events, Session

BUSY = f"{NODE}.Busy"
NOT_NOW = "Unable to allocate resources: Requested nodes are busy"  # srun's words
_WITHOUT_SERVICE = 300.0  # seconds; a job without a waiting client lives as long once a service runs again
_ASKED_AGAIN = 0.2
_GIVEN_UP = 5  # seconds in which the service takes a job back; later it does so by the job's lease


def job(session: "Session", request: "Mapping[str, object]", options: "Mapping[str, object]", patience: int | None,
        held_by: str = "run") -> int:  # fmt: skip
    """Allocate a job for this request, wait for the turn, and return the job's number.

    `patience`: the seconds of --immediate, or None. A signal gives the job up; once the turn has come, signals belong
    to the step. Raises Failed; Interrupted if a signal came before.
    """
    session.hold_signals()
    number = accepted(session.call("Allocate", request=request, job=options, held_by=held_by))
    if patience is not None:
        session.until = time.monotonic() + max(patience, 1)
    try:
        _wait(session, number, tell=patience is None)
    except TooLate:
        _give_up(session, number)
        raise Failed(NOT_NOW, name=BUSY, subject="immediate") from None
    except Interrupted as end:
        _give_up(session, number)
        gone = f"Job allocation {number} has been revoked" if Program.is_slurms() else f"job {number} was cancelled"
        raise Failed(f"{gone} while it waited", 128 + end.number) from None
    finally:
        session.until = None
    return number


def accepted(reply: "Mapping[str, object]") -> int:
    """Return the number of a new job, and print what its user should know."""
    warnings: Any = reply.get("warnings", ())
    for line in warnings:
        say(f"warning: {line}")
    return int(str(reply["job"]))


def _wait(session: "Session", number: int, *, tell: bool) -> None:
    """Wait until the job may be launched. Raises Failed."""
    seen, told = "", False
    while True:
        reply = asked(session, job=number, seen=seen)
        state, words = str(reply["state"]), str(reply["words"])
        if state in BEGUN:
            break
        if state != PENDING:
            raise Failed(f"job {number} ended before it began: {state}{f': {words}' if words else ''}")
        if not told and tell:
            if Program.name == "salloc":
                say(f"Pending job allocation {number}")
            say(f"job {number} queued and waiting for resources{f': {words}' if words else ''}")
            told = True
        seen = str(reply["seen"])
    if told:
        say(f"job {number} has been allocated resources")


def until_over(session: "Session", number: int) -> int:
    """Wait until a job or array has ended, and return the exit status, for an array the highest. Raises Failed."""
    left = [number]
    while left:
        _until_ended(session, left[0])
        jobs: list[Mapping[str, object]] = session.call("Queue", jobs=[str(number)])["jobs"]  # type: ignore[assignment]
        left = [int(str(job["job"])) for job in jobs]
    record: Mapping[str, object] = session.call("ShowJob", job=str(number))["record"]  # type: ignore[assignment]
    if record.get("array_job"):
        status, words = end_of_array(session, number)
        if words and not Program.is_slurms():
            say(words)
        return status
    status = exit_status_of(record)
    if status and not Program.is_slurms():
        say(how_it_failed(record, str(number)))
    return status


def exit_status_of(record: "Mapping[str, object]") -> int:
    """Return the exit status of an ended job, by its record: never 0 for one that did not complete."""
    return int(str(record["exit_code"])) or int(record["state"] != COMPLETED)


def how_it_failed(record: "Mapping[str, object]", name: str) -> str:
    """Return a line on how a job ended that failed."""
    why = record["words"] or (f"exit status {record['exit_code']}" if record["exit_code"] else "")
    return f"job {name}: {record['state']}{f': {why}' if why else ''}; `nodectl show {name}` tells more"


def _until_ended(session: "Session", number: int) -> None:
    seen = ""
    while True:
        reply = asked(session, job=number, seen=seen)
        if reply["state"] not in IN_QUEUE:
            return
        seen = str(reply["seen"])


def end_of_array(session: "Session", array: int) -> tuple[int, str]:
    """Return the highest exit status of an array's tasks, and a line that names a task which failed, "" for none.

    Of each task the latest run counts. The status is 1 at least for a task that did not complete. Raises Failed.
    """
    latest: dict[object, tuple[int, int, int, str]] = {}  # by job: run, status, task, its end, of those not all well
    known = False
    for record in _runs(session, array):
        known = True
        is_well = record["job_state"] in (COMPLETED, REQUEUED)
        run = int(str(record.get("restart_cnt", 0))), int(str(record.get("exit_code", 0))) or int(not is_well)
        if any(run) and run >= latest.get(record["job_id"], (0, 0))[:2]:
            task, waited = record.get("array_task_id"), record.get("array_tasks")
            name = f"{array}_[{waited}]" if waited else array if task is None else f"{array}_{task}"
            latest[record["job_id"]] = (*run, int(str(task or 0)), f"{name}: {record['job_state']}")
    if not known:
        raise Failed(f"how the tasks of job {array} ended is told to its user and admins, as long as it is kept")
    failed = [(task, how, status) for _, status, task, how in latest.values() if status]
    if not failed:
        return 0, ""
    words = f"job {array}: not all of its tasks ended well, as {min(failed)[1]}; `nodectl acct -j {array}` lists them"
    return max(status for *_, status in failed), words


def _runs(session: "Session", array: int) -> "Iterator[Mapping[str, object]]":
    """Yield the records of an array's runs, page by page."""
    wanted: dict[str, Any] = {"of": "jobs", "jobs": [array]}
    while True:
        page = patiently(session, "Accounting", **wanted)
        yield from page["records"]  # type: ignore[misc]
        if not page["next"]:
            return
        wanted["next"] = page["next"]


def asked(session: "Session", **parameters: object) -> "Mapping[str, object]":
    """Return the reply to Await, see `patiently`."""
    return patiently(session, "Await", **parameters)


def patiently(session: "Session", method: str, **parameters: object) -> "Mapping[str, object]":
    """Return the reply to a call that may be repeated; if the service is gone, ask the successor. Raises Failed.

    Where signals are held, raises Interrupted and TooLate, too.
    """
    until = time.monotonic() + _WITHOUT_SERVICE
    while True:
        try:
            return session.call(method, (), **parameters)
        except Gone:
            if session.private is not None:
                raise
            while not session.reconnect():
                if time.monotonic() > until:
                    raise
                if session.signals is None:
                    time.sleep(_ASKED_AGAIN)
                else:
                    session.signals.rest(_ASKED_AGAIN)


def _give_up(session: "Session", number: int) -> None:
    if not session.reconnect():  # the old connection waits for an answer
        return
    session.until = time.monotonic() + _GIVEN_UP
    try:
        session.call("Cancel", jobs=[str(number)])
    except (Failed, Interrupted, TooLate):
        return  # over already; else the service gives the job up when no client asks for it


def launch(
    session: "Session", request: "dict[str, object]", busy: Failed, patience: int | None
) -> "tuple[int, int, Events]":
    """Wait for the turn of a step which Launch could not start at once, and launch the step. Raises Failed."""
    of_job = request.get("jobid") or (request["job"] if "step" in request else 0)
    if not of_job:
        wanted = {**request, "environment": told(request)}
        if busy.job:
            wanted["job"] = busy.job  # its plugins know it by this number
        request["job"] = job(session, wanted, {}, patience)
        return session.launch(request)
    if patience is not None:
        raise Failed(NOT_NOW, name=BUSY, subject="immediate")
    say(f"job {of_job} step creation temporarily disabled, retrying (Requested nodes are busy)")
    seen = ""
    while True:
        seen = str(asked(session, job=of_job, seen=seen, step=True)["seen"])
        try:
            return session.launch(request)
        except Failed as failed:
            if failed.name != BUSY:
                raise


def told(request: "Mapping[str, object]") -> dict[str, str]:
    """Return the variables SLURM_* and SRUN_* of the request, which the service reads before a step exists."""
    environment: Mapping[str, str] = request.get("environment", {})  # type: ignore[assignment]  # make_request's
    return {name: value for name, value in environment.items() if name.startswith(("SLURM_", "SRUN_"))}


def say(line: str) -> None:
    """Write a line to stderr, in srun's style. Words of other users may be in it."""
    if Program.quiet:
        return
    if not line.isprintable():
        from nodectl.messages import printable

        line = printable(line)
    try:
        os.write(sys.stderr.fileno(), f"{Program.name}: {line}\n".encode())
    except OSError:
        return  # stderr has no reader
