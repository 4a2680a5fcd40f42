"""`nodectl release`: let held jobs wait for a turn again."""

import argparse

from nodectl.client.job_name import add_jobs
from nodectl.client.several_jobs import for_each_job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl release` to the parser."""
    add_jobs(parser, "the jobs")
    parser.epilog = "What an admin holds only an admin releases."


def main(arguments: argparse.Namespace) -> int:
    """Release the jobs. Return 0, or 1 with a line on stderr for each failure."""
    return for_each_job(arguments, "release", lambda session, job: session.call("ReleaseJobs", jobs=[job]))
