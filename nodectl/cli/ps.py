"""`nodectl ps`: list running steps, and on request the last ended steps.

The service decides which steps a user sees: users their own, root and the admin group all.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from nodectl.client.render.job_columns import command_words, name_of
from nodectl.client.render.table import cut, table
from nodectl.client.screen import add_screen_options, show
from nodectl.client.session import Session
from nodectl.model.number import whole
from nodectl.model.step_number import BATCH, step_name
from nodectl.model.wire.names import WRAP
from nodectl.model.words import commands_words, cpu_list, duration, elapsed

HEADER = ("STEP", "USER", "NAME", "STATE", "NTASKS", "TIME", "CPUS", "PID", "COMMAND")
_OF_BULK = (*HEADER[:-1], "DONE", HEADER[-1])  # where a step is one of `nodectl bulk`
_RIGHT = ("NTASKS", "TIME", "PID")
_WIDEST = 10  # of user and name, where a terminal is too narrow
_USUAL = 20
_MOST = 10_000
_MOST_SCRIPTS = 1000  # about whose commands the service is asked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl ps` to the parser."""
    parser.add_argument(
        "-a",
        "--all-ended",
        "--ended",
        dest="ended",
        nargs="?",
        type=_count,
        const=_USUAL,
        default=0,
        metavar="N",
        help=f"also the N steps that ended last, newest first ({_USUAL} without a number)",
    )
    add_screen_options(parser)
    parser.add_argument("--json", action="store_true", help='print one JSON object, {"steps": [...]}')
    parser.epilog = (
        "Users see their own steps; root and members of the admin group see all. TIME is what has passed since the "
        "step began, PID is its runner's. DONE, where a step of `nodectl bulk` runs, is how many of its commands have "
        "ended, of how many where that is known, and how many failed; it is two seconds old at most."
    )


def main(arguments: argparse.Namespace) -> int:
    """Print the table. Return 0."""

    def steps() -> list[Mapping[str, Any]]:
        session = Session(arguments.settings, start_private="watch" not in arguments)
        try:
            return _ask(session, arguments.ended)
        finally:
            session.close()

    if arguments.json:
        print(json.dumps({"steps": steps()}, indent=2))
        return 0
    return show(arguments, lambda screen: listing(steps(), time.time(), screen.width, paint=screen.states("STATE")))


def _ask(session: Session, most: int) -> list[Mapping[str, Any]]:
    """Return running steps and up to `most` ended steps, in as many replies as necessary; steps may end in between."""
    steps: list[Mapping[str, Any]] = []
    told, more = 0, True
    while more:
        reply: Mapping[str, Any] = session.call("List", ended=most - told, skip=told)
        steps += reply["steps"]
        told = sum(step.get("ended") is not None for step in steps)
        more = reply["more"]
    known = {(step["job"], step["step"], step.get("restart")): step for step in steps}
    return _as_submitted(session, list(known.values()))


def _as_submitted(session: Session, steps: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the steps, with the submitted command in place of the path of a script's copy."""
    commands: dict[int, Sequence[str]] = {}
    scripts = [step for step in steps if step["step"] == BATCH]
    if running := [str(step["job"]) for step in scripts if step.get("ended") is None]:
        rows = session.rows("Queue", "jobs", jobs=running[:_MOST_SCRIPTS])
        commands |= {job["job"]: job["command"] for job in rows if job["command"]}
    if ended := [step["job"] for step in scripts if step.get("ended") is not None]:
        commands |= _of_ended(session, ended[:_MOST_SCRIPTS])
    return [
        {**step, "command": commands[step["job"]]} if step["step"] == BATCH and step["job"] in commands else step
        for step in steps
    ]


def _of_ended(session: Session, jobs: list[int]) -> dict[int, Sequence[str]]:
    """Return the commands of ended jobs, whose words the history keeps with spaces in between."""
    found: dict[int, Sequence[str]] = {}
    wanted: dict[str, Any] = {"of": "jobs", "jobs": jobs}
    while wanted.get("next", "more"):
        page: Mapping[str, Any] = session.call("Accounting", (), **wanted)
        for record in page["records"]:
            first, _, rest = str(record.get("command", "")).partition(" ")
            if first:
                found[record["job_id"]] = [first, rest] if first == WRAP else [first, *rest.split()]
        wanted["next"] = page["next"]
    return found


def listing(
    steps: Iterable[Mapping[str, Any]],
    now: float,
    width: int | None = None,
    paint: Mapping[str, Callable[[str], str]] = MappingProxyType({}),
) -> list[str]:
    """Return the table; `now` is seconds since the epoch. If the table is too wide, names become shorter first."""
    listed = list(steps)
    header = _OF_BULK if any(step.get("commands") for step in listed) else HEADER
    rows = [_row(step, now, with_commands=header is _OF_BULK) for step in listed]
    if width is not None and max(map(len, table(header, rows, right=_RIGHT))) > width:
        rows = [(row[0], *(cut(str(cell), _WIDEST) for cell in row[1:3]), *row[3:]) for row in rows]
    return table(header, rows, right=_RIGHT, width=width, paint=paint)


def _row(step: Mapping[str, Any], now: float, *, with_commands: bool) -> tuple[object, ...]:
    return (
        step_name(name_of(step), step["step"]),
        step["user"],
        step["name"],
        step["state"],
        step["ntasks"],
        duration(elapsed(step, now)),
        cpu_list(step["cpus"]),
        step.get("pid") or "-",
        *((commands_words(step["commands"]) if step.get("commands") else "-",) if with_commands else ()),
        command_words(step["command"]),
    )


def _count(text: str) -> int:
    number = whole(text, _MOST)
    if not number:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no number from 1 to {_MOST}")
    return number
