"""Two hundred jobs with containers, twenty at a time, whose daemon is killed again and again: nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from rootful.contained import Contained, contained
from rootful.container.test_container_attacks import pid_of
from rootful.node import NOBODY

JOBS, AT_A_TIME = 200, 20
KILLS = range(15, JOBS, 40)  # before these jobs
KINDS = ("--container-ns=pid,ipc,uts,net,cgroup,time", "--container-ns=pid,net,user", "--container-ns=ipc", "")
# A file where the machine's are, a process that outlives its task and whose command line is ours.
SCRIPT = """
    echo > /tmp/mine; [ $(ls /tmp | wc -l) = 1 ] || exit 9
    setsid sh -c 'sleep 1000; : {}' &
    readlink /proc/self/ns/mnt
"""
AWAY = ("the service went away before it answered", "no service")


def ended(job: subprocess.Popen[str], found: Contained) -> str:
    """The mount namespace that it had, "" where it asked a daemon that was killed before it could answer."""
    out, err = job.communicate(timeout=60)
    if job.returncode == 1 and any(words in err for words in AWAY):
        return ""
    assert job.returncode == 0, f"{err}{found.node.logged()[-2000:]}"
    return out.strip()


def open_namespaces(pid: int) -> list[str]:
    """Those that a process holds: "mnt:[4026532178]"."""
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.append(os.readlink(path))
    return [link for link in found if link.partition(":[")[0] in os.listdir("/proc/self/ns")]


def command_lines(word: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word in (line := (process / "cmdline").read_text(encoding="utf-8", errors="replace")):
                found.append(line)
    return found


def test_two_hundred_jobs_whose_daemon_is_killed_in_between_leave_nothing() -> None:
    with contained() as found:
        name = found.node.dir.name
        running: list[subprocess.Popen[str]] = []
        namespaces: list[str] = []
        for number in range(JOBS):
            if number in KILLS:
                found.node.restart(signal.SIGKILL)
            if len(running) == AT_A_TIME:
                namespaces.append(ended(running.pop(0), found))
            words = [word for word in (KINDS[number % len(KINDS)],) if word]
            running.append(found.node.popen(*words, "sh", "-c", SCRIPT.format(name), user=NOBODY))
        namespaces += [ended(job, found) for job in running]
        assert os.readlink("/proc/self/ns/mnt") not in namespaces
        assert sum(map(bool, namespaces)) > JOBS - AT_A_TIME * len(KILLS)
        found.assert_gone()
        found.node.assert_clean()
        assert name not in Path("/proc/self/mountinfo").read_text(encoding="utf-8")
        assert found.node.daemon is not None
        for pid in (found.node.daemon.pid, pid_of(found, "nodectl-fork")):
            assert open_namespaces(pid) == []
        assert command_lines(f": {name}") == []
