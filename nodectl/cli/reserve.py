"""`nodectl reserve`: reserve CPUs for the jobs of some users at a time."""

import argparse
import json
import time
from typing import Any

from nodectl.cli.list_jobs import words
from nodectl.client.accounting import user_ids
from nodectl.client.command import Failed
from nodectl.client.job_name import for_argparse
from nodectl.client.render.table import table
from nodectl.client.run_options import positive
from nodectl.client.screen import Screen, add_screen_options, show
from nodectl.client.session import Session
from nodectl.model.moments import moment
from nodectl.model.number import seconds
from nodectl.model.words import moment as moment_words

_HEADER = ("NAME", "STATE", "START", "END", "REPEATS", "KEEPS", "USERS")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl reserve` to the parser."""
    actions = parser.add_subparsers(dest="action", metavar="create|list|delete")
    create = actions.add_parser("create", help="make a reservation; prints its name", description="Make a reservation.")
    create.add_argument("name", nargs="?", metavar="NAME", help="its name; default: one is made up")
    create.add_argument("--start", type=for_argparse(moment), default="now", metavar="TIME", help="default: now")
    end = create.add_mutually_exclusive_group(required=True)
    end.add_argument("--end", type=for_argparse(moment), metavar="TIME", help="tomorrow, 18:00, 2026-12-24T18:00")
    end.add_argument("--duration", type=for_argparse(seconds), metavar="TIME", help="minutes, H:M:S, D-H")
    much = create.add_mutually_exclusive_group()
    much.add_argument(
        "--cores", type=for_argparse(positive), metavar="N", help="so many cores; default: the whole machine"
    )
    much.add_argument("--cpus", type=for_argparse(positive), metavar="N", help="so many CPUs")
    create.add_argument("--users", type=words, required=True, metavar="NAMES", help="whose jobs may use it")
    create.add_argument("--gpus", type=for_argparse(positive), metavar="N", help="so many GPUs, beside the cores")
    create.add_argument(
        "--repeat",
        choices=("daily", "weekday", "weekly"),
        help="again and again, at the same time of the day, until deleted",
    )
    shown = actions.add_parser("list", help="list reservations (the default)", description="List reservations.")
    for one in (parser, shown):
        add_screen_options(one)
        one.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help='print an object, {"reservations": [...]}'
        )
    delete = actions.add_parser("delete", help="delete reservations", description="Delete reservations.")
    delete.add_argument("names", nargs="+", metavar="NAME")
    parser.epilog = (
        "A job uses a reservation with --reservation=NAME. Only root and members of the admin group may create and "
        "delete."
    )


def main(arguments: argparse.Namespace) -> int:
    """Run the action. Return 0."""
    session = Session(arguments.settings, start_private=False)
    try:
        if arguments.action == "create":
            _create(session, arguments)
        elif arguments.action == "delete":
            for name in arguments.names:
                session.call("DeleteReservation", name=name)
        else:
            return _list(session, arguments)
    finally:
        session.close()
    return 0


def _create(session: Session, arguments: argparse.Namespace) -> None:
    names = ("name", "start", "end", "duration", "cores", "cpus", "users", "repeat", "gpus")
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    if given.get("duration") == 0:
        raise Failed("a reservation has an end: give --end or a --duration", 2)
    user_ids(",".join(arguments.users))
    print(session.call("CreateReservation", **given)["name"])


def _list(session: Session, arguments: argparse.Namespace) -> int:
    def lines(screen: Screen) -> list[str]:
        found: Any = session.call("Reservations")["reservations"]
        rows = [_row(one, time.time()) for one in found]
        return table(_HEADER, rows, width=screen.width, paint=screen.states("STATE"))

    if "json" in arguments:
        print(json.dumps({"reservations": session.call("Reservations")["reservations"]}, indent=2))
        return 0
    return show(arguments, lines)


def _row(one: dict[str, Any], now: float) -> tuple[object, ...]:
    cores = one.get("core_cnt")
    keeps = f"{cores} core{'s' if cores > 1 else ''}" if cores else "everything"
    keeps += f", {one['gpus']} GPU{'s' if one['gpus'] > 1 else ''}" if cores and one.get("gpus") else ""
    start, end = one["start_time"], one["end_time"]
    state = "ACTIVE" if start <= now < end else "INACTIVE"
    return (
        one["name"],
        state,
        moment_words(start, "-"),
        moment_words(end, "-"),
        ",".join(map(str.lower, one.get("flags") or ())) or "-",
        keeps,
        ",".join(one.get("users") or ()) or "-",
    )
