"""`nodectl hold`: keep waiting jobs from starting until `nodectl release`."""

import argparse

from nodectl.client.job_name import add_jobs
from nodectl.client.several_jobs import for_each_job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl hold` to the parser."""
    add_jobs(parser, "the jobs")
    parser.epilog = "What an admin holds only an admin releases. Running jobs are not held."


def main(arguments: argparse.Namespace) -> int:
    """Hold the jobs. Return 0, or 1 with a line on stderr for each failure."""
    return for_each_job(arguments, "hold", lambda session, job: session.call("Hold", jobs=[job]))
