"""`nodectl bcast`: write a file into the container of a running job, as sbcast does; in a cluster, on all nodes."""

import argparse
import os
import stat
from typing import Any

from nodectl.client.command import Failed
from nodectl.client.session import Session
from nodectl.client.step_name import step_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl bcast` to the parser."""
    parser.add_argument("--job", "-j", type=step_argument, metavar="JOB[.STEP]", help="the job; a cluster's by default")
    parser.add_argument("--force", "-f", action="store_true", help="replace a file that is there")
    parser.add_argument("--preserve", "-p", action="store_true", help="keep its times of access and modification")
    parser.add_argument("file", metavar="FILE", help="the file, as you see it")
    where = "its path in the job; below the step's directory, in a cluster below yours, if it is not absolute"
    parser.add_argument("destination", metavar="DESTINATION", help=where)
    parser.epilog = (
        "The file is written as the job's user, whole or not at all, with the mode that it has. In a cluster it goes "
        "to every node of the allocation."
    )


def main(arguments: argparse.Namespace) -> int:
    """Write the file. Return 0, or 1 with a line on stderr for each node of a cluster without the file.

    Raises Failed.
    """
    try:
        fd = os.open(arguments.file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise Failed(f"bcast {arguments.file}: {error.strerror}") from None
    status = os.fstat(fd)
    names: dict[str, Any] = {"mode": status.st_mode & 0o777, "force": arguments.force}
    if arguments.preserve:
        names["times"] = [status.st_atime_ns, status.st_mtime_ns]
    session = Session(arguments.settings, start_private=False)
    try:
        hello: Any = session.call("Hello")
        if "cluster" in hello:
            return _to_all_nodes(session, hello["cluster"], arguments, fd, names)
        if arguments.job is None:
            raise Failed("give the job: --job=JOB")
        job, step = arguments.job
        ends, _ = os.pipe2(os.O_CLOEXEC)  # tells that this command is no more
        session.call("Bcast", [fd, ends], job=job, step=step, path=arguments.destination, **names)
    finally:
        session.close()
        os.close(fd)
    return 0


def _to_all_nodes(
    session: Session, cluster: dict[str, int], arguments: argparse.Namespace, fd: int, names: dict[str, Any]
) -> int:
    from nodectl.cli import several_nodes  # only in an allocation

    if arguments.job is not None and arguments.job[0] != cluster["job"]:
        raise Failed(f"no job {arguments.job[0]} is here: this is the cluster of job {cluster['job']}")
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise Failed(f"bcast {arguments.file}: not a regular file")
    return several_nodes.needed().send(session, cluster["nodes"], fd, arguments.destination, names)
