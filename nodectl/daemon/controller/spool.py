"""Copies of batch scripts, from which they are executed: <state_dir>/spool/job7/slurm_script.

The store has the script; the copy is made when the job starts and goes when it ends. It belongs to its user alone. The
directories belong to root, so nobody can put another file in its place. Runs in the daemon, as root.
"""

import os
from collections.abc import Container

_SCRIPT = "slurm_script"
_JOB = "job"


class Spool:
    """The copies of one node."""

    def __init__(self, state_dir: str) -> None:
        self._directory = f"{state_dir}/spool"
        self._state_dir = state_dir

    def script(self, job: int) -> str:
        """The path of a job's script."""
        return f"{self._directory}/{_JOB}{job}/{_SCRIPT}"

    def write(self, job: int, script: bytes, uid: int, gid: int) -> str:
        """Makes a job's copy. Returns its path. Raises OSError."""
        self._prepare()
        directory = f"{self._directory}/{_JOB}{job}"
        os.makedirs(directory, mode=0o711, exist_ok=True)
        os.chmod(directory, 0o711)
        path = f"{directory}/{_SCRIPT}"
        new = f"{path}.new"
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            written = 0
            while written < len(script):
                written += os.write(fd, script[written:])
            os.fchown(fd, uid, gid)
            os.fchmod(fd, 0o700)
        finally:
            os.close(fd)
        os.rename(new, path)  # a script is there as a whole or not at all
        return path

    def _prepare(self) -> None:
        """Who executes the script must be able to reach it, and nobody sees which others there are."""
        os.makedirs(self._directory, mode=0o711, exist_ok=True)
        for path in (self._state_dir, self._directory):
            mode = os.stat(path).st_mode & 0o777
            if mode | 0o011 != mode:
                os.chmod(path, mode | 0o011)

    def remove(self, job: int) -> None:
        """The job has ended."""
        _remove(f"{self._directory}/{_JOB}{job}")

    def sweep(self, known: Container[int]) -> None:
        """At the daemon's start: removes copies of jobs that are over."""
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return
        for name in names:
            number = name.removeprefix(_JOB)
            if not number.isdecimal() or int(number) not in known:
                _remove(f"{self._directory}/{name}")


def _remove(directory: str) -> None:
    import shutil  # with what it brings along: only where there are scripts

    shutil.rmtree(directory, ignore_errors=True)
