"""Names of jobs and steps: 42, 42_3, 42_[0-4], 42.0, 42.batch. Pure."""

import argparse

from nodectl.client.job_options import array
from nodectl.client.step_name import step_of
from nodectl.model.number import whole

_LAST = 2**32 - 1


def job_of(text: str) -> str:
    """Return the checked name of a job, a task of an array, or several tasks, for the service. Raises ValueError."""
    job, underscore, tasks = text.partition("_")
    number = whole(job, _LAST)
    if not number:
        raise ValueError(f"{text[:40]!r} is no job; one is written like 42, a task of an array like 42_3 or 42_[0-4]")
    if not underscore:
        return str(number)
    listed = tasks[1:-1] if tasks.startswith("[") and tasks.endswith("]") else tasks
    try:
        if "%" in listed or (listed == tasks and whole(tasks, _LAST) is None):
            raise ValueError
        array(listed)
    except ValueError:
        raise ValueError(f"{text[:40]!r}: tasks of an array are written like 42_3 or 42_[0-4,9]") from None
    return f"{number}_{tasks}"


def job_argument(text: str) -> str:
    """Convert a job's name for argparse, see `job_of`."""
    try:
        return job_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def job_or_step(text: str) -> "str | tuple[int, int]":
    """Convert a job's or step's name for argparse: 42.0 gives the job and the step, see `job_of`."""
    try:
        return step_of(text) if "." in text else job_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_jobs(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the argument for jobs, `arguments.jobs`."""
    parser.add_argument(
        "jobs", nargs="+", type=job_argument, metavar="JOB", help=f"{what}: 42; tasks of an array: 42_3, 42_[0-4]"
    )
