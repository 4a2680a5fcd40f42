"""Commands on several steps, or on whole jobs: `nodectl signal`, `suspend`, `resume`."""

import argparse
from collections.abc import Callable

from nodectl.client.command import Failed, complain
from nodectl.client.job_name import job_or_step
from nodectl.client.session import Session
from nodectl.client.step_name import step_argument
from nodectl.model.step_number import FIRST, step_name
from nodectl.model.wire.names import NODE

_ELSE_STEP = (f"{NODE}.NotPermitted", f"{NODE}.NoSuchJob")


def add_steps(parser: argparse.ArgumentParser) -> None:
    """Add the argument for steps, `arguments.steps`."""
    parser.add_argument(
        "steps",
        nargs="+",
        type=step_argument,
        metavar="JOB[.STEP]",
        help="the steps; a job alone means its first step",
    )


def add_jobs_and_steps(parser: argparse.ArgumentParser) -> None:
    """Add the argument for jobs and steps, `arguments.steps`."""
    parser.add_argument(
        "steps",
        nargs="+",
        type=job_or_step,
        metavar="JOB[.STEP]",
        help="steps, or whole jobs; without an admin's rights a job alone means its first step",
    )


def for_each(
    arguments: argparse.Namespace,
    verb: str,
    act: Callable[[Session, int, int], None],
    act_on_job: Callable[[Session, str], None] | None = None,
) -> int:
    """Call `act(session, job, step)` for every step and `act_on_job` for every job, even after a failure.

    Return 0, or 1 with a line on stderr, naming the verb, for each which Failed.
    """
    session = Session(arguments.settings)
    status = 0
    try:
        for one in dict.fromkeys(arguments.steps):
            name = one if isinstance(one, str) else step_name(*one)
            try:
                if isinstance(one, tuple):
                    act(session, *one)
                elif act_on_job is not None:
                    _job_or_its_step(session, one, act, act_on_job)
            except Failed as failed:
                complain(f"{verb} {name}: {failed}")
                status = 1
    finally:
        session.close()
    return status


def _job_or_its_step(
    session: Session, job: str, act: Callable[[Session, int, int], None], act_on_job: Callable[[Session, str], None]
) -> None:
    """Act on the job, or if refused, on the first step of a job of the user's own."""
    try:
        act_on_job(session, job)
    except Failed as failed:
        if failed.name not in _ELSE_STEP or not job.isdecimal():
            raise
        try:
            act(session, int(job), FIRST)
        except Failed as second:
            raise (failed if second.name == f"{NODE}.NoSuchStep" else second) from None
