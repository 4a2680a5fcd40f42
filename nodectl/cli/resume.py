"""`nodectl resume`: let suspended steps and jobs run again."""

import argparse

from nodectl.client.job_name import add_jobs
from nodectl.client.session import Session
from nodectl.client.several_steps import WHOLE_JOBS, for_each


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl resume` to the parser."""
    add_jobs(parser, WHOLE_JOBS, steps=True)
    parser.epilog = "A suspended job first takes its CPUs back, if need be from the jobs that have them now."


def main(arguments: argparse.Namespace) -> int:
    """Resume all jobs and steps. Return 0, or 1 with a line on stderr for each failure."""
    return for_each(arguments, "resume", _resume, _resume_job)


def _resume(session: Session, job: int, step: int) -> None:
    session.call("Resume", job=job, step=step)


def _resume_job(session: Session, job: str) -> None:
    session.call("ResumeJob", job=job)
