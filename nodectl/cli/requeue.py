"""`nodectl requeue`: end running batch jobs and queue the jobs again."""

import argparse

from nodectl.client.job_name import add_jobs
from nodectl.client.several_jobs import for_each_job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl requeue` to the parser."""
    parser.add_argument("--hold", action="store_true", help="they do not start again before `nodectl release`")
    add_jobs(parser, "the batch jobs")
    parser.epilog = (
        "The job keeps its number; SLURM_RESTART_COUNT tells the script how often it was started again. Jobs that were "
        "submitted with --no-requeue are not."
    )


def main(arguments: argparse.Namespace) -> int:
    """Requeue the jobs. Return 0, or 1 with a line on stderr for each failure."""
    more = {"hold": True} if arguments.hold else {}
    return for_each_job(arguments, "requeue", lambda session, job: session.call("Requeue", (), jobs=[job], **more))
