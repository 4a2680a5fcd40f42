"""`nodectl queue`: list waiting and running jobs, the next to start first.

Not called queue.py: a file of that name beside the other commands would hide the standard module from a script that is
run from this directory.
"""

import argparse
import json
import os
from typing import Any

from nodectl.client.accounting import user_ids
from nodectl.client.command import Failed
from nodectl.client.job_name import jobs_argument, named, separated
from nodectl.client.render.job_columns import COLUMNS, STARTS, USUAL, WIDE, listing
from nodectl.client.screen import Screen, add_screen_options, show
from nodectl.client.session import Session
from nodectl.model.states import IN_QUEUE, PENDING, SHORT

_STATES = {word: state for state in IN_QUEUE for word in (state, SHORT[state])}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl queue` to the parser."""
    parser.add_argument("-u", "--user", type=users, metavar="NAMES", help="jobs of these users")
    parser.add_argument("--me", action="store_true", help="your own jobs")
    parser.add_argument(
        "-j", "--job", "--jobs", dest="jobs", type=jobs, metavar="JOBS", help="these jobs: 7,8_3,10-12,last"
    )
    parser.add_argument(
        "-t", "--state", "--states", dest="states", type=states, metavar="STATES",
        help="jobs in these states: PD (pending), R (running), S (suspended), CG (completing)",
    )  # fmt: skip
    parser.add_argument("-n", "--name", type=words, metavar="NAMES", help="jobs of these names")
    parser.add_argument("--start", action="store_true", help="waiting jobs and when they are expected to start")
    parser.add_argument("-o", "--format", type=columns, metavar="COLUMNS", help=f"these columns: {','.join(COLUMNS)}")
    parser.add_argument("--no-header", "--noheader", dest="header", action="store_false", help="no line of headers")
    add_screen_options(parser)
    parser.add_argument("--json", action="store_true", help='print one JSON object, {"jobs": [...]}')
    parser.epilog = (
        "Everybody sees all jobs, but command and name of other users' jobs only where the node shows them. TIME is "
        "how long it has run. Of your own jobs in which `nodectl bulk` runs, the last column has how many of its "
        "commands have ended. `nodectl explain JOB` says more about why a job waits."
    )


def main(arguments: argparse.Namespace) -> int:
    """Print the table. Return 0."""
    wanted: dict[str, Any] = {
        "jobs": arguments.jobs, "users": arguments.user, "states": arguments.states, "names": arguments.name,
    }  # fmt: skip
    if arguments.me:
        wanted["users"] = [*(arguments.user or ()), str(os.getuid())]
    if arguments.start and not arguments.states:
        wanted["states"] = [PENDING]
    wanted = {name: value for name, value in wanted.items() if value}
    if arguments.json:
        print(json.dumps({"jobs": _found(arguments, wanted)}, indent=2))
        return 0
    shown = arguments.format or (STARTS if arguments.start else USUAL)
    wide = WIDE if shown is USUAL else ()

    def lines(screen: Screen) -> list[str]:
        found = _found(arguments, wanted)
        if arguments.jobs and not found:
            raise Failed(f"not in the queue: {', '.join(arguments.jobs)}", subject="queue")
        made = listing(found, shown, screen.width, wide=wide, paint=screen.states("STATE"))
        return made if arguments.header else made[1:]

    return show(arguments, lines)


def _found(arguments: argparse.Namespace, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    session = Session(arguments.settings, start_private=False)
    try:
        if "jobs" in wanted:
            wanted["jobs"] = named(session, wanted["jobs"])
        found = ask(session, wanted)
    finally:
        session.close()
    if arguments.start:
        found.sort(key=lambda job: (not job.get("start"), job.get("start") or 0))
    return found


def ask(session: Session, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the jobs that match."""
    return list({job["id"]: job for job in session.rows("Queue", "jobs", **wanted)}.values())


def words(text: str) -> list[str]:
    """Return the words between commas."""
    return [word for word in text.split(",") if word]


def users(text: str) -> list[str]:
    """Return the uids of the users between commas. Raises ArgumentTypeError for an unknown user."""
    try:
        return [str(uid) for uid in user_ids(text)]
    except Failed as failed:
        raise argparse.ArgumentTypeError(str(failed)) from None


def jobs(text: str) -> list[str]:
    """Return the jobs between commas outside of brackets."""
    return [name for job in separated(text) for name in jobs_argument(job)]


def states(text: str) -> list[str]:
    """Return the states for names or letters."""
    found = []
    for word in words(text):
        if word.upper() not in _STATES:
            raise argparse.ArgumentTypeError(f"{word[:20]!r} is no state: PD, R, S, CG or their long names")
        found.append(_STATES[word.upper()])
    return found


def columns(text: str) -> list[str]:
    """Check the names of columns, and return the names."""
    for word in words(text):
        if word not in COLUMNS:
            raise argparse.ArgumentTypeError(f"no column is called {word[:20]!r}; there are {', '.join(COLUMNS)}")
    if not words(text):
        raise argparse.ArgumentTypeError("names no column")
    return words(text)
