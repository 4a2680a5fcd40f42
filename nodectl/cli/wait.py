"""`nodectl wait`: wait until jobs have ended, and end with the status of the jobs."""

import argparse
import os
import select
import signal
from typing import NoReturn

from nodectl.client.command import Failed, GlobalOptions
from nodectl.client.job_name import add_jobs, for_argparse, named
from nodectl.client.job_watch import JobWatch
from nodectl.client.session import Session
from nodectl.client.waiting import say
from nodectl.model.number import seconds

_TOO_LATE = 124  # as timeout(1)
_LONGEST = 2.0**31  # seconds: longer than a machine lives, and the timer takes no more than 292 years
_MOST_AT_ONCE = 32  # jobs for --any, each of which needs a connection


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl wait` to the parser."""
    add_jobs(parser, "the jobs, or arrays as wholes")
    parser.add_argument("--any", action="store_true", help="wait for one of them, and print its name")
    parser.add_argument(
        "--timeout",
        type=for_argparse(seconds),
        metavar="TIME",
        help="wait no longer: 30 minutes as 30, 90s, 1h30m, 1-0; 0 for no limit",
    )
    parser.epilog = "Ctrl-C ends the wait, and no job."


def main(arguments: argparse.Namespace) -> int:
    """Wait. Return the exit status of the first named job that failed, 0 where none did."""
    if arguments.timeout:
        signal.signal(signal.SIGALRM, lambda *_: _give_up(arguments))  # also while no service answers
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
        signal.setitimer(signal.ITIMER_REAL, min(arguments.timeout, _LONGEST))
    session = Session(arguments.settings, start_private=False)
    try:
        names = [str(name) for name in named(session, arguments.jobs, apart=True)]
        if not arguments.any:
            return _all(session, names)
        over = _any(arguments.settings, session, names)
    finally:
        session.close()
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(over.name)
    return _told(over)


def _give_up(arguments: argparse.Namespace) -> NoReturn:
    say(f"timed out after {arguments.timeout} s waiting for {', '.join(arguments.jobs)}")
    os._exit(_TOO_LATE)


def _all(session: Session, names: list[str]) -> int:
    """Wait for one job after the other; the last to end ends the wait all the same."""
    first = 0
    for job in [JobWatch(session, name) for name in names]:
        while not job.is_over:
            job.ask()
            job.take()
        first = first or _told(job)
    return first


def _any(settings: GlobalOptions, session: Session, names: list[str]) -> JobWatch:
    """Return the first of the jobs that has ended. Raises Failed."""
    if len(names) > _MOST_AT_ONCE:
        raise Failed(f"--any waits for {_MOST_AT_ONCE} jobs at most, and these are {len(names)}", 2)
    jobs = [JobWatch(session if not place else Session(settings), name) for place, name in enumerate(names)]
    for job in jobs:
        job.ask()
    while not (over := [job for job in jobs if job.is_over]):
        for job in _answered(jobs):
            job.take()
            job.ask()
    return over[0]


def _told(job: JobWatch) -> int:
    """Return the exit status of an ended job, after a line on one that failed."""
    status, words = job.end()
    if words:
        say(words)
    return status


def _answered(jobs: list[JobWatch]) -> list[JobWatch]:
    """Wait for an answer. Return the jobs that have one."""
    poll = select.poll()
    for job in jobs:
        poll.register(job.session.fileno(), select.POLLIN)
    ready = {fd for fd, _ in poll.poll()}
    return [job for job in jobs if job.session.fileno() in ready]
