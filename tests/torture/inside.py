"""Namespaces of a campaign's own: mounts that nobody else sees, and processes of which none outlives it.

A campaign that is killed leaves a directory below /run and cgroups. Who watches it from outside removes them at once,
and where that was killed, too, the next campaign does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import prctl

import watcher
from nodectl.launch.cgroup import tree

_INSIDE = "_NODECTL_TORTURE"  # the pid of who waits outside
_UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
_AS_INIT = 'trap : INT TERM; "$@"; exit $?'  # it collects orphans, which would be zombies
_PID_MAX = 6000
_OWN_PID_MAX = (6, 14)  # since when a PID namespace has one
_MARK = "campaign.lock"
_PATIENCE = 20.0  # seconds for what dies
_LOOK_AGAIN = 0.05


def is_inside() -> bool:
    """Whether this process is the campaign's."""
    return _INSIDE in os.environ


def run_inside() -> int:
    """Executes this command again in the namespaces; its exit status. Whatever ends us ends all of it, and who watches
    removes what is left.
    """
    sweep()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    owner = os.getpid()
    watching, alive = watcher.begin(lambda: sweep(owner))
    environment = {**os.environ, _INSIDE: str(os.getpid())}
    words = [*_UNSHARE, "sh", "-c", _AS_INIT, "sh", sys.executable, "-P", *sys.argv]
    campaign = subprocess.Popen(words, env=environment, preexec_fn=_end_with_parent)  # noqa: PLW1509  # there is no thread
    try:
        while True:
            with contextlib.suppress(KeyboardInterrupt):  # it was told as well, and cleans up
                return campaign.wait()
    finally:
        campaign.kill()
        campaign.wait()
        os.close(alive)
        os.waitpid(watching, 0)


def _end_with_parent() -> None:
    prctl.set_pdeathsig(signal.SIGKILL)


def mark(directory: Path, base: str) -> None:
    """The node's directory, and its cgroups below `base`, are this campaign's: while the file is locked, it lives."""
    fd = os.open(directory / _MARK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.write(fd, f"{os.environ.get(_INSIDE, '')}\n{base}\n".encode())  # and open as long as we are


def marked(owner: int) -> list[tuple[Path, str]]:
    """Directories and cgroups that the campaign begun by that process has at the moment; of 0, all campaigns'."""
    found = []
    for path in Path("/run").glob(f"nodectl-test-*/{_MARK}"):
        with contextlib.suppress(FileNotFoundError):
            pid, _, base = path.read_text(encoding="ascii").partition("\n")
            if base and (not owner or pid == str(owner)):
                found.append((path.parent, base.strip()))
    return found


def sweep(owner: int = 0) -> None:
    """Removes what campaigns that were killed have left; of that of `owner`, which is ending, the end is waited for."""
    for directory, base in marked(owner):
        end = time.monotonic() + (_PATIENCE if owner else 0)
        while _lives(directory) and time.monotonic() < end:
            time.sleep(_LOOK_AGAIN)
        if _lives(directory):
            continue
        end = time.monotonic() + _PATIENCE
        while os.path.exists(base) and time.monotonic() < end:
            for group, _, _ in os.walk(base, topdown=False):
                tree.Group(group).remove()
            time.sleep(_LOOK_AGAIN)  # processes that are dying
        shutil.rmtree(directory, ignore_errors=True)


def _lives(directory: Path) -> bool:
    try:
        with (directory / _MARK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def recycle_pids() -> None:
    """Process numbers are given to others soon, where the namespace has a limit of its own."""
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    if release >= _OWN_PID_MAX:
        Path("/proc/sys/kernel/pid_max").write_text(f"{_PID_MAX}\n", encoding="ascii")
