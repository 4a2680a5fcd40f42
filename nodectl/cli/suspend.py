"""`nodectl suspend`: stop all processes of a step or job until `nodectl resume`."""

import argparse
from collections.abc import Mapping
from typing import Any

from nodectl.client.command import Failed
from nodectl.client.job_name import add_jobs
from nodectl.client.session import Session
from nodectl.client.several_steps import WHOLE_JOBS, for_each


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl suspend` to the parser."""
    add_jobs(parser, WHOLE_JOBS, steps=True)
    parser.epilog = (
        "The tasks get SIGTSTP and, suspend_grace_time later, are frozen with all that they have started. A suspended "
        "step keeps its CPUs and memory, its time limit stands still, and of signals it takes KILL only. A suspended "
        "job gives its CPUs to others; only root and members of the admin group may suspend jobs."
    )


def main(arguments: argparse.Namespace) -> int:
    """Suspend all jobs and steps. Return 0, or 1 with a line on stderr for each failure."""
    return for_each(arguments, "suspend", _suspend, _suspend_job)


def _suspend(session: Session, job: int, step: int) -> None:
    reply: Mapping[str, Any] = session.call("Suspend", job=job, step=step)
    if reply["running"]:
        raise Failed(f"hanging in the kernel, not suspended: {', '.join(map(str, reply['running']))}")


def _suspend_job(session: Session, job: str) -> None:
    session.call("SuspendJob", job=job)
