"""Commands on several steps, or on whole jobs: `nodectl signal`, `suspend`, `resume`."""

import argparse
from collections.abc import Callable

from nodectl.client.command import Failed, complain
from nodectl.client.job_name import named, number_of
from nodectl.client.session import Session
from nodectl.model.step_number import FIRST, step_name
from nodectl.model.wire.names import NODE

WHOLE_JOBS = "steps, or whole jobs; without an admin's rights a job alone means its first step"
_ELSE_STEP = (f"{NODE}.NotPermitted", f"{NODE}.NoSuchJob")


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
        for one in named(session, arguments.jobs, apart=True):
            name = one if isinstance(one, str) else step_name(*one)
            try:
                if isinstance(one, tuple):
                    act(session, *one)
                elif act_on_job is None:
                    act(session, number_of(session, one), FIRST)
                else:
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
        if failed.name not in _ELSE_STEP:
            raise
        try:
            act(session, number_of(session, job), FIRST)
        except Failed as second:
            raise (failed if second.name == f"{NODE}.NoSuchStep" else second) from None
