"""A node whose jobs have containers, and what is to be seen of them from outside."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from nodectl.launch.container import LOCK
from rootful.node import NOBODY, Node, wait_until

DIRS = ["/tmp", "/var/tmp", "/dev/shm"]


def mounts(name: str) -> set[str]:
    """This machine's mounts that a node could have made, without their numbers: what carries its name, and what lies
    on directories that jobs have for themselves. Others may mount elsewhere meanwhile.
    """
    lines = [line.split(" ", 2)[2] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    return {line for line in lines if name in line or line.split()[2] in (*DIRS, "/", "/mnt", "/proc", "/sys")}


def firsts(node: Node) -> list[int]:
    """The first processes of its jobs' pid namespaces, where the node has cgroups."""
    return [pid for pid, name in node.processes() if name == "nodectl-first"]


class Contained:
    """A node with containers, and what is to be seen of them from outside."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.base = node.dir / "containers"

    def left(self) -> list[str]:
        return [str(path) for path in self.places()]

    def places(self) -> list[Path]:
        """The directories of containers, those being removed too."""
        return [path for path in self.base.iterdir() if path.name != LOCK] if self.base.exists() else []

    def assert_gone(self) -> None:
        wait_until(lambda: not self.left(), f"containers are removed: {self.node.logged()[-2000:]}")

    def assert_forgotten(self) -> None:
        """Once a service whose containers lie nowhere has seen that nothing is left of those of an earlier one."""

        def noted() -> object:
            path = f"file:{self.node.values['state_dir']}/history.db?mode=ro"
            with contextlib.closing(sqlite3.connect(path, uri=True)) as db:
                return db.execute("SELECT base FROM container").fetchone()

        wait_until(lambda: not noted(), "no place of containers is noted")

    def out(self, *words: str) -> str:
        done = self.node.run(*words, user=NOBODY)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextlib.contextmanager
def contained(**config: object) -> Iterator[Contained]:
    """A started node; at the end nothing is mounted that was not before, and nothing is left."""
    node = Node(**{"job_container_type": "job_container/namespace", **config})
    found = Contained(node)
    before = mounts(node.dir.name)
    if "container_base_path" not in config:
        node.configure(container_base_path=str(found.base))
    try:
        node.start()
        yield found
        if node.daemon is not None:
            found.assert_gone()
            node.assert_clean()
        assert mounts(node.dir.name) == before
    finally:
        node.close()
