"""Commands on several jobs: `nodectl hold`, `release`, `requeue`."""

import argparse
from collections.abc import Callable

from nodectl.client.command import Failed, complain
from nodectl.client.job_name import named
from nodectl.client.session import Session


def for_each_job(arguments: argparse.Namespace, verb: str, act: Callable[[Session, str], object]) -> int:
    """Call `act(session, job)` for every job, even after a failure.

    Return 0, or 1 with a line on stderr, naming the verb, for each which Failed.
    """
    session = Session(arguments.settings, start_private=False)
    status = 0
    try:
        for job in map(str, named(session, arguments.jobs)):
            try:
                act(session, job)
            except Failed as failed:
                complain(f"{verb} {job}: {failed}")
                status = 1
    finally:
        session.close()
    return status
