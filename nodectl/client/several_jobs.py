"""A command on one or several jobs: `nodectl hold`, `release`, `requeue`."""

import argparse
from collections.abc import Callable

from nodectl.client.command import Failed, complain
from nodectl.client.session import Session


def for_each_job(arguments: argparse.Namespace, verb: str, act: Callable[[Session, str], object]) -> int:
    """Calls `act(session, job)` for every job, whatever becomes of the ones before; 0, or 1 with a line on stderr for
    each that Failed, which names the verb.
    """
    session = Session(arguments.settings, start_private=False)
    status = 0
    try:
        for job in dict.fromkeys(arguments.jobs):
            try:
                act(session, job)
            except Failed as failed:
                complain(f"{verb} {job}: {failed}")
                status = 1
    finally:
        session.close()
    return status
