"""`nodectl bcast`: writes a file into the container of a running job, as sbcast does."""

import argparse
import os

from nodectl.client.command import Failed
from nodectl.client.session import Session
from nodectl.client.step_name import step_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl bcast` to its parser."""
    parser.add_argument("--job", "-j", required=True, type=step_argument, metavar="JOB[.STEP]", help="the job")
    parser.add_argument("--force", "-f", action="store_true", help="replace a file that is there")
    parser.add_argument("file", metavar="FILE", help="the file, as you see it")
    where = "its path in the job; below the step's directory if it is not absolute"
    parser.add_argument("destination", metavar="DESTINATION", help=where)
    parser.epilog = "The file is written as the job's user, whole or not at all, with the mode that it has."


def main(arguments: argparse.Namespace) -> int:
    """Writes it; 0, or Failed with one line."""
    try:
        fd = os.open(arguments.file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise Failed(f"bcast {arguments.file}: {error.strerror}") from None
    job, step = arguments.job
    ends, _ = os.pipe2(os.O_CLOEXEC)  # tells that this command is no more
    session = Session(arguments.settings, start_private=False)
    try:
        mode = os.fstat(fd).st_mode & 0o777
        names = {"path": arguments.destination, "mode": mode, "force": arguments.force}
        session.call("Bcast", [fd, ends], job=job, step=step, **names)
    finally:
        session.close()
        os.close(fd)
    return 0
