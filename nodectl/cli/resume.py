"""`nodectl resume`: lets steps that were suspended run again."""

import argparse

from nodectl.client.session import Session
from nodectl.client.several_steps import add_steps, for_each


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl resume` to its parser."""
    add_steps(parser)
    parser.epilog = "The exit status is 1 if a step could not be resumed; the others are."


def main(arguments: argparse.Namespace) -> int:
    """Resume every step; 0, or 1 with a line on stderr for each that could not be."""
    return for_each(arguments, "resume", _resume)


def _resume(session: Session, job: int, step: int) -> None:
    session.call("Resume", job=job, step=step)
