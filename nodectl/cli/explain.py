"""`nodectl explain`: by which rule a running step was laid out, as `nodectl bind --explain` tells it of one to come."""

import argparse
import json
from typing import Any, cast

from nodectl.client.session import Session
from nodectl.client.step_name import step_argument
from nodectl.render.layout import lines_of
from nodectl.render.terminal import put


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl explain` to its parser."""
    parser.add_argument(
        "step", type=step_argument, metavar="JOB[.STEP]", help="the step; a job alone means its first step"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object, as of `nodectl bind --explain --json`"
    )


def main(arguments: argparse.Namespace) -> int:
    """Print the layout and the rule; 0."""
    job, step = arguments.step
    session = Session(arguments.settings)
    try:
        reply = session.call("Explain", job=job, step=step)
    finally:
        session.close()
    answer = cast("dict[str, Any]", reply["layout"])
    if arguments.json:
        print(json.dumps(answer))
    else:
        put(lines_of(answer, explain=True))
    return 0
