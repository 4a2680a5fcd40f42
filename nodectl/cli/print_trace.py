"""`nodectl trace`: the flight recorder of one step as a timeline for people, or its lines as they were recorded."""

import argparse
import json
import sys
from collections.abc import Sequence

from nodectl.client import trace_lines
from nodectl.client.session import Session
from nodectl.client.step_name import step_argument
from nodectl.model.step_number import step_name
from nodectl.render.terminal import put, wants_colour
from nodectl.render.timeline import Line, timeline
from nodectl.render.words import user_name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl trace` to its parser."""
    parser.add_argument(
        "step", type=step_argument, metavar="JOB[.STEP]", help="the step; a job alone means its first step"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the lines as they were recorded, one JSON object each"
    )
    parser.epilog = (
        "Times are milliseconds since the first call. An identity is the process's when the call had returned; `as` "
        "marks one that is only effective, and that root can leave again. On a terminal root is red, users are green; "
        "NO_COLOR is honoured."
    )


def main(arguments: argparse.Namespace) -> int:
    """Print the timeline; 0."""
    job, step = arguments.step
    session = Session(arguments.settings)
    try:
        lines: Sequence[Line] = list(trace_lines.of_step(session, job, step))
    finally:
        session.close()
    if arguments.json:
        put(json.dumps(line) for line in lines)
    elif lines:
        put(timeline(lines, user_name, colour=wants_colour()))
    else:
        print(f"nodectl: step {step_name(job, step)} has no trace; see `trace` in the configuration", file=sys.stderr)
    return 0
