"""A run of `nodectl spank try`: a directory with the instructions for the run's processes and the logs of the probes.

Root's directory lies in /run, where only root can change the files that root's processes trust. The directory is locked
while it is in use, so that the next run can remove the directory of a killed run.
"""

import contextlib
import fcntl
import glob
import json
import os
import pwd
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodectl.client.command import Failed
from nodectl.kernel import signals, trust
from nodectl.model.config.key import toml
from nodectl.spank import probe_variable, versions

_PREFIX = "nodectl-try-"
_RUN = "/run"
_KILL_WAIT = 1  # seconds
_PAUSE = 0.02
_MOST_TEXT = 4096
_MOST_ROWS = 200_000
_SEPARATORS = " \t\n\r#"


class ProbeRun:
    """The run of a plugin. `user` runs the step and the commands, None for the caller.

    `plugin` is the file to load: the author's own, or root's copy of it; `copied` is the reason for the copy, or "".
    """

    def __init__(self, directory: str, path: str, user: pwd.struct_passwd | None) -> None:
        self.directory = directory
        self.user = user
        self.path = os.path.abspath(path)
        self.plugin, self.copied = self._trusted()

    def prepare(
        self, arguments: Sequence[str], *, required: bool, fails: Sequence[tuple[int, str, int]], timeout: int
    ) -> None:
        """Write plugstack.conf, the configuration, and the instructions for the probes. Raises Failed."""
        for word in (self.plugin, *arguments):
            if not word or any(separator in word for separator in _SEPARATORS):
                raise Failed(f"{word!r} cannot be written in plugstack.conf: it is empty, or has blanks or a '#'", 2)
        role = "required" if required else "optional"
        self.write("plugstack.conf", " ".join((role, self.plugin, *arguments)) + "\n")
        values = {
            "runtime_dir": f"{self.directory}/run",
            "state_dir": f"{self.directory}/state",
            "plugstack_config": f"{self.directory}/plugstack.conf",
            "spank_versions": versions.accepted(),
            "spank_hook_timeout": timeout,
            "kill_wait": _KILL_WAIT,
        }
        self.write("nodectl.toml", "".join(f"{name} = {toml(value)}\n" for name, value in values.items()))
        for who in ("root", "user"):
            self.write(f"{who}.log", "")
            log = os.path.join(self.directory, f"{who}.log")
            told = {"log": log, "fail": list(fails)}
            if who == "root":
                told["stdout"] = os.path.join(self.directory, "stdout")
            self.write(f"{who}.json", json.dumps(told))
        if self.user is not None:
            os.chown(f"{self.directory}/user.log", self.user.pw_uid, self.user.pw_gid)

    def write(self, name: str, text: str) -> None:
        """Write a file of the run."""
        with open(os.path.join(self.directory, name), "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)

    def environment(self, who: str) -> Mapping[str, str]:
        """Return the variables by which a process takes part in the run.

        `who` is root (the node's processes) or user (the commands).
        """
        return {probe_variable.NAME: f"{self.directory}/{who}.json"}

    def rows(self) -> list[dict[str, Any]]:
        """Return the probes' log rows so far, in order of time, without lines spoilt by a plugin."""
        rows = []
        for who in ("root", "user"):
            with open(f"{self.directory}/{who}.log", "rb") as file:
                for line in file.readlines()[:_MOST_ROWS]:
                    with contextlib.suppress(ValueError):
                        rows.append(json.loads(line))
        return sorted((row for row in rows if isinstance(row, dict) and "t" in row), key=lambda row: row["t"])

    def written(self, inode: int, begin: int, end: int) -> str:
        """Return a piece of a file of the run, "" for a file outside the run (plugins write to such files too)."""
        for entry in os.scandir(self.directory):
            if entry.inode() == inode and entry.is_file(follow_symlinks=False):
                with open(entry.path, "rb") as file:
                    file.seek(begin)
                    return file.read(min(end - begin, _MOST_TEXT)).decode("utf-8", "backslashreplace")
        return ""

    def _trusted(self) -> tuple[str, str]:
        """Return the path to load, and the reason if the path is a copy. Raises Failed."""
        try:
            trust.check(self.path)
        except OSError as error:
            raise Failed(f"{self.path}: cannot be read: {error.strerror}", 2) from None
        except trust.Untrusted as error:
            refused = str(error)
        else:
            return self.path, ""
        # The user who called sudo has asked to run this file as root.
        owners = trust.ROOT | {int(os.environ.get("SUDO_UID", "0"))}
        try:
            real = trust.resolve(self.path, owners)
        except (trust.Untrusted, OSError, ValueError):
            raise Failed(f"{self.path}: root does not run it: {refused}") from None
        copy = os.path.join(self.directory, os.path.basename(self.path))
        shutil.copyfile(real, copy)
        return copy, refused


@contextlib.contextmanager
def directory() -> Iterator[str]:
    """Make a fresh directory for a probe run; kill the run's processes and remove the directory afterwards."""
    root = os.geteuid() == 0
    if root:
        _remove_dead()
    path, lock = _fresh(_RUN if root else None)
    try:
        os.chmod(path, 0o755)
        yield path
    finally:
        _end_processes(path)
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _fresh(place: str | None) -> tuple[str, int]:
    """Make and lock a directory; return path and lock. Retry if another run removes the directory before the lock."""
    while True:
        path = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
        lock = _lock(path)
        if lock is not None:
            return path, lock


def _lock(path: str) -> int | None:
    """Lock a run's directory. Return the descriptor, None if another run has locked or removed the directory."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.lstat(path)):
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def _end_processes(path: str, who: str = "") -> int:
    """Kill the run's remaining processes, including forks by plugins.

    `who` limits this to root's or the user's processes. Returns the number of killed processes.
    """
    mark = f"{probe_variable.NAME}={path}/{who}".encode()
    return sum(_end_marked(int(name), mark) for name in os.listdir("/proc") if name.isdecimal())


def _end_marked(pid: int, mark: bytes) -> bool:
    """Kill the process if any variable in the environment begins with `mark`."""

    def belongs(pid: int) -> bool:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return any(word.startswith(mark) for word in file.read().split(b"\0"))

    try:
        return signals.send_listed(pid, signals.KILL, belongs)
    except OSError:
        return False  # the process is another user's, or has ended


def _end_dead(path: str) -> None:
    """End the processes of a dead run and remove the directory.

    Kills the commands, waits until the node has ended the step and exited, and kills the rest.
    """
    _end_processes(path, "user")
    deadline = time.monotonic() + 4 * _KILL_WAIT
    while time.monotonic() < deadline and glob.glob(f"{path}/run/private.*"):
        time.sleep(_PAUSE)
    _end_processes(path)
    shutil.rmtree(path, ignore_errors=True)


def _remove_dead() -> None:
    """Remove the directories and processes of killed runs."""
    for name in os.listdir(_RUN):
        path = f"{_RUN}/{name}"
        lock = _lock(path) if name.startswith(_PREFIX) else None
        if lock is not None:
            _end_dead(path)
            os.close(lock)
