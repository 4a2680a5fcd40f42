"""The work of a command before and after the step, as its user: --prolog, --epilog, --bcast, --test-only."""

import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from nodectl.client import waiting, whole_file
from nodectl.client.command import BadOption, Failed, Program, complain
from nodectl.client.launch_request import job_environment, make_request
from nodectl.client.start_test import would_start

if TYPE_CHECKING:
    from collections.abc import Callable

    from nodectl.client.run_options import Parsed
    from nodectl.client.session import Session
    from nodectl.client.srun.manners import Manners

_NOTHING = "none"
_CHUNK = 1 << 20


def begin(manners: "Manners", parsed: "Parsed", copy: "Callable[[str, str], None] | None" = None) -> None:
    """Do the work before any request. Raises BadOption, Failed.

    `copy(path, target)` copies a file to where tasks run, by default here.
    """
    if manners.quiet:
        Program.quiet = True
    if manners.test_exec or manners.bcast is not None:
        path = _program(parsed)
        if manners.bcast is not None:
            target = _target(path, manners.bcast)
            (copy or _copy)(path, target)
            parsed.argv = [target, *parsed.argv[1:]]
    if not manners.test_only:
        _run("prolog", manners.prolog)


def end(manners: "Manners") -> None:
    """Do the work after the step's end, however the step ended."""
    _run("epilog", manners.epilog)


def tell_when(session: "Session", parsed: "Parsed") -> int:
    """Print the start time of a job for this request, for --test-only. Raises Failed."""
    of_job = {name: parsed.values.pop(name) for name in parsed.job if name in parsed.values}
    of_job.pop("immediate", None)
    parsed.values.pop("trace", None)
    jobid = parsed.values.pop("jobid", None)
    if jobid is not None or "NODECTL_JOB_ID" in os.environ:
        print(f"{Program.name}: allocation success", file=sys.stderr)  # srun's words for a step
        return 0
    environment = job_environment(parsed)
    wanted = {**make_request(parsed), "environment": waiting.told({"environment": environment})}
    print(f"{Program.name}: {would_start(session, wanted, of_job)}", file=sys.stderr)
    return 0


def _run(what: str, path: str) -> None:
    """Run a user's script, in the command's own place and environment.

    The script's output goes where the command's own words go; a failure is reported, and changes nothing, as with srun.
    """
    if not path or path == _NOTHING:
        return
    try:
        environment = {**os.environ, "SLURM_SCRIPT_CONTEXT": f"{what}_srun"}
        status = subprocess.run([path], check=False, stdin=subprocess.DEVNULL, env=environment).returncode
    except OSError as error:
        complain(f"--{what} {path!r}: {error.strerror}")
        return
    if status > 0:
        complain(f"--{what} {path!r} ended with status {status}")
    elif status < 0:
        complain(f"--{what} {path!r} was ended by signal {-status}")


def _program(parsed: "Parsed") -> str:
    """Return the file the tasks would execute. Raises Failed like the task would."""
    name, here = parsed.argv[0], str(parsed.values.get("cwd") or ".")
    if "/" in name:
        candidates = [os.path.join(here, name)]
    else:
        candidates = [os.path.join(d or ".", name) for d in os.environ.get("PATH", "/usr/bin:/bin").split(":")]
        candidates.append(os.path.join(here, name))
    found = [path for path in candidates if os.path.isfile(path)]
    for path in found:
        if os.access(path, os.X_OK):
            return path
    number = errno.EACCES if found else errno.ENOENT
    raise Failed(f"execute {name!r}: {os.strerror(number)}", number)


def _target(path: str, wanted: str) -> str:
    """Return the target of --bcast: the program's new name, in the working directory if none was given."""
    target = os.path.abspath(wanted or os.path.basename(path))
    return os.path.join(target, os.path.basename(path)) if os.path.isdir(target) else target


def _copy(path: str, target: str) -> None:
    """Copy the program. Raises BadOption."""
    if os.path.lexists(target) and os.path.samestat(os.stat(path), os.lstat(target)):
        return  # a link that leads there is replaced: it may be another user's
    try:
        with open(path, "rb") as source:
            directory = whole_file.open_directory(os.path.dirname(target))
            try:
                mode = os.fstat(source.fileno()).st_mode & 0o777
                whole_file.write(directory, os.path.basename(target), mode, iter(lambda: source.read(_CHUNK), b""))
            finally:
                os.close(directory)
    except Failed as error:
        raise BadOption(f"--bcast: {error}") from None
    except OSError as error:
        raise BadOption(f"--bcast: {path if error.filename == path else target}: {error.strerror}") from None
