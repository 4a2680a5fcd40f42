"""`nodectl log`: print what a job or a step has written, while it runs and afterwards."""

import argparse
import os
import select
import sys

from nodectl.client.command import Failed
from nodectl.client.followed_file import FollowedFile
from nodectl.client.job_name import add_jobs, one
from nodectl.client.job_watch import JobWatch, StepWatch
from nodectl.client.session import Session
from nodectl.model.number import whole
from nodectl.model.states import PENDING
from nodectl.model.step_number import step_name
from nodectl.model.words import printable

_MOST = 10**9
_UNWATCHED = 1000  # milliseconds between two looks at a file that the kernel does not watch
_OF_CONTAINERS = ("/tmp/", "/var/tmp/", "/dev/shm/")  # where a job's files may be its own


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl log` to the parser."""
    add_jobs(parser, "the job, or one of its steps", steps=True, one=True)
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")
    parser.add_argument(
        "-e", "--error", action="store_true", help="what it wrote to stderr, where that has its own file"
    )
    parser.add_argument("-n", "--lines", type=_number, metavar="LINES", help="the last lines only")
    parser.add_argument("--task", type=_number, metavar="N", help="of an array this task, as 42_N does")
    parser.epilog = (
        "The file is opened with your own rights. At a terminal, what another user wrote is shown without control "
        "characters. A file that is truncated or replaced while it is followed is said on stderr and shown from its "
        "beginning. Writes of other machines are seen when the job changes, and after 20 seconds. What `nodectl run` "
        "and `alloc` write goes to their own terminal, within a batch job to the job's file: no other file keeps it, "
        "unless `nodectl run --output=FILE` does. Of a file for each task (%t) the first is shown."
    )


def _number(text: str) -> int:
    number = whole(text, _MOST)
    if number is None:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no number")
    return number


def main(arguments: argparse.Namespace) -> int:
    """Print the file. Return 0."""
    session = Session(arguments.settings, start_private=False)
    try:
        job = _watched(session, one(session, arguments.jobs), arguments.task)
        which = "errors" if arguments.error else "output"
        path = _file(job, which)
        if has_waited := arguments.follow and _has_waited(job):
            path = _file(job, which)
        of_another = job.record["uid"] != os.geteuid()
        file = FollowedFile(path, arguments.lines, as_text=of_another and os.isatty(1))
        if arguments.follow:
            _follow(job, file, said=has_waited)
        if not file.copy():
            raise Failed(printable(_nothing(job, path)))
    finally:
        session.close()
    return 0


def _watched(session: Session, name: str | tuple[int, int], task: int | None) -> JobWatch | StepWatch:
    """Return the job or step of the name, or the task of the array. Raises Failed."""
    if task is None:
        return StepWatch(session, *name) if isinstance(name, tuple) else JobWatch(session, name)
    if isinstance(name, tuple):
        raise Failed(f"--task names a task of an array, and {step_name(*name)} is a step", 2)
    if "_" in name:
        raise Failed(f"{name} is a task already: give --task={task} with the array alone, {name.partition('_')[0]}", 2)
    if not JobWatch(session, name).is_array:
        raise Failed(f"--task names a task of an array, and job {name} is none: nodectl log {name}", 2)
    return JobWatch(session, f"{name}_{task}")


def _file(job: JobWatch | StepWatch, which: str) -> str:
    """Return the path of the job's file. Raises Failed."""
    record = job.record
    if isinstance(job, StepWatch):
        if path := str(record.get(which) or ""):
            return path
        raise Failed(f"step {job.name} has no file of its own", subject="no log of a step")
    if job.is_array:
        waiting = str(record["array_tasks"])
        tasks = f"; task {waiting} waits" if waiting.isdecimal() else f"; tasks {waiting} wait" if waiting else ""
        one = record["array_task"]  # of a task that has not ended, if there is one
        begun = f"{job.name}_{1 if one is None else one}"
        raise Failed(f"job {job.name} is an array: name a task, as {begun} or with --task{tasks}", 2)
    if path := str(record[which]):
        return path
    if not record["work_dir"]:
        raise Failed(f"job {job.name} is {record['user']}'s: only they, admins and root are told where it writes")
    raise Failed(f"job {job.name} writes to no file", subject=f"no log of {record['held_by']}")


def _has_waited(job: JobWatch | StepWatch) -> bool:
    """Wait until a task of an array has a job number, which a file's name can contain. Return True after a wait.

    Until then the record under the task's name is that of all waiting tasks.
    """
    waits = isinstance(job, JobWatch) and bool(job.record["array_tasks"])
    if waits:
        _say_what_for(job)
    while waits and job.record["array_tasks"] and not job.is_over:
        job.ask()
        job.take()
    return waits


def _say_what_for(job: JobWatch | StepWatch) -> None:
    words = job.record["words"] or job.record["reason"]
    print(f"nodectl: job {job.name} waits{f': {printable(words)}' if words else ''}", file=sys.stderr)


def _follow(job: JobWatch | StepWatch, file: FollowedFile, *, said: bool) -> None:
    """Show the file while the job or step goes on, with a line on a job in the queue unless `said` already."""
    file.watch()
    poll = select.poll()
    if file.watcher >= 0:
        poll.register(file.watcher, select.POLLIN)
    while not job.is_over:
        if job.record["state"] == PENDING and not said:
            said = True
            _say_what_for(job)
        job.ask()
        connection = job.session.fileno()
        poll.register(connection, select.POLLIN)
        ready: set[int] = set()
        while connection not in ready:
            file.copy()
            ready = {fd for fd, _ in poll.poll(None if file.watcher >= 0 else _UNWATCHED)}
            if file.watcher in ready:
                file.changed()
        poll.unregister(connection)
        job.take()


def _lacks_directory(path: str) -> str:
    """Return words where the directory is missing, too; no path of another user's namespace comes here."""
    directory = os.path.dirname(path)
    return "" if os.path.isdir(directory) else f": there is no directory {directory}"


def _nothing(job: JobWatch | StepWatch, path: str) -> str:
    """Return why there is no file."""
    record = job.record
    if isinstance(job, StepWatch):
        return f"step {job.name} was to write to {path}, which is not there{_lacks_directory(path)}"
    if record["state"] == PENDING:
        return f"job {job.name} waits and has written nothing; it will write to {path} -> `nodectl explain {job.name}`"
    is_gone = f"was to write to {path}, which is not there{_lacks_directory(path)}"
    words = "never ran" if job.is_over and not record["start"] else is_gone
    own = path.startswith(_OF_CONTAINERS) and not job.is_over and os.path.isdir(os.path.dirname(path))
    return f"job {job.name} {words}{'; in a container of its own, `nodectl enter` shows it' if own else ''}"
