"""Steps whose results are known before they run, and the clients that run them."""

from __future__ import annotations

import pwd
import random
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rootful.node import NOBODY, OTHER, Node

# A SPANK plugin that writes down each of its hooks, in a file of the job's that the step's user may write too.
HOOK_LOG = """
import os
from nodectl.spank import S_JOB_ID, spank_get_item, spank_remote

def _write(sp, line, flags=0):
    if spank_remote(sp) != 1:
        return 0
    path = f"{hooks}/{{spank_get_item(sp, S_JOB_ID)}}"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | flags, 0o666)
    try:
        if flags:
            os.fchmod(fd, 0o666)
        os.write(fd, line.encode() + b"\\n")
    finally:
        os.close(fd)
    return 0

def slurm_spank_init(sp, ac, argv):
    return _write(sp, "init", os.O_CREAT)

def slurm_spank_task_init(sp, ac, argv):
    return _write(sp, "task_init %d" % sp.task.local_id)

def slurm_spank_task_exit(sp, ac, argv):
    return _write(sp, "task_exit %d" % sp.task.local_id)

def slurm_spank_exit(sp, ac, argv):
    return _write(sp, "exit")
"""


@dataclass
class Work:
    """One step: what is asked for, what must come of it, what it suffered, what came."""

    name: str
    words: Sequence[str]
    status: int
    lines: Sequence[str]
    ntasks: int = 1
    user: pwd.struct_passwd | None = None
    stdin: str = ""
    suffered: list[tuple[str, str]] = field(default_factory=list)  # who was struck, and how
    client: subprocess.Popen[bytes] | None = None
    began: float = 0.0
    ended: int | None = None  # as Popen's returncode
    out: str = ""
    err: str = ""
    hooks: list[str] = field(default_factory=list)
    may_be_bare: bool = False  # there was a time without the plugin

    @property
    def ran(self) -> bool:
        """Whether anything of the user's was seen to run."""
        return bool(self.out) or any(line.startswith("task_init") for line in self.hooks)

    @property
    def hooks_are_whole(self) -> bool:
        """Whether each hook was called for each of its processes, and the step's around its tasks'."""
        if self.may_be_bare and not self.hooks:
            return True
        tasks = Counter(f"{hook} {rank}" for hook in ("task_init", "task_exit") for rank in range(self.ntasks))
        whole = Counter(self.hooks) == tasks + Counter(("init", "exit"))
        return whole and self.hooks[0] == "init" and self.hooks[-1] == "exit"


def draw(rng: random.Random, number: int) -> Work:
    """Any step."""
    name = f"work{number}"
    ntasks = rng.choice((1, 1, 1, 2, 3))
    code = rng.choice((0, 0, 1, 7, 42))
    user = rng.choice((NOBODY, OTHER, None))
    pause = round(rng.uniform(0.05, 1.0), 2)
    said = [f"{name} {rank}" for rank in range(ntasks)]
    say = f"echo {name} $SLURM_PROCID"
    number_of_signal = rng.choice((9, 10, 15))
    kinds: list[tuple[list[str], dict[str, Any]]] = [
        (["sh", "-c", f"{say}; exit {code}"], {"status": code, "lines": said}),
        (["sh", "-c", f"{say}; sleep {pause}; {say}; exit {code}"], {"status": code, "lines": 2 * said}),
        (["sh", "-c", f"sleep 60 & {say}; exit {code}"], {"status": code, "lines": said}),
        (
            ["sh", "-c", f"{say}; kill -{number_of_signal} $$; sleep 1"],
            {"status": 128 + number_of_signal, "lines": said},
        ),
        (
            ["-l", "sh", "-c", f"{say}; sleep {pause}"],
            {"status": 0, "lines": [f"{rank}: {line}" for rank, line in enumerate(said)]},
        ),
        (["cat"], {"status": 0, "lines": [f"{name} in"] * ntasks, "stdin": f"{name} in\n"}),
    ]
    words, known = rng.choice(kinds)
    if "stdin" not in known and rng.choice((True, False)):
        words = ["-inone", *words]  # which nobody has to copy, so that a runner may be kept
    return Work(name, [f"-n{ntasks}", f"-J{name}", *words], ntasks=ntasks, user=user, **known)


class Works:
    """Runs clients, and collects what they say; their streams are files, so nobody waits for a reader."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._told = node.dir / "told"
        self._told.mkdir()
        self.hooks = node.dir / "hooks"
        self.hooks.mkdir()
        self.hooks.chmod(0o755)
        node.plugin("hooklog", HOOK_LOG.format(hooks=self.hooks))
        self.running: dict[str, Work] = {}
        self.over: dict[str, Work] = {}
        self._hooks = False
        self.change_plugins()

    def change_plugins(self) -> None:
        """The plugin is stacked, or is no more: then a step's runner may serve others behind it."""
        self._hooks = not self._hooks
        if not self._hooks:
            for work in self.running.values():
                work.may_be_bare = True
        self._node.plugstack("optional hooklog.py\n" if self._hooks else "")

    def begin(self, work: Work) -> None:
        """Starts its client."""
        at = self._node.command("--socket", str(self._node.socket), "run", *work.words)
        source = self._file(work, "in")
        source.write_text(work.stdin, encoding="utf-8")
        user = work.user or pwd.getpwuid(0)
        with (
            source.open("rb") as stdin,
            self._file(work, "out").open("wb") as out,
            self._file(work, "err").open("wb") as err,
        ):
            work.client = subprocess.Popen(
                at, stdin=stdin, stdout=out, stderr=err, env=self._node.environment(), cwd=str(self._node.scratch),
                user=user.pw_uid, group=user.pw_gid, extra_groups=[],
            )  # fmt: skip
        work.began = time.monotonic()
        work.may_be_bare = not self._hooks
        self.running[work.name] = work

    def collect(self) -> None:
        """Notices which clients have ended."""
        for work in list(self.running.values()):
            assert work.client is not None
            if work.client.poll() is not None:
                work.ended = work.client.returncode
                del self.running[work.name]
                self.over[work.name] = work

    def read(self, work: Work, job: int | None) -> None:
        """What it wrote, and its hooks; when nothing of it runs any more."""
        work.out = self._file(work, "out").read_text(encoding="utf-8", errors="replace")
        work.err = self._file(work, "err").read_text(encoding="utf-8", errors="replace")
        hooks = self.hooks / str(job)
        work.hooks = hooks.read_text(encoding="utf-8").splitlines() if job is not None and hooks.exists() else []

    def kill(self) -> None:
        """Ends every client that is there."""
        for work in self.running.values():
            assert work.client is not None
            work.client.kill()
            work.client.wait()

    def _file(self, work: Work, suffix: str) -> Path:
        return self._told / f"{work.name}.{suffix}"
