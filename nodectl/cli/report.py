"""`nodectl report`: sum up each user's use, by day, week or month; as text, JSON, CSV or a picture.

The service decides which users appear: users see their own sums, root and the admin group all.
"""

import argparse
import csv
import io
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psutil

from nodectl.cli import list_jobs
from nodectl.client.accounting import Asked, ask, user_ids
from nodectl.client.command import Failed
from nodectl.client.render import stacked_bars
from nodectl.client.render.table import table
from nodectl.client.render.terminal import put, write_document
from nodectl.client.session import Session
from nodectl.model.accounting.report import PERIODS, Period, Sum, over_all, report
from nodectl.model.accounting.times import moment
from nodectl.model.states import RUNNING
from nodectl.model.words import duration

HEADER = ("PERIOD", "USER", "JOBS", "CPU-HOURS", "SHARE", "EFF", "WAIT", "WAIT95", "MEM ASKED", "MEM USED")
_NAMES = (
    "period", "user", "jobs", "cpu_hours", "share", "efficiency", "wait_median", "wait_95", "gib_hours_asked",
    "gib_hours_used",
)  # fmt: skip
_USUAL = {"day": "now-6days", "week": "now-28days", "month": "now-180days", "total": "now-30days"}
_ALL = "all"
_KINDS = ("cpu", "gpu")
_WEEK_HEADER = ("USERS", "CPU-HOURS", "GPU-HOURS")
_OF_IDLE = ("id", "user", "idle_since", "cpus", "gres", "name")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl report` to the parser."""
    parser.add_argument("-S", "--starttime", metavar="TIME", help="from TIME on (some days, weeks or months)")
    parser.add_argument("-E", "--endtime", metavar="TIME", help="up to TIME (now)")
    parser.add_argument("-u", "--user", metavar="USER,...", help="of these users")
    parser.add_argument("--by", choices=PERIODS, default="day", help="what is summed up (day)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print one JSON object")
    how.add_argument("--csv", action="store_true", help="print comma-separated values")
    parser.add_argument(
        "--idle", action="store_true", help="list the running jobs that do nothing, and what they hold (key idle_after)"
    )
    parser.add_argument("--svg", metavar="FILE", help="write a picture to FILE, - for standard output")
    parser.epilog = (
        "CPU-HOURS are of allocated CPUs, SHARE is the part of them, EFF the part that was used. WAIT is what half of "
        "the jobs waited at most, WAIT95 what 19 of 20 did. MEM is in GiB times hours: asked for, and the peaks. TIME "
        "is as for `nodectl acct`."
    )


def main(arguments: argparse.Namespace) -> int:
    """Print or write the report. Return 0."""
    now = time.time()
    if arguments.idle:
        return _print_idle(arguments, now)
    try:
        until = min(moment(arguments.endtime, now), now) if arguments.endtime else now
        since = moment(arguments.starttime or _USUAL[arguments.by], now)
        if not arguments.starttime:
            since = moment(time.strftime("%Y-%m-%d", time.localtime(since)), now)
    except ValueError as error:
        raise Failed(str(error)) from None
    if since >= until:
        raise Failed("--starttime is not before --endtime, which is now at the latest")
    users = user_ids(arguments.user) if arguments.user else ()
    session = Session(arguments.settings)
    try:
        jobs = ask(session, Asked(users, (), since, until), every_run=True)
        week: Any = session.call("WeekHours")["hours"]
    finally:
        session.close()
    periods = report(jobs, arguments.by, since, until)
    if arguments.svg:
        try:
            write_document(arguments.svg, picture(periods, arguments.by))
        except OSError as error:
            raise Failed(f"{arguments.svg}: {error.strerror}") from None
    if arguments.json:
        print(json.dumps({**as_json(periods), "week": week}, indent=2))
    elif arguments.csv:
        sys.stdout.write(as_csv(periods))
    elif not arguments.svg:
        put([*listing(periods, psutil.cpu_count() or 1), *week_listing(week)])
    return 0


def _print_idle(arguments: argparse.Namespace, now: float) -> int:
    of_past = {
        "--starttime": arguments.starttime,
        "--endtime": arguments.endtime,
        "--csv": arguments.csv,
        "--svg": arguments.svg,
    }
    if given := [name for name, value in of_past.items() if value]:
        raise Failed(f"--idle lists the jobs of now, as text or with --json: not with {given[0]}", 2)
    if arguments.user:
        user_ids(arguments.user)  # which refuses unknown ones
    session = Session(arguments.settings)
    try:
        config: Any = session.call("Config")["config"]
        if not config["idle_after"]:
            raise Failed("this machine does not watch for jobs that do nothing: its owner sets the key idle_after")
        wanted = {"states": [RUNNING]} | ({"users": arguments.user.split(",")} if arguments.user else {})
        found = [job for job in list_jobs.ask(session, wanted) if job.get("idle_since")]
    finally:
        session.close()
    found.sort(key=lambda job: float(job["idle_since"]))
    if arguments.json:
        rows_ = [{name: job[name] for name in _OF_IDLE} for job in found]
        print(json.dumps({"idle": rows_}, indent=2))
    else:
        cells = [
            (job["id"], job["user"], duration(now - job["idle_since"]), job["cpus"], job["gres"] or "-", job["name"])
            for job in found
        ]
        put(table(("JOB", "USER", "IDLE", "CPUS", "DEVICES", "NAME"), cells, right=("IDLE", "CPUS")) if cells else
            ["no running job does nothing"])  # fmt: skip
    return 0


def rows(periods: Sequence[Period]) -> Iterator[dict[str, object]]:
    """Yield the rows as values: for each period a row for each user, and a row for all users together."""
    for period in periods:
        whole = period.total
        for user, one in period.users.items():
            yield _row(period.name, user, one, whole)
        if len(period.users) > 1:
            yield _row(period.name, _ALL, whole, whole)


def _row(period: str, user: str, one: Sum, whole: Sum) -> dict[str, object]:
    values = (
        period, user, one.jobs, one.cpu_hours, one.allocated / whole.allocated if whole.allocated else None,
        one.efficiency, one.median_wait, one.long_wait, one.gib_hours_asked, one.gib_hours_used,
    )  # fmt: skip
    return {
        name: round(value, 6) if isinstance(value, float) else value for name, value in zip(_NAMES, values, strict=True)
    }


def listing(periods: Sequence[Period], cpus: int) -> list[str]:
    """Return the report as text."""
    cells = [
        (
            period.name,
            user,
            one.jobs,
            f"{one.cpu_hours:.2f}",
            _percent(one.allocated, whole.allocated),
            _percent(one.used, one.measured),
            _wait(one.median_wait),
            _wait(one.long_wait),
            f"{one.gib_hours_asked:.2f}" if one.memory_asked else "-",
            f"{one.gib_hours_used:.2f}" if one.memory_used else "-",
        )
        for period in periods
        for whole in (period.total,)
        for user, one in (*period.users.items(), *([(_ALL, whole)] if len(period.users) > 1 else []))
    ]
    seconds = sum(max(0.0, period.end - period.begin) for period in periods)
    allocated = sum(period.total.allocated for period in periods)
    machine = _percent(allocated, cpus * seconds)
    return [
        *(table(HEADER, cells, right=HEADER[2:]) if cells else ["no job ran"]),
        "",
        f"{allocated / 3600:.2f} CPU-hours of {cpus * seconds / 3600:.2f} that this machine has in that time: "
        f"{machine}",
    ]


def week_listing(week: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the hours of this week as text; [] where no user has a limit."""
    cells = [
        (",".join(one["users"]), *(f"{one[f'{kind}_hours']:.2f} of {one[f'{kind}_limit'] or '-'}" for kind in _KINDS))
        for one in week
    ]
    return (
        ["", "limits of this week, from Monday on:", *table(_WEEK_HEADER, cells, right=_WEEK_HEADER[1:])]
        if cells
        else []
    )


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "-"


def _wait(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def as_json(periods: Sequence[Period]) -> dict[str, object]:
    """Return the report as values for JSON."""
    whole = Sum()
    users = over_all(periods)
    for one in users.values():
        whole.add(one)
    return {
        "periods": [{"period": period.name, "begin": period.begin, "end": period.end} for period in periods],
        "rows": list(rows(periods)),
        "total": [_row("total", user, one, whole) for user, one in users.items()],
    }


def as_csv(periods: Sequence[Period]) -> str:
    """Return the rows as comma-separated values (RFC 4180), with a header. A user's name cannot begin a formula."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _NAMES)
    writer.writeheader()
    for row in rows(periods):
        writer.writerow({**row, "user": _harmless(str(row["user"]))})
    return text.getvalue()


def _harmless(name: str) -> str:
    return f"'{name}" if name[:1] in ("=", "+", "-", "@") else name


def picture(periods: Sequence[Period], by: str) -> str:
    """Return a picture of the allocated CPU time: bars stacked by user."""
    bars: list[tuple[str, Mapping[str, float]]] = [
        (period.name, {user: one.cpu_hours for user, one in period.users.items()}) for period in periods
    ]
    per = "" if by == "total" else f" per {by}"
    return stacked_bars.draw(f"CPU time by user{per}", "CPU hours of allocated CPUs", bars)
