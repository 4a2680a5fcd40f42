"""A task that is held before its program: it has become the user and opens its standard input, which is a FIFO."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.node import NOBODY, PATIENCE, Node, wait_until
from rootful.own import OwnNode

shares_memory = pytest.mark.skipif(
    Path("/proc/sys/fs/suid_dumpable").read_text(encoding="ascii") != "0\n",
    reason="fs.suid_dumpable is not 0 here: no task shares its step runner's memory",
)


class Held:
    """A step of one task that waits for its input."""

    def __init__(self, node: Node, *words: str, **how: object) -> None:
        self.fifo = node.scratch / "fifo"
        self.fifo.unlink(missing_ok=True)
        os.mkfifo(self.fifo)
        self.fifo.chmod(0o666)
        self.step = node.popen(f"--input={self.fifo}", *words, user=NOBODY, **how)
        self.pid, self.stepd = 0, 0
        wait_until(lambda: self._find(node), "the task has become its user")

    def _find(self, node: Node) -> bool:
        for self.pid, self.stepd in tasks_of(node):
            if facts_of(self.pid)["Uid"].split()[0] == str(NOBODY.pw_uid):
                return True
        return False

    def let_go(self) -> tuple[int, str]:
        """Its input comes. Exit status and what it said."""
        fd = os.open(self.fifo, os.O_RDWR)  # never waits; who is continued may open its end once more
        try:
            return self.end()
        finally:
            os.close(fd)

    def end(self) -> tuple[int, str]:
        """Exit status and what it said."""
        _, said = self.step.communicate(timeout=PATIENCE)
        return self.step.returncode, said


def share_memory(one: int, other: int) -> bool:
    """What the kernel says: kcmp(2), KCMP_VM. A fork's map looks like its parent's, too."""
    number = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "ppc64le": 354}[os.uname().machine]
    return bool(ctypes.CDLL(None).syscall(number, one, other, 1, 0, 0) == 0)


def facts_of(pid: int) -> dict[str, str]:
    """/proc/PID/status; nothing of who has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return defaultdict(lambda: "-")
    return dict(line.split(":\t", 1) for line in text.splitlines())


def tasks_of(node: Node | OwnNode) -> list[tuple[int, int]]:
    """The tasks, each with its stepd, whatever tracks them."""
    assert node.daemon is not None
    return list(_tasks_below(node.daemon.pid))


def _tasks_below(pid: int) -> Iterator[tuple[int, int]]:
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return  # it has ended
    for child in map(int, children):
        if name.startswith("stepd"):
            yield child, pid
        yield from _tasks_below(child)


def as_nobody(*words: str) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, check=True, timeout=PATIENCE, user=NOBODY.pw_uid, group=NOBODY.pw_gid,
        extra_groups=(),
    )  # fmt: skip
    return done.stdout


def stop(held: Held) -> None:
    as_nobody("/bin/sh", "-c", f"kill -STOP {held.pid}")
    wait_until(lambda: facts_of(held.pid)["State"][0] == "T", "it stands still")


def sleepers(node: Node) -> list[int]:
    return [pid for pid, name in node.processes() if name == "sleep"]
