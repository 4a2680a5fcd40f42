"""`nodectl show`: print all facts of a step, running or ended, and of a job that waits."""

import argparse
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any, cast

from nodectl.client.command import Failed, complain
from nodectl.client.job_name import add_jobs, named
from nodectl.client.render.job_columns import command_words, devices_of, job_facts, name_of
from nodectl.client.render.table import pairs, table
from nodectl.client.render.terminal import put
from nodectl.client.session import Session
from nodectl.model.states import PENDING
from nodectl.model.step_number import FIRST, step_name
from nodectl.model.wire.names import NODE
from nodectl.model.words import byte_words, commands_words, cpu_list, duration, elapsed

TASK_HEADER = ("TASK", "PID", "STATUS", "CPUS", "USER", "SYSTEM", "MAXRSS", "PEAK", "WAITED")
_RIGHT = ("TASK", "PID", "USER", "SYSTEM", "MAXRSS", "PEAK", "WAITED")
_SIGNAL_BASE = 128
# known of the job, and shown with its first step
_OF_JOB = ("command", "output", "errors", "time_limit", "gres", "notice_failed")
_BULK_COUNTS = ("running", "waiting", "succeeded", "failed", "not_executed", "timed_out", "out_of_memory", "signalled",
                "withdrawn")  # fmt: skip
_SAID = {"memory.max": "memory", "memory.swap.max": "swap space", "pids.max": "processes", "cpu.max": "CPU time",
         "cpu.weight": "weight of CPU time", "io.max": "disks", "io.weight": "weight of disks"}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl show` to the parser."""
    add_jobs(parser, "the steps; a job alone means its first step, or the job while it waits", steps=True)
    parser.add_argument(
        "--json", action="store_true", help='print one JSON object: the record; of several {"records": [...]}'
    )
    parser.epilog = (
        "USER and SYSTEM are seconds of CPU time, MAXRSS the most memory a task's process had resident. Of a task and "
        "all that it started PEAK is the most memory, WAITED the seconds for which some of it waited for "
        "CPU/memory/disks."
    )


def main(arguments: argparse.Namespace) -> int:
    """Print the records. Return 0; of several 1, with a line on stderr for each that was not found."""
    session = Session(arguments.settings)
    records: list[Mapping[str, Any]] = []
    try:
        names = named(session, arguments.jobs, apart=True)
        for name in names:
            try:
                record, lines = _found(session, name)
            except Failed as failed:
                if len(names) == 1:
                    raise
                complain(str(failed))
                continue
            if not arguments.json:
                put([*([""] if records else []), *lines])
            records.append(record)
    finally:
        session.close()
    if arguments.json:
        print(json.dumps(records[0] if len(names) == 1 else {"records": records}, indent=2))
    return int(len(records) < len(names))


def _found(session: Session, name: "str | tuple[int, int]") -> tuple[Mapping[str, Any], list[str]]:
    """Return the record of a step, or of a job without steps, and the lines about it. Raises Failed."""
    if isinstance(name, tuple):
        record: Any = session.call("Show", job=name[0], step=name[1])["record"]
        return record, text_of(record, time.time(), _array_task(session, name[0]))
    job = None
    try:
        job = cast("dict[str, Any]", session.call("ShowJob", job=name)["record"])
    except Failed:
        if not name.isdecimal():
            raise
    if job is not None and (job["state"] == PENDING or job["array_tasks"]):
        return job, pairs(job_facts(job))
    try:
        record = session.call("Show", job=int(name) if job is None else job["job"], step=FIRST)["record"]
    except Failed as failed:
        if failed.name != f"{NODE}.NoSuchStep":
            raise
        if job is None:
            raise
        return job, pairs(job_facts(job))
    if job is not None:
        record = {**record, **{key: job[key] for key in _OF_JOB if job.get(key)}}
    task = _name_in_array(job)
    if job is not None and task and name == str(job["array_job"]):
        task = f"{task}; `nodectl acct -j {name}` lists all tasks"
    return record, text_of(record, time.time(), task)


def _array_task(session: Session, number: int) -> str:
    """Return the name of a job in its array, as 7_3; "" for any other job, and where the service knows no such job."""
    try:
        job: Any = session.call("ShowJob", job=str(number))["record"]
    except Failed:
        return ""
    return _name_in_array(job)


def _name_in_array(job: Mapping[str, Any] | None) -> str:
    return name_of(job) if job is not None and job["array_task"] is not None else ""


def _bulk_lines(bulk: Mapping[str, Any]) -> list[str]:
    """Return the lines about a bulk step: counts of the commands, and details of some."""
    counts = [f"{bulk[name]} {name.replace('_', ' ')}" for name in _BULK_COUNTS if bulk.get(name)]
    lines = [f"{bulk['commands']} commands begun: {', '.join(counts) or 'none has ended'}"]
    for title, key, words in (("FAILED", "failures", _failure_words), ("SLOWEST", "slowest", _slow_words)):
        rows = [(row["seq"], words(row), row["command"]) for row in bulk.get(key) or ()]
        lines += ["", *table((title, "HOW", "COMMAND"), rows, right=(title,))] if rows else []
    return lines


def _failure_words(row: Mapping[str, Any]) -> str:
    return str(row.get("why") or status_words(row["status"]))


def _slow_words(row: Mapping[str, Any]) -> str:
    return f"{row['seconds']:.3f} s"


def text_of(record: Mapping[str, Any], now: float, array_task: str = "") -> list[str]:
    """Return the record as lines; `now` is seconds since the epoch, `array_task` the job's name in an array, as 7_3."""
    facts = list(_facts(record, now))
    if array_task:
        facts.insert(1, ("array task", array_task))
    lines = pairs(facts)
    if nodes := record.get("nodes"):
        lines += ["", *table(("NODE", "TASKS", "STATE", "REASON"), [_node_row(node) for node in nodes])]
    tasks = record.get("tasks") or []
    if tasks:
        lines += ["", *table(TASK_HEADER, [_task_row(task) for task in tasks], right=_RIGHT)]
    if record.get("bulk"):
        told = [commands_words(record["commands"])] if record.get("commands") else []
        lines += ["", *told, *_bulk_lines(record["bulk"])]
    return lines


def status_words(status: int | None) -> str:
    """Return a wait status in words: `exit code 0`, `signal 15 (SIGTERM)`, `running` for none."""
    if status is None:
        return "running"
    if os.WIFSIGNALED(status):
        dumped = ", core dumped" if os.WCOREDUMP(status) else ""
        return f"signal {_signal_words(os.WTERMSIG(status))}{dumped}"
    return f"exit code {os.WEXITSTATUS(status)}"


def _signal_words(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)


def _facts(record: Mapping[str, Any], now: float) -> Iterator[tuple[str, object]]:
    group = f", gid {record['gid']}" if "gid" in record else ""
    yield "step", step_name(name_of(record), record["step"])
    yield "name", record["name"]
    yield "user", f"{record['user']} (uid {record['uid']}{group})"
    yield "node", record["node"]
    yield "command", command_words(record["command"])
    yield "directory", record["cwd"]
    yield from _files(record)
    yield "state", record["state"]
    for key in ("reason", "epilog", "container", "resources"):
        if record.get(key):
            yield key, record[key]
    if record.get("exit_status") is not None:
        yield "exit status", _exit_words(record["exit_status"])
    for key in ("submitted", "started", "ended"):
        if record.get(key) is not None:
            yield key, _moment(record[key])
    yield "elapsed", duration(elapsed(record, now))
    if record.get("time_limit"):
        yield "time limit", duration(record["time_limit"])
    yield "tasks", record["ntasks"]
    yield "CPUs", f"{record['cpu_count']} in all" if record.get("cpu_count") else cpu_list(record["cpus"])
    if record.get("gres"):
        yield "devices", devices_of(record["gres"])
    yield from _uses(record)
    if record.get("secure"):
        yield "secure", record["secure"]
    if record.get("notice_failed"):
        yield "not told", record["notice_failed"]
    if record.get("pid"):
        yield "runner", f"pid {record['pid']}"
    if record.get("cgroup"):
        yield "cgroup", record["cgroup"]


def _files(record: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield the files that the first task writes."""
    if record.get("output"):
        yield "output", record["output"]
    if record.get("errors") and record["errors"] != record.get("output"):
        yield "errors", record["errors"]


def _uses(record: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield the step's limits and use, as far as the cgroup reported."""
    peak = record.get("peak_memory")
    if record.get("memory") or peak is not None:
        limit = f" of {byte_words(record['memory'] << 20)}" if record.get("memory") else ""
        yield "peak memory", ("unknown" if peak is None else byte_words(peak)) + limit
    if record.get("peak_swap"):
        yield "peak swap space", byte_words(record["peak_swap"])
    if record.get("peak_processes") is not None:
        yield "peak processes", record["peak_processes"]
    limits = ", ".join(_limit(name, text) for name, text in record.get("limits", {}).items() if _what(name))
    if limits:
        yield "limits", limits
    if record.get("throttled_seconds"):
        yield "over its CPU time", f"{record['throttled_seconds']:.3f} s without any"
    if record.get("read_bytes") is not None:
        yield "disks", f"{byte_words(record['read_bytes'])} read, {byte_words(record['written_bytes'])} written"
    if record.get("pressure"):
        waits = (f"{resource} {seconds[0]:.3f} s" for resource, seconds in record["pressure"].items())
        yield "waited for", ", ".join(waits)
    if record.get("login_processes"):
        yield "login sessions", f"{record['login_processes']} processes"


def _what(name: str) -> str:
    """Return the resource limited by a file of the step's cgroup, "" for a file omitted by `show`."""
    if name.startswith("hugetlb."):
        return f"pages of {name.split('.')[1]}"
    return _SAID.get(name, "")


def _limit(name: str, text: str) -> str:
    """Return the content of a file of the step's cgroup in words."""
    what = _what(name)
    if name == "cpu.max" and not text.startswith("max"):
        quota, period = map(int, text.split())
        return f"{what} {100 * quota / period:g}%"
    if name.startswith(("memory.", "hugetlb.")) and text.isdecimal():
        return f"{what} {byte_words(int(text))}"
    return f"{what} {text.split(maxsplit=1)[0] if name == 'cpu.max' else text}".replace("\n", "; ")


def _exit_words(status: int) -> str:
    return f"{status} (signal {_signal_words(status - _SIGNAL_BASE)})" if status > _SIGNAL_BASE else str(status)


def _moment(seconds: float) -> str:
    """Return local time with the offset, to the millisecond."""
    at = time.localtime(seconds)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', at)}.{int(seconds * 1000) % 1000:03d} {time.strftime('%z', at)}"


def _node_row(node: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the cells about a node's part of a step over several nodes."""
    return node["node"], node["tasks"], node["state"], node.get("reason") or "-"


def _task_row(task: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the cells of a task; a running task has neither CPU times nor memory yet."""
    has_started = task["pid"] > 0
    return (
        task["task"],
        task["pid"] if has_started else "-",
        status_words(task["status"]) if has_started else "not started",
        cpu_list(task.get("cpus", "")),
        f"{task['user_seconds']:.3f} s" if "user_seconds" in task else "-",
        f"{task['system_seconds']:.3f} s" if "system_seconds" in task else "-",
        byte_words(task["max_rss_kib"] << 10) if "max_rss_kib" in task else "-",
        byte_words(task["peak_memory"]) if task.get("peak_memory") is not None else "-",
        "/".join(f"{some:.1f}" for some, _ in task["pressure"].values()) if task.get("pressure") else "-",
    )
