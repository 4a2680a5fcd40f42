"""`nodectl resubmit`: submit a batch job once more, with script, options, environment and directory as they were.

The service keeps what a job was submitted with. This command asks for it, puts new options in the place of earlier
ones, and submits.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from nodectl.cli import submit
from nodectl.client.command import BadOption, Failed, GlobalOptions
from nodectl.client.job_command import JobCommand, run_command
from nodectl.client.job_name import names_of, one
from nodectl.client.launch_request import job_environment
from nodectl.client.run_options import Parsed
from nodectl.client.session import Session
from nodectl.model.states import COMPLETED, IN_QUEUE
from nodectl.placement.binding import options as layout_options
from nodectl.scheduler import job_array

_OF_THEN = ("begin", "deadline", "dependency", "hold")  # options about the time of the first submission
_NOT_FAILED = (*IN_QUEUE, COMPLETED)
_MEMORY = frozenset({"mem", "mem_per_cpu"})  # of which a request has one
_RENAMED = {"chdir": "cwd", "propagate": "rlimits"}


def main(settings: GlobalOptions, words: Sequence[str]) -> int:
    """Run the whole command. Return the exit status."""
    return run_command("resubmit", settings, words, _resubmit)


def _resubmit(command: JobCommand) -> int:
    command.take_options_behind_words()
    if not command.read():
        return 0
    values, argv = command.parsed.values, command.parsed.argv
    if len(argv) != 1:
        raise BadOption(
            f"one job at a time, and nothing besides it and options: these are {len(argv)} words"
            if argv
            else "which job? As in `nodectl resubmit 7`, or last",
            2,
        )
    waits, parsable, failed = (bool(values.pop(name, False)) for name in ("wait", "parsable", "failed"))
    try:
        names_of(argv[0], steps=False)
    except ValueError as error:
        raise BadOption(str(error), 2) from None
    job, _, tasks = str(one(command.session, argv)).partition("_")
    kept: Mapping[str, Any] = command.session.call("Script", job=job)
    options = {name: value for name, value in kept["job"].items() if name not in _OF_THEN}
    if tasks:
        _check_tasks(job, tasks, str(options.get("array", "")))
    if failed:
        tasks = _failed(command.session, job, tasks.removeprefix("[").removesuffix("]"))
    if tasks:
        options["array"] = (
            f"{tasks.removeprefix('[').removesuffix(']')}{''.join(str(options.get('array', '')).partition('%')[1:])}"
        )
    given = set(values)
    request, changed = command.request()
    renewed = _with_new(_of_its_user(kept, given), request, given)
    return submit.queued(command, renewed, options | changed, kept["script"], waits=waits, parsable=parsable)


def _check_tasks(job: str, tasks: str, array: str) -> None:
    """Raise Failed unless the array had these tasks."""
    if not array:
        raise Failed(f"job {job} is no array; the whole job: nodectl resubmit {job}", 2)
    indices = array.partition("%")[0]
    wanted = job_array.tasks_of(tasks)
    if job_array.size(job_array.common(job_array.tasks_of(indices), wanted)) != job_array.size(wanted):
        raise Failed(f"job {job} had the tasks {indices}, and no {tasks}", 2)


def _of_its_user(kept: Mapping[str, Any], given: set[str]) -> Mapping[str, Any]:
    """Return the kept request, which names user and group of another user's job: root never runs it as root.

    With --uid the group is no part of it, unless --gid names one.
    """
    old: Mapping[str, Any] = kept["request"]
    if "uid" in given:
        return {name: value for name, value in old.items() if name != "gid"}
    if kept["uid"] == os.geteuid():
        return old
    return {**old, "uid": str(kept["uid"]), "gid": str(kept["gid"])}


def _with_new(old: Mapping[str, Any], new: Mapping[str, Any], given: set[str]) -> dict[str, object]:
    """Return the old request with the fields whose options were given now."""
    fields = {_RENAMED.get(name, name) for name in given} & new.keys()
    kept = {name: value for name, value in old.items() if name not in _MEMORY or _MEMORY.isdisjoint(fields)}
    request = {**kept, **{name: new[name] for name in fields}}
    if layout := layout_options.changed(old.get("layout", {}), new.get("layout", {})):
        request["layout"] = layout
    if control := {**old.get("job_control", {}), **new.get("job_control", {})}:
        request["job_control"] = control
    if of_plugins := {tuple(words[:2]): words for words in (*old.get("options", ()), *new.get("options", ()))}:
        request["options"] = list(of_plugins.values())
    if "export" in given:
        return {**request, "environment": new["environment"]}
    plain = job_environment(Parsed())
    told = {name: value for name, value in new["environment"].items() if plain.get(name) != value}
    return {**request, "environment": {**old["environment"], **told}}


def _failed(session: Session, job: str, only: str) -> str:
    """Return the tasks of an array whose latest run failed, "" for a failed job that is no array. Raises Failed."""
    states: dict[int | None, str] = {}
    rests: list[str] = []  # tasks which have never been jobs of their own
    wanted: dict[str, Any] = {"of": "jobs", "jobs": [int(job)]}
    while wanted.get("next", "more"):
        page: Mapping[str, Any] = session.call("Accounting", **wanted)
        for record in page["records"]:
            if not (rest := record.get("array_tasks")):
                states[record.get("array_task_id")] = record["job_state"]
            elif record["job_state"] not in _NOT_FAILED:
                rests.append(rest)
        wanted["next"] = page["next"]
    failed = [task for task, state in states.items() if state not in _NOT_FAILED]
    if failed == [None]:
        return ""
    ran = job_array.compact(sorted(task for task in failed if task is not None))
    parts = [job_array.text_of(ran)] if ran else []
    tasks = job_array.tasks_of(",".join(parts + rests)) if parts or rests else []
    if only:
        tasks = job_array.common(tasks, job_array.tasks_of(only))
    if not tasks:
        raise Failed(f"nothing of job {job}{f'_[{only}]' if only else ''} has failed")
    return job_array.text_of(tasks)
