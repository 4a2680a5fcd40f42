"""Namespaces of a campaign's own: mounts that nobody else sees, and processes of which none outlives it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import prctl

from nodectl import cgroup
from nodectl.recorder import cgroup_of

_INSIDE = "_NODECTL_TORTURE"  # the pid of who waits outside
_UNSHARE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
_AS_INIT = 'trap : INT TERM; "$@"; exit $?'  # it collects orphans, which would be zombies
_PID_MAX = 6000
_OWN_PID_MAX = (6, 14)  # since when a PID namespace has one
_MARK = "campaign"


def is_inside() -> bool:
    """Whether this process is the campaign's."""
    return _INSIDE in os.environ


def run_inside() -> int:
    """Executes this command again in the namespaces; its exit status. Whatever ends us ends all of it."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
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
        _sweep()


def _end_with_parent() -> None:
    prctl.set_pdeathsig(signal.SIGKILL)


def mark(directory: Path) -> None:
    """The node's directory is this campaign's."""
    (directory / _MARK).write_text(os.environ.get(_INSIDE, ""), encoding="ascii")


def _sweep() -> None:
    """What a campaign that was killed has left."""
    for path in Path("/run").glob(f"nodectl-test-*/{_MARK}"):
        if path.read_text(encoding="ascii") == str(os.getpid()):
            base = f"{cgroup.find_mount()}{cgroup_of().rstrip('/')}/{path.parent.name}"
            for directory, _, _ in os.walk(base, topdown=False):
                cgroup.Group(directory).remove()
            shutil.rmtree(path.parent, ignore_errors=True)


def recycle_pids() -> None:
    """Process numbers are given to others soon, where the namespace has a limit of its own."""
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    if release >= _OWN_PID_MAX:
        Path("/proc/sys/kernel/pid_max").write_text(f"{_PID_MAX}\n", encoding="ascii")
