"""squeue: the jobs of the queue, or with -s the running steps, in squeue's columns."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

from nodectl.client.command import Failed, GlobalOptions
from nodectl.client.render.terminal import put
from nodectl.client.session import Session
from nodectl.model.states import IN_QUEUE, PENDING
from nodectl.slurm.commands import jobs, machine_facts, sort_order, step_fields
from nodectl.slurm.commands.column_format import Layout, by_letters, by_names, lines_of
from nodectl.slurm.commands.command_line import HELP, again_and_again, read_line, tell_settings
from nodectl.slurm.commands.host_names import expanded
from nodectl.slurm.commands.job_fields import FIELDS, STATES
from nodectl.slurm.commands.job_values import as_json
from nodectl.slurm.commands.option_words import ARGUMENT, MAYBE_ARGUMENT, Given, Option
from nodectl.slurm.commands.time_words import line_of_now

_USUAL = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
_STARTS = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
_STEPS = "%.15i %.8j %.9P %.8u %.9M %N"
_STEPS_LONG = "%.15i %.8j %.9P %.8u %.9l %.9M %N"
_TABLE = (
    Option("account", "A", ARGUMENT, "of these accounts"),
    Option("all", "a", text="of all partitions (there is one)"),
    Option("array", "r", text="tasks of arrays one by one"),
    Option("format", "o", ARGUMENT, "columns: %[.][width]letter"),
    Option("Format", "O", ARGUMENT, "columns: name[:[.]width],..."),
    Option("iterate", "i", ARGUMENT, "again every so many seconds"),
    Option("jobs", "j", MAYBE_ARGUMENT, "these jobs: 7,8_3"),
    Option("json", "", text="one JSON object"),
    Option("long", "l", text="more columns"),
    Option("me", "", text="your own"),
    Option("name", "n", ARGUMENT, "of these names"),
    Option("noheader", "h", text="no line of headers"),
    Option("nodelist", "w", ARGUMENT, "on these nodes"),
    Option("partitions", "p", ARGUMENT, "of any partition: all names are the one that there is"),
    Option("qos", "q", ARGUMENT, "of these qualities of service"),
    Option("reservation", "R", ARGUMENT, "in this reservation"),
    Option("sort", "S", ARGUMENT, "by these letters of --format, - for the highest first"),
    Option("start", "", text="those that wait, and when they are expected to start"),
    Option("states", "t", ARGUMENT, "in these states, or all"),
    Option("steps", "s", MAYBE_ARGUMENT, "these steps: 7.0,8, or all"),
    Option("user", "u", ARGUMENT, "of these users"),
    *HELP,
    Option("accounts", "", ARGUMENT, same="account"),
    Option("node", "", ARGUMENT, same="nodelist"),
    Option("nodes", "", ARGUMENT, same="nodelist"),
    Option("users", "", ARGUMENT, same="user"),
    Option("array-unique"),
    Option("cluster", "", ARGUMENT, same="clusters"),
    Option("clusters", "M", ARGUMENT),
    Option("federation"),
    Option("hide"),
    Option("licenses", "L", ARGUMENT),
    Option("local"),
    Option("noconvert"),
    Option("priority", "P"),
    Option("sibling"),
)


def main(settings: GlobalOptions, words: list[str]) -> int:
    """Run the whole command. Return the exit status."""
    given = read_line(_joined(words), _TABLE, "[OPTIONS]")
    tell_settings(given, _TABLE)
    layout = _layout(given)

    def show() -> None:
        with closing(Session(settings, start_private=False)) as session:
            found = _steps(session, given) if "steps" in given else _jobs(session, given, more=layout.needs_more())
        if "json" in given:
            print(json.dumps({"jobs": [as_json(job) for job in found], "errors": []}, indent=2))
        else:
            put(_lines(layout, found, given))

    return again_and_again(given, show)


def _joined(words: list[str]) -> list[str]:
    """Join -j and -s with the optional argument, which begins with a digit or is `all`."""
    found: list[str] = []
    for word in words:
        if found and found[-1] in ("-j", "--jobs", "-s", "--steps") and (word[:1].isdigit() or word == "all"):
            found[-1] += f"={word}" if found[-1].startswith("--") else word
        else:
            found.append(word)
    return found


def _layout(given: Given) -> Layout:
    """Return the layout of the columns; SQUEUE_FORMAT and SQUEUE_FORMAT2 replace --format and --Format."""
    fields = step_fields.FIELDS if "steps" in given else FIELDS
    if "Format" in given:
        return by_names(given.value("Format"), fields)
    if "format" in given:
        return by_letters(given.value("format"), fields)
    if "steps" in given:
        return by_letters(_STEPS_LONG if "long" in given else _STEPS, fields)
    if "long" in given or "start" in given:
        return by_letters(_STARTS if "start" in given else _LONG, fields)
    if names := os.environ.get("SQUEUE_FORMAT2"):
        return by_names(names, fields)
    return by_letters(os.environ.get("SQUEUE_FORMAT") or _USUAL, fields)


def _lines(layout: Layout, found: Iterable[dict[str, Any]], given: Given) -> Iterator[str]:
    header = "noheader" not in given
    if "long" in given and header:
        yield line_of_now(time.time())
    yield from lines_of(layout, found, header=header)


def _jobs(session: Session, given: Given, *, more: bool) -> list[dict[str, Any]]:
    if "nodelist" in given:
        machine_facts.look_for_nodes(session, expanded(given.value("nodelist")))
    names = jobs.jobs_named(given.options.get("jobs", ()))
    users = _users(given)
    states = jobs.states_named(_words(given, "states", "SQUEUE_STATES"))
    job_names = _words(given, "name", "SQUEUE_NAMES")
    states = [PENDING] if "start" in given and not states else states
    found = jobs.queued(session, {"jobs": names, "users": users, "states": [one for one in states if one in IN_QUEUE],
                                  "names": job_names})  # fmt: skip
    if states and not set(states) & set(IN_QUEUE):
        found = []
    if set(states) - set(IN_QUEUE):
        found += [job for job in jobs.ended(session, names) if _has(job, users, states, job_names)]
    if len(names) == 1 and not found and jobs.record_of(session, names[0]) is None:
        raise Failed(f"{jobs.INVALID}: {names[0]}")
    found = [job for job in found if _is_meant(job, given)]
    if "array" in given:
        found = list(jobs.one_by_one(found))
    if more or "json" in given:
        found = [{**(jobs.record_of(session, str(job["job"])) or {}), **job} for job in found]
    order = given.value("sort", os.environ.get("SQUEUE_SORT", "S" if "start" in given else "t,-Q,A"))
    return sort_order.ordered(found, order, FIELDS, {"t": _place_of_state, "T": _place_of_state})


def _users(given: Given) -> list[str]:
    return jobs.users_named(_words(given, "user", "SQUEUE_USERS")) + ([jobs.me()] if "me" in given else [])


def _words(given: Given, name: str, variable: str) -> list[str]:
    """Return the words of an option, or else of the option's variable."""
    if name in given:
        return given.listed(name)
    return [word for word in os.environ.get(variable, "").split(",") if word]


def _has(job: dict[str, Any], users: list[str], states: list[str], names: list[str]) -> bool:
    """Return True if an ended job matches the filters."""
    return (
        job["state"] in states and (not users or str(job["uid"]) in users) and (not names or job.get("name") in names)
    )


def _is_meant(job: dict[str, Any], given: Given) -> bool:
    """Return True if the job matches the filters unknown to the service."""
    if "account" in given and str(job.get("account")) not in map(str.lower, given.listed("account")):
        return False
    for option in ("qos", "reservation"):
        if option in given and str(job.get(option) or "") not in given.listed(option):
            return False
    return "nodelist" not in given or bool(job.get("nodes"))


def _place_of_state(job: dict[str, Any]) -> int:
    return list(STATES).index(job["state"]) if job["state"] in STATES else len(STATES)


def _steps(session: Session, given: Given) -> list[dict[str, Any]]:
    wanted = given.listed("steps")
    wanted = [] if "all" in wanted else wanted
    wanted += jobs.jobs_named(given.options.get("jobs", ()))
    users = _users(given)
    names = _words(given, "name", "SQUEUE_NAMES")
    found = step_fields.running(session)
    return [
        step
        for step in found
        if (not wanted or {step["id"], str(step["job"])} & set(wanted))
        and (not users or str(step["uid"]) in users)
        and (not names or step["name"] in names)
    ]
