"""A job of Slurm's as cgroup2 shows it, and processes of it: what an agent says to the service, without the agent."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from nodectl.launch.cgroup import tree
from rootful.node import NOBODY, PATH, PATIENCE, Node, wait_until
from rootful.parts import by_hand

Process = subprocess.Popen[str]
JOB = 77  # that most tests have
_ENTER = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
uid, gid = int(sys.argv[2]), int(sys.argv[3])
os.setgroups([]); os.setresgid(gid, gid, gid); os.setresuid(uid, uid, uid)
os.execv(sys.argv[4], sys.argv[4:])
"""
# Each line of its stdin is a call; it writes the reply, then the events of a launch, a line each.
_CALLER = """
import json, os, sys
sys.path[:0] = {path!r}
from nodectl.model.wire import framing
inherited = []
if {successor}:
    inherited.append(framing.connect({socket!r}))
    parent = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == parent:
        pass
for line in sys.stdin:
    sock = inherited.pop() if inherited else framing.connect({socket!r})
    method, parameters = json.loads(line)
    null = os.open("/dev/null", os.O_RDWR)
    fds = [null] * 3 if method == "Launch" else []
    framing.send(sock, {{"method": "org.nodectl." + method, "parameters": parameters}}, fds)
    inbox = framing.Inbox(1 << 22)
    print(json.dumps(framing.receive(sock, inbox)), flush=True)
    got = inbox.take_descriptors() if inbox else ()
    kept = globals().setdefault("kept", []); kept.append((sock, got))
"""


def words_in(group: tree.Group, user: pwd.struct_passwd, *words: str) -> list[str]:
    """What root executes for a process of a user's in a cgroup: it is there before it is the user's."""
    return [sys.executable, "-IS", "-c", _ENTER, group.full_path, str(user.pw_uid), str(user.pw_gid), *words]


class SlurmJob:
    """Its cgroups, made as slurmstepd makes them. `number` is the job's."""

    def __init__(self, scope: str, number: int) -> None:
        self.number = number
        self.scope = scope
        self.job = tree.Group(f"{tree.find_mount()}{scope}/job_{number}").make()
        self.step = self.job.child("step_0").make()
        self.user = self.step.child("user").make()
        self.task = self.user.child("task_0").make()
        self._slurmstepd = subprocess.Popen(["sleep", "1000"])
        self.step.child("slurm").make().add(self._slurmstepd.pid)

    @property
    def place(self) -> str:
        return self.user.full_path.removeprefix(tree.find_mount())

    def ours(self) -> list[str]:
        """Cgroups there that are not Slurm's."""
        top = self.step.full_path
        return [path for path, _, _ in os.walk(top) if "/nodectl" in path.removeprefix(top)]

    def words(self, *words: str, user: pwd.struct_passwd = NOBODY) -> list[str]:
        """What root executes for a process of the job's."""
        return words_in(self.task, user, *words)

    def popen(self, *words: str, apart: bool = False, **how: Any) -> Process:
        """A process of the job's. `apart`: in a mount namespace of its own."""
        return subprocess.Popen([*(["unshare", "--mount"] if apart else []), *self.words(*words)], text=True, **how)

    def caller(self, node: Node, *, successor: bool = False, **how: Any) -> Caller:
        """One that calls the service. `successor`: over a connection that its parent has made, which has ended."""
        code = _CALLER.format(path=PATH, socket=str(node.socket), successor=successor)
        words = [sys.executable, "-IS", "-c", code]
        return Caller(self.popen(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **how))

    def suspend(self) -> None:
        """As scontrol does it."""
        self.user.core.freeze = True
        wait_until(self.user.is_frozen, "it stands still")

    def end(self, kills: str = "tasks") -> bool:
        """As Slurm does it: it kills its tasks, as newer ones do all of "user", also where that is "suspended", and
        removes its directories, each once; it stops at the first that it cannot remove. Whether it could.
        """
        if kills == "suspended":
            self.suspend()
        (self.user if kills == "user" else self.task).kill_all()
        wait_until(lambda: not self.task.populated(), "what Slurm knows of has ended")
        wait_until(self.task.remove, "its directory goes")
        self._slurmstepd.kill()  # it moves elsewhere before it removes its own
        self._slurmstepd.wait(PATIENCE)
        wait_until(lambda: not self.step.child("slurm").populated(), "slurmstepd is elsewhere")
        return all(group.remove() for group in (self.user, self.step.child("slurm"), self.step, self.job))


class Caller:
    """A process of a job that calls the service."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([method, parameters]) + "\n")
        self.process.stdin.flush()
        reply: dict[str, Any] = json.loads(self.process.stdout.readline())
        return reply

    def launch(self, job: int, step: int, *argv: str, **more: object) -> dict[str, Any]:
        """A part that is a step's only one."""
        (part,) = by_hand(step, ["0"], job=job)
        asked = {
            "argv": list(argv), "environment": {"PATH": "/usr/bin:/bin"}, "cwd": "/", "ntasks": 1,
            "part": {**part, **dict(more.pop("part", {}))}, **more,  # type: ignore[call-overload]
        }  # fmt: skip
        return self.call("Launch", request=asked)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)


def why(reply: dict[str, Any]) -> str:
    """It was refused."""
    assert "error" in reply, reply
    return str(reply["parameters"]["reason"])


@contextlib.contextmanager
def scope(name: str) -> Iterator[str]:
    """Where Slurm's jobs are; nothing of them is left there at the end."""
    top = tree.Group(f"{tree.find_mount()}/{name}").make()
    try:
        yield f"/{name}"
        left = [directory for directory, _, _ in os.walk(top.full_path)][1:]
        assert not left, left
    finally:
        top.kill_all()
        for directory, _, _ in os.walk(top.full_path, topdown=False):
            wait_until(lambda directory=directory: tree.Group(directory).remove(), f"{directory} is empty")
