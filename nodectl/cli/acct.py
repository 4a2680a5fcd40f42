"""`nodectl acct`: list the use of jobs and steps, ended and running, with the fields and options of sacct.

The service decides which jobs a user sees: users their own, root and the admin group all.
"""

import argparse
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from nodectl.client.accounting import Asked, ask, named, user_ids
from nodectl.client.command import Failed
from nodectl.client.render.terminal import put
from nodectl.client.screen import add_screen_options, show
from nodectl.client.session import Session
from nodectl.model.accounting import fields
from nodectl.model.accounting.amounts import UNITS
from nodectl.model.accounting.fields import AcctField, Style, UnknownField
from nodectl.model.accounting.rows import Row, flat
from nodectl.model.accounting.times import midnight, moment
from nodectl.model.states import state_named
from nodectl.model.words import printable

_HELP_COLUMNS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl acct` to the parser."""
    which = parser.add_argument_group("which jobs")
    which.add_argument("-j", "--jobs", metavar="JOB[.STEP],...", help="these only: 7, 7.0, 7.batch, 7_3, 7-12, last")
    which.add_argument("-u", "--user", "--uid", metavar="USER,...", help="of these users")
    which.add_argument(
        "-a", "--allusers", action="store_true", help="of all users whose jobs you may see (the default)"
    )
    which.add_argument(
        "-s", "--state", metavar="STATE,...", help="in one of these states: COMPLETED, CD, FAILED, R, ..."
    )
    which.add_argument("--name", metavar="NAME,...", help="with one of these names")
    which.add_argument("--account", metavar="NAME,...", help="of one of these accounts (--account of run and submit)")
    which.add_argument("-S", "--starttime", metavar="TIME", help="not ended before TIME (midnight; all with -j)")
    which.add_argument("-E", "--endtime", metavar="TIME", help="submitted by TIME")
    which.add_argument("-X", "--allocations", action="store_true", help="only jobs, without their steps")
    which.add_argument("-D", "--duplicates", action="store_true", help="every run of a job that was requeued")
    how = parser.add_argument_group("how they are told")
    how.add_argument("-o", "--format", metavar="FIELD[%WIDTH],...", help="these fields; a width below 0 is flush left")
    how.add_argument("-e", "--helpformat", action="store_true", help="list the fields")
    how.add_argument("-b", "--brief", action="store_true", help=f"--format={','.join(fields.BRIEF)}")
    how.add_argument("-l", "--long", action="store_true", help="nearly all fields")
    how.add_argument("-n", "--noheader", action="store_true", help="without the lines above the table")
    how.add_argument("-p", "--parsable", action="store_true", help="fields end with |, and are not cut")
    how.add_argument("-P", "--parsable2", action="store_true", help="fields stand between |, and are not cut")
    how.add_argument("--delimiter", metavar="TEXT", default="|", help="TEXT in place of |")
    how.add_argument("--units", choices=UNITS, default="", help="bytes in this unit")
    how.add_argument("--noconvert", action="store_true", help="bytes as plain numbers")
    add_screen_options(parser, colour=False, watch=False)
    how.add_argument("--json", action="store_true", help='print one JSON object, {"jobs": [...]}')
    parser.epilog = (
        "TIME is HH:MM[:SS] of today, MM/DD[/YY], YYYY-MM-DD[THH:MM[:SS]], today, yesterday, noon, now-2days. "
        "SLURM_TIME_FORMAT is a pattern of strftime(3) for times."
    )


def main(arguments: argparse.Namespace) -> int:
    """Print the rows. Return 0."""
    if arguments.helpformat:
        put(_help())
        return 0
    now = time.time()
    columns = _columns(arguments)
    session = Session(arguments.settings)
    try:
        found = ask(session, _asked(session, arguments, now), every_run=arguments.duplicates)
    finally:
        session.close()
    found = list(_meant(found, arguments))
    if arguments.json:
        print(json.dumps({"jobs": [_as_json(job, steps, now) for job, steps in found]}, indent=2))
        return 0
    times = os.environ.get("SLURM_TIME_FORMAT", "")
    style = Style(now, arguments.units, arguments.noconvert, times if "%" in times else "")
    rows = flat(found, only_jobs=arguments.allocations)
    if arguments.parsable or arguments.parsable2:
        header, ends = not arguments.noheader, arguments.parsable
        put(parsable(columns, rows, style, arguments.delimiter, ends=ends, header=header))
        return 0
    lines = listing(columns, rows, style, header=not arguments.noheader)
    return show(arguments, lambda _: lines)


def listing(columns: Sequence[tuple[AcctField, int]], rows: Iterable[Row], style: Style, *, header: bool) -> list[str]:
    """Return the table in sacct's form: fixed column widths, a longer cell cut and marked with +."""
    lines = []
    if header:
        lines.append(_line((field.name[: abs(width)], width) for field, width in columns))
        lines.append(_line(("-" * abs(width), width) for _, width in columns))
    lines += (_line((_text(field, row, style), width) for field, width in columns) for row in rows)
    return lines


def _line(cells: Iterable[tuple[str, int]]) -> str:
    return " ".join(_cell(text, width) for text, width in cells)


def _cell(text: str, width: int) -> str:
    wide = abs(width)
    if len(text) > wide:
        text = f"{text[: wide - 1]}+" if wide else ""
    return text.ljust(wide) if width < 0 else text.rjust(wide)


def _text(field: AcctField, row: Row, style: Style) -> str:
    return printable(str(field.text(row, style)))


def parsable(
    columns: Sequence[tuple[AcctField, int]],
    rows: Iterable[Row],
    style: Style,
    between: str,
    *,
    ends: bool,
    header: bool,
) -> Iterator[str]:
    """Yield lines of fields separated by `between`, with another `between` at the end if `ends`; no field is cut."""
    end = between if ends else ""
    if header:
        yield between.join(field.name for field, _ in columns) + end
    for row in rows:
        yield between.join(_text(field, row, style) for field, _ in columns) + end


def _columns(arguments: argparse.Namespace) -> list[tuple[AcctField, int]]:
    usual = fields.BRIEF if arguments.brief else fields.LONG if arguments.long else fields.USUAL
    try:
        return fields.columns(arguments.format or os.environ.get("SACCT_FORMAT") or ",".join(usual))
    except UnknownField as error:
        raise Failed(str(error)) from None


def _asked(session: Session, arguments: argparse.Namespace, now: float) -> Asked:
    since = 0.0 if arguments.jobs else midnight(now)
    try:
        if arguments.starttime:
            since = moment(arguments.starttime, now)
        until = moment(arguments.endtime, now) if arguments.endtime else None
    except ValueError as error:
        raise Failed(str(error)) from None
    users = () if arguments.allusers or not arguments.user else user_ids(arguments.user)
    return Asked(users, named(session, arguments.jobs) if arguments.jobs else (), since, until)


def _meant(found: Iterable[tuple[Row, list[Row]]], arguments: argparse.Namespace) -> Iterator[tuple[Row, list[Row]]]:
    names = {name.strip() for name in arguments.name.split(",")} if arguments.name else None
    accounts = {name.strip().lower() for name in arguments.account.split(",")} if arguments.account else None
    try:
        states = {state_named(word) for word in arguments.state.split(",")} if arguments.state else None
    except ValueError as error:
        raise Failed(str(error)) from None
    for job, steps in found:
        if accounts is not None and job.account not in accounts:
            continue
        if (names is None or job.name in names) and (states is None or job.state in states):
            yield job, steps


def _as_json(job: Row, steps: Sequence[Row], now: float) -> dict[str, object]:
    return {**_row_as_json(job, now), "steps": [_row_as_json(step, now) for step in steps]}


def _row_as_json(row: Row, now: float) -> dict[str, object]:
    return {"id": row.id, **asdict(row), "elapsed": row.elapsed(now), "waited": row.waited(now)}


def _help() -> Iterator[str]:
    """Yield the names of all fields for --format in columns, without further text, because programs read this list."""
    names = sorted(field.name for field in fields.FIELDS.values())
    wide = max(map(len, names)) + 1
    for place in range(0, len(names), _HELP_COLUMNS):
        yield "".join(name.ljust(wide) for name in names[place : place + _HELP_COLUMNS]).rstrip()
