"""`nodectl suspend`: everything of a step stands still until `nodectl resume`."""

import argparse
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from nodectl.cli.session import Failed, Session
from nodectl.cli.step_name import step_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl suspend` to its parser."""
    add_steps(parser)
    parser.epilog = (
        "The tasks get SIGTSTP and, suspend_grace_time later, are frozen with all that they have started. A suspended "
        "step keeps its CPUs and memory, its time limit stands still, and of signals it takes KILL only."
    )


def add_steps(parser: argparse.ArgumentParser) -> None:
    """The steps that are meant."""
    parser.add_argument(
        "steps",
        nargs="+",
        type=step_argument,
        metavar="JOB[.STEP]",
        help="the steps; a job alone means its step 0",
    )


def main(arguments: argparse.Namespace) -> int:
    """Suspend every step; 0, or 1 with a line on stderr for each that is not."""
    return call_all(arguments, "Suspend")


def call_all(arguments: argparse.Namespace, method: str) -> int:
    """Calls a method for each step; the exit status."""
    session = Session(arguments.settings)
    try:
        return max(_call(session, method, steps) for steps in dict.fromkeys(arguments.steps))
    finally:
        session.close()


def _call(session: Session, method: str, which: "Iterable[int]") -> int:
    job, step = which
    try:
        reply: Mapping[str, Any] = session.call(method, job=job, step=step)
    except Failed as failed:
        print(f"nodectl: error: {method.lower()} {job}.{step}: {failed}", file=sys.stderr)
        return 1
    if reply.get("running"):
        pids = ", ".join(map(str, reply["running"]))
        print(f"nodectl: error: step {job}.{step}: hanging in the kernel, not suspended: {pids}", file=sys.stderr)
        return 1
    return 0
