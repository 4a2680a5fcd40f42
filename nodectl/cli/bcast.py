"""`nodectl bcast`: write a file into the container of running jobs, as sbcast does; in a cluster, on all nodes."""

import argparse
import os
import stat
from typing import Any

from nodectl.client.command import Failed, complain
from nodectl.client.job_name import jobs_or_steps_argument, named, number_of, one_step
from nodectl.client.session import Session
from nodectl.model.step_number import FIRST, step_name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl bcast` to the parser."""
    parser.add_argument(
        "--job", "-j", type=jobs_or_steps_argument, metavar="JOB[.STEP]",
        help="the job, or a range of jobs: 42, 42_3, 42-47, last; a cluster's by default",
    )  # fmt: skip
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
    """Write the file. Return 0, or 1 with a line on stderr for each of several jobs, or nodes, without the file.

    Raises Failed.
    """
    fd = _opened(arguments.file)
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
        return _to_each(session, arguments, names)
    finally:
        session.close()
        os.close(fd)


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise Failed(f"bcast {path}: {error.strerror}") from None


def _to_each(session: Session, arguments: argparse.Namespace, names: dict[str, Any]) -> int:
    """Write the file into each job. Return 0, or 1 with a line on stderr for each of several which Failed."""
    wanted, status = named(session, arguments.job, apart=True), 0
    ends, _ = os.pipe2(os.O_CLOEXEC)  # tells that this command is no more
    for name in wanted:
        fd = _opened(arguments.file)  # each reads it from the beginning
        try:
            job, step = name if isinstance(name, tuple) else (number_of(session, name), FIRST)
            session.call("Bcast", [fd, ends], job=job, step=step, path=arguments.destination, **names)
        except Failed as failed:
            if len(wanted) == 1:
                raise
            complain(f"bcast to job {name if isinstance(name, str) else step_name(*name)}: {failed}")
            status = 1
        finally:
            os.close(fd)
    return status


def _to_all_nodes(
    session: Session, cluster: dict[str, int], arguments: argparse.Namespace, fd: int, names: dict[str, Any]
) -> int:
    from nodectl.cli import several_nodes  # only in an allocation

    if arguments.job is not None and (job := one_step(session, arguments.job)[0]) != cluster["job"]:
        raise Failed(f"no job {job} is here: this is the cluster of job {cluster['job']}")
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise Failed(f"bcast {arguments.file}: not a regular file")
    return several_nodes.needed().send(session, cluster["nodes"], fd, arguments.destination, names)
