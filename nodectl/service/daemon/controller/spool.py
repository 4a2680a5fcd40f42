"""Copies of batch scripts, from which the scripts run: <state_dir>/spool/job7/slurm_script.

The store has the script. The daemon makes the copy when the job starts and removes it when the job ends. The job's user
alone may read and execute the file, which is root's like the directories: a script that could write to itself would
fill the disk of the history. Where the file system has no access control lists, the file is the user's. Runs in the
daemon, as root.
"""

import contextlib
import os
from collections.abc import Container

from nodectl.kernel import access_list

_SCRIPT = "slurm_script"
_JOB = "job"


class Spool:
    """The copies of scripts on the node."""

    def __init__(self, state_dir: str) -> None:
        self._directory = f"{state_dir}/spool"
        self._state_dir = state_dir

    def script(self, job: int) -> str:
        """Return the path of a job's script."""
        return f"{self._directory}/{_JOB}{job}/{_SCRIPT}"

    def write(self, job: int, script: bytes, uid: int, gid: int) -> str:
        """Write the copy of a job's script. Return the path. Raises OSError."""
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
            if uid == os.geteuid() or not access_list.let_read(fd, uid, execute=True):
                os.fchown(fd, uid, gid)
                os.fchmod(fd, 0o700)
        finally:
            os.close(fd)
        os.rename(new, path)  # a script is there as a whole or not at all
        return path

    def _prepare(self) -> None:
        """Make the directories searchable but not readable: a user can reach a script, but list no directory."""
        os.makedirs(self._directory, mode=0o711, exist_ok=True)
        for path in (self._state_dir, self._directory):
            mode = os.stat(path).st_mode & 0o777
            if mode | 0o011 != mode:
                os.chmod(path, mode | 0o011)

    def remove(self, job: int) -> None:
        """Remove the script of an ended job."""
        _remove(f"{self._directory}/{_JOB}{job}")

    def sweep(self, known: Container[int]) -> None:
        """Remove the copies of all jobs outside `known`. Called at the daemon's start."""
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return
        for name in names:
            number = name.removeprefix(_JOB)
            if not number.isdecimal() or int(number) not in known:
                _remove(f"{self._directory}/{name}")


def _remove(directory: str) -> None:
    """Remove the directory of a job's script. That takes no descriptor, since none may be left."""
    for remove, path in (
        (os.unlink, f"{directory}/{_SCRIPT}"), (os.unlink, f"{directory}/{_SCRIPT}.new"), (os.rmdir, directory),
    ):  # fmt: skip
        with contextlib.suppress(OSError):
            remove(path)
    if os.path.lexists(directory):  # nodectl has put nothing else there
        import shutil  # slow to import

        shutil.rmtree(directory, ignore_errors=True)
