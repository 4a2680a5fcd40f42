"""scancel: end or signal jobs and steps."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from nodectl.cli.cancel import end_step
from nodectl.cli.send_signal import signal_of
from nodectl.client.command import Failed, GlobalOptions, complain
from nodectl.client.job_name import names_of, one_step
from nodectl.client.render.job_columns import name_of
from nodectl.client.session import Session
from nodectl.client.waiting import say
from nodectl.model.states import IN_QUEUE
from nodectl.model.wire.names import NODE
from nodectl.model.words import printable
from nodectl.scheduler import job_array
from nodectl.slurm.commands import jobs
from nodectl.slurm.commands.command_line import HELP, read_line
from nodectl.slurm.commands.option_words import ARGUMENT, Given, Option

_TABLE = (
    Option("account", "A", ARGUMENT, "jobs of this account"),
    Option("batch", "b", text="signal the batch script alone"),
    Option("full", "f", text="signal the batch script too"),
    Option("interactive", "i", text="ask before each job"),
    Option("me", "", text="your own jobs"),
    Option("jobname", "", ARGUMENT, "as --name"),
    Option("name", "n", ARGUMENT, "jobs of this name"),
    Option("nodelist", "w", ARGUMENT, "jobs on these nodes"),
    Option("partition", "p", ARGUMENT, "jobs of this partition"),
    Option("qos", "q", ARGUMENT, "jobs of this quality of service"),
    Option("quiet", "Q", text="say nothing of jobs that have ended"),
    Option("reservation", "R", ARGUMENT, "jobs in this reservation"),
    Option("signal", "s", ARGUMENT, "send this signal instead of ending them"),
    Option("state", "t", ARGUMENT, "jobs in this state: PENDING, RUNNING, SUSPENDED"),
    Option("user", "u", ARGUMENT, "jobs of this user"),
    Option("wckey", "", ARGUMENT, "jobs with this key: none, there are no such keys"),
    *HELP,
    Option("clusters", "M", ARGUMENT),
    Option("ctld"),
    Option("hurry", "H"),
    Option("sibling", "", ARGUMENT),
)
_CHOICES = ("account", "me", "jobname", "name", "nodelist", "partition", "qos", "reservation", "state", "user", "wckey")
_BY_COMMAND = ("account", "nodelist", "partition", "qos", "reservation", "wckey")  # the service has no filter for these
_VARIABLES = {"SCANCEL_ACCOUNT": "account", "SCANCEL_BATCH": "batch", "SCANCEL_FULL": "full", "SCANCEL_NAME": "name",
              "SCANCEL_INTERACTIVE": "interactive", "SCANCEL_PARTITION": "partition", "SCANCEL_QOS": "qos",
              "SCANCEL_STATE": "state", "SCANCEL_USER": "user", "SCANCEL_VERBOSE": "verbose"}  # fmt: skip
_FLAGS = ("batch", "full", "interactive", "verbose")
_GONE = (f"{NODE}.NoSuchJob", f"{NODE}.NoSuchStep", f"{NODE}.WrongState")


def main(settings: GlobalOptions, words: list[str]) -> int:
    """Run the whole command. Return the exit status."""
    given = read_line(words, _TABLE, "[OPTIONS] [JOB[_TASK][.STEP]...]")
    _from_variables(given)
    names = [part for word in given.words for part in _parts(word)]
    if not names and not any(choice in given for choice in _CHOICES):
        raise Failed("No job identification provided")
    for name in names:  # check all names first
        if "." in name:
            _check_step(name)
        else:
            jobs.jobs_named([name])
    number = _signal(given)
    choice = _choice(given)
    with closing(Session(settings, start_private=False)) as session:
        status, found = 0, 0
        for name in _chosen(session, given, names, choice):
            found += 1
            status |= _cancel(session, given, name, choice, number)
        if not found and not names:
            _say_that_none_matches(given)
        return status


def _from_variables(given: Given) -> None:
    for variable, option in _VARIABLES.items():
        text = os.environ.get(variable)
        if text is None or option in given or (option in _FLAGS and text.lower() in ("0", "no", "false")):
            continue
        given.options[option] = [text]


def _parts(word: str) -> list[str]:
    """Return the jobs between commas; a word with brackets is a single job."""
    return [word] if "[" in word else [part for part in word.split(",") if part]


def _signal(given: Given) -> int | None:
    if "signal" not in given:
        return None
    try:
        return signal_of(given.value("signal"))
    except ValueError:
        raise Failed(f"Unknown job signal: {given.value('signal')[:20]}") from None


def _choice(given: Given) -> dict[str, list[str]]:
    """Return the service's filters of jobs. Raises Failed for an empty filter, which must not mean all jobs."""
    for option in ("user", "name", "jobname"):
        if option in given and not given.listed(option):
            raise Failed(f"Invalid {option}: nothing is given")
    wanted = {
        "users": jobs.users_named(given.listed("user")) + ([jobs.me()] if "me" in given else []),
        "names": given.listed("name", "jobname"),
        "states": [state for state in jobs.states_named(given.listed("state")) if state in IN_QUEUE],
    }
    if "state" in given and not wanted["states"]:
        raise Failed(f"Invalid job state specified: {given.value('state')[:40]}: such jobs have ended")
    return {name: value for name, value in wanted.items() if value}


def _chosen(session: Session, given: Given, names: list[str], choice: dict[str, list[str]]) -> Iterator[str]:
    """Yield the requested jobs and steps; "" for all jobs chosen by the service."""
    if "interactive" not in given and not any(option in given for option in _BY_COMMAND):
        yield from names or [""]
        return
    steps = [name for name in names if "." in name]
    asks = "interactive" in given
    over = [name for name in names if name not in steps and asks and _is_over(session, name)]  # before any is cancelled
    for job in _queued(session, names, choice):
        if _has(job, given) and (not asks or _asked(job)):
            yield f"{job['job']}_[{job['array_tasks']}]" if job.get("array_tasks") else str(job["job"])
    yield from over
    yield from (name for name in steps if not asks or _confirmed(f"step_id={name}"))


def _queued(session: Session, names: list[str], choice: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    """Yield the queue's jobs with the given names, or all jobs; of a row of waiting tasks, only the named tasks."""
    if not names:
        yield from jobs.queued(session, choice)
    for name in jobs.jobs_named(name for name in names if "." not in name):
        tasks = name.partition("_")[2]
        for job in jobs.queued(session, {"jobs": [name], **choice}):
            if not tasks or not job.get("array_tasks"):
                yield job
            elif both := _in_both(job["array_tasks"], tasks):
                yield {**job, "array_tasks": both}


def _in_both(waiting: str, named: str) -> str:
    every = job_array.tasks_of(waiting)
    try:
        return job_array.text_of(job_array.common(every, job_array.tasks_of(named)))
    except ValueError as error:
        raise Failed(f"Invalid job id: {named[:40]}: {error}") from None


def _has(job: dict[str, Any], given: Given) -> bool:
    """Return True if the job matches the filters unknown to the service."""
    for option in _BY_COMMAND:
        own = {str(job.get("nodes") or "")} if option == "nodelist" else {str(job.get(option) or "")}
        wanted = given.listed(option)
        if option in given and not own & {*wanted, *map(str.lower, wanted)}:
            return False
    return True


def _is_over(session: Session, name: str) -> bool:
    return not jobs.queued(session, {"jobs": jobs.jobs_named([name])})


def _asked(job: dict[str, Any]) -> bool:
    return _confirmed(f"job_id={name_of(job)} name={job.get('name')} partition={job.get('partition')}")


def _confirmed(what: str) -> bool:
    print(f"Cancel {printable(what)} [y/n]? ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _cancel(session: Session, given: Given, name: str, choice: dict[str, list[str]], number: int | None) -> int:
    """Cancel a job or step, or for "" all chosen jobs. Return 0, or 1 after printing the error."""
    if "verbose" in given:
        job = "batch job" if "batch" in given else "job"
        what = f"step {name}" if "." in name else f"{job} {name}" if name else f"{job}s"
        say(f"Signal {number} to {what}" if number is not None else f"Terminating {what}")
    try:
        if "." in name:
            end_step(session, *one_step(session, [name]), number)
            return 0
        wanted: dict[str, Any] = {**choice}
        if name:
            wanted["jobs"] = jobs.jobs_named([name])
        if number is not None:
            wanted["signal"] = number
        reply: Any = {}
        if "batch" in given or "full" in given:
            reply = session.call("Cancel", (), **wanted, batch=True)
        if "batch" not in given and ("full" not in given or number != signal.SIGKILL):
            reply = session.call("Cancel", (), **wanted)
        if not name and not reply["cancelled"]:
            _say_that_none_matches(given)
    except Failed as failed:
        return _told(session, given, name, failed)
    return 0


def _say_that_none_matches(given: Given) -> None:
    if "verbose" in given:
        filters = ", ".join(f"{option}={given.value(option)}" for option in _CHOICES if option in given)
        say(f"No active jobs match ALL job filters, including: {filters}")


def _check_step(name: str) -> None:
    try:
        names_of(name)
    except ValueError:
        raise Failed(f"Invalid job id {name[:40]}") from None


def _told(session: Session, given: Given, name: str, failed: Failed) -> int:
    """Print the error of a failed cancel. Return 0 if the job has ended or never existed, else 1.

    An unknown step counts as a failure.
    """
    if failed.name not in _GONE:
        complain(f"Kill job error on job id {name}: {failed}")
        return 1
    job = name.partition(".")[0]
    if not job:
        return 0
    if jobs.record_of(session, job) is not None or failed.name == f"{NODE}.WrongState":
        if "verbose" in given or "interactive" in given:
            complain(f"Kill job error on job id {name}: Job/step already completing or completed")
        return 0
    if "." in name:
        if "quiet" not in given:
            complain(f"Kill job error on job id {name}: {jobs.INVALID}")
        return 1
    if "verbose" in given:
        complain(f"Kill job error on job id {name}: {jobs.INVALID}")
    return 0
