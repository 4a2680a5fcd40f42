"""A command on one or several steps: `nodectl signal`, `suspend`, `resume`."""

import argparse
import sys
from collections.abc import Callable

from nodectl.client.command import Failed
from nodectl.client.session import Session
from nodectl.client.step_name import step_argument
from nodectl.model.step_number import step_name


def add_steps(parser: argparse.ArgumentParser) -> None:
    """The steps that are meant, as `arguments.steps`."""
    parser.add_argument(
        "steps",
        nargs="+",
        type=step_argument,
        metavar="JOB[.STEP]",
        help="the steps; a job alone means its first step",
    )


def for_each(arguments: argparse.Namespace, verb: str, act: Callable[[Session, int, int], None]) -> int:
    """Calls `act(session, job, step)` for every step, whatever becomes of the ones before; 0, or 1 with a line on
    stderr for each that Failed, which names the verb.
    """
    session = Session(arguments.settings)
    status = 0
    try:
        for job, step in dict.fromkeys(arguments.steps):
            try:
                act(session, job, step)
            except Failed as failed:
                print(f"nodectl: error: {verb} {step_name(job, step)}: {failed}", file=sys.stderr)
                status = 1
    finally:
        session.close()
    return status
