"""The columns of `nodectl queue`, computed from the service's jobs. Pure."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from nodectl.client.render.table import table
from nodectl.model.states import IN_QUEUE, PENDING, SHORT, SUSPENDED
from nodectl.model.wire.names import WRAP
from nodectl.model.words import byte_words, commands_words, duration, moment

Job = Mapping[str, Any]
_WIDEST = {"USER": 8, "NAME": 10}  # on a terminal that is too narrow, as in squeue


class Column(NamedTuple):
    """A column: the header, the function for a cell, and whether cells are flush right."""

    header: str
    cell: Callable[[Job], object]
    right: bool = False


def name_of(job: Job) -> str:
    """Return the user's name for the job: 7, 7_3, 7_[0-9]; 7.3 for a waiting step in a cluster."""
    if job.get("array_tasks"):
        limit = job.get("array_limit")
        return f"{job.get('array_job') or job['job']}_[{job['array_tasks']}{f'%{limit}' if limit else ''}]"
    if job.get("array_task") is not None and job.get("array_job"):
        return f"{job['array_job']}_{job['array_task']}"
    return str(job.get("id") or job["job"])


def _moment(key: str) -> Callable[[Job], object]:
    return lambda job: moment(job.get(key), "-")


def _text(key: str) -> Callable[[Job], object]:
    return lambda job: "-" if job.get(key) in (None, "", [], ()) else job[key]


def _listed(key: str) -> Callable[[Job], object]:
    def cell(job: Job) -> str:
        value = job.get(key) or "-"
        return value if isinstance(value, str) else ",".join(map(str, value))

    return cell


def _limit(job: Job) -> str:
    return duration(job["time_limit"]) if job.get("time_limit") else "-"


def _where(job: Job) -> str:
    """Return a running job's CPUs, devices and how far its bulk is, or the reason of a waiting or suspended job.

    A suspended job has no CPUs: another job may use them.
    """
    if job["state"] in (PENDING, SUSPENDED):
        reason, words = str(job.get("reason") or ""), str(job.get("words") or "")
        return f"{reason}: {words}" if reason and words and not words.startswith(reason) else words or reason or "-"
    cpus = f"CPUs {job['cpu_list']}" if job.get("cpu_list") else str(job.get("words") or "-")
    done = commands_words(job["commands"]) if job.get("commands") else ""
    return "; ".join(filter(None, (cpus, str(job.get("gres") or ""), done)))


COLUMNS: dict[str, Column] = {
    "job": Column("JOB", name_of),
    "user": Column("USER", _text("user")),
    "name": Column("NAME", _text("name")),
    "state": Column("STATE", _text("state")),
    "time": Column("TIME", lambda job: duration(job.get("used") or 0), right=True),
    "limit": Column("LIMIT", _limit, right=True),
    "cpus": Column("CPUS", _text("cpus"), right=True),
    "mem": Column("MIB", _text("memory"), right=True),
    "gres": Column("DEVICES", _listed("gres")),
    "priority": Column("PRIORITY", _text("priority"), right=True),
    "nice": Column("NICE", _text("nice"), right=True),
    "qos": Column("QOS", _text("qos")),
    "submit": Column("SUBMITTED", _moment("submit")),
    "eligible": Column("ELIGIBLE", _moment("eligible")),
    "start": Column("START", _moment("start")),
    "restarts": Column("RESTARTS", _text("restarts"), right=True),
    "held": Column("HELD BY", _text("held_by")),
    "dependency": Column("DEPENDENCY", _text("dependency")),
    "nodes": Column("NODES", _text("nodes")),
    "list": Column("CPU LIST", _text("cpu_list")),
    "reason": Column("REASON", _text("reason")),
    "where": Column("CPUS OR REASON", _where),
    "done": Column("COMMANDS", lambda job: commands_words(job["commands"]) if job.get("commands") else "-"),
    "command": Column("COMMAND", lambda job: _command(job.get("command"))),
}
USUAL = ("job", "user", "name", "state", "time", "cpus", "where")
WIDE = ("limit", "mem", "priority", "start")  # where there is room, before the last one
STARTS = ("job", "user", "name", "state", "start", "cpus", "where")


def _command(command: object) -> str:
    return command_words(command) if isinstance(command, list | tuple) else str(command or "-")


def command_words(command: Sequence[object]) -> str:
    """Return the command as it was typed, the line of --wrap as it is."""
    if len(command) == 2 and command[0] == WRAP:
        return str(command[1])
    return shlex.join(map(str, command))


def listing(
    jobs: Iterable[Job],
    names: Sequence[str],
    width: int | None,
    *,
    wide: Sequence[str] = (),
    paint: Mapping[str, Callable[[str], str]] = MappingProxyType({}),
) -> list[str]:
    """Return the table of the columns `names`; adds columns of `wide`, before the last, if the terminal has room."""
    rows = list(jobs)
    chosen = list(names)
    for name in wide:
        wider = [*chosen[:-1], name, chosen[-1]]
        if width is not None and max(map(len, _lines(rows, wider, None))) <= width:
            chosen = wider
    too_wide = width is not None and max(map(len, _lines(rows, chosen, None))) > width
    return _lines(rows, chosen, width if too_wide else None, paint)


def _lines(
    rows: Sequence[Job],
    names: Sequence[str],
    width: int | None,
    paint: Mapping[str, Callable[[str], str]] = MappingProxyType({}),
) -> list[str]:
    columns = [COLUMNS[name] for name in names]
    cells = [[str(column.cell(job)) for column in columns] for job in rows]
    if width is not None:
        for place, column in enumerate(columns[:-1]):
            if column.header == "STATE":
                for row in cells:
                    row[place] = SHORT.get(row[place], row[place])
            most = _WIDEST.get(column.header)
            if most is not None:
                for row in cells:
                    row[place] = row[place] if len(row[place]) <= most else f"{row[place][: most - 1]}+"
    right = [column.header for column in columns if column.right]
    return table([column.header for column in columns], cells, right=right, width=width, paint=paint)


def devices_of(gres: str) -> str:
    """Return the devices of a job in words: "gpu:2" as wanted, "gpu:0,gpu:1" as given."""
    return ", ".join(gres.split(","))


def _mail(notices: Mapping[str, str]) -> str:
    return f"{notices['types']} to {notices['user']}" if notices.get("types") else ""


# The facts about a job: the title and the function for the value, which is omitted where it is empty.
_FACTS: tuple[tuple[str, Callable[[Job], object]], ...] = (
    ("job", name_of),
    ("name", lambda job: job.get("name")),
    ("user", lambda job: job.get("user")),
    ("state", lambda job: job.get("state")),
    ("reason", lambda job: _where(job).removeprefix("-") if not job.get("cpu_list") else ""),
    ("starts", lambda job: moment(job.get("start"), "not known") if job["state"] == PENDING else ""),
    ("command", lambda job: _command(job.get("command")).removeprefix("-")),
    ("directory", lambda job: job.get("work_dir")),
    ("output", lambda job: job.get("output")),
    ("errors", lambda job: job.get("errors") if job.get("errors") != job.get("output") else ""),
    ("submitted", lambda job: moment(job.get("submit"), "")),
    ("not before", lambda job: moment(job.get("begin"), "")),
    ("deadline", lambda job: moment(job.get("deadline"), "")),
    ("started", lambda job: moment(job.get("start"), "") if job["state"] != PENDING else ""),
    ("ended", lambda job: moment(job.get("end"), "") if job["state"] not in IN_QUEUE else ""),
    ("time limit", lambda job: duration(job["time_limit"]) if job.get("time_limit") else "none"),
    ("tasks", lambda job: job.get("ntasks")),
    ("CPUs", lambda job: job.get("cpus")),
    ("memory", lambda job: byte_words(job["memory"] << 20) if job.get("memory") else ""),
    ("devices", lambda job: devices_of(job.get("gres") or "")),
    ("after", lambda job: job.get("dependency")),
    ("reservation", lambda job: job.get("reservation")),
    ("QOS", lambda job: job.get("qos")),
    ("priority", lambda job: job.get("priority")),
    ("restarts", lambda job: job.get("restarts")),
    ("comment", lambda job: job.get("comment")),
    ("mail", lambda job: _mail(job.get("notices") or {})),
    ("notify", lambda job: (job.get("notices") or {}).get("command")),
    ("not told", lambda job: job.get("notice_failed")),
)


def job_facts(job: Job) -> Iterator[tuple[str, object]]:
    """Yield the known facts about a job, as names and values."""
    for title, value in _FACTS:
        if found := value(job):
            yield title, found
