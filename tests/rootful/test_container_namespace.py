"""job_container/namespace on this machine: what a job has to itself, who joins it, and that nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.node import NOBODY, Node, wait_until

DIRS = ["/tmp", "/var/tmp", "/dev/shm"]


def mounts() -> set[str]:
    """This machine's mounts, without their numbers: those are given anew."""
    return {line.split(" ", 2)[2] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()}


class Contained:
    """A node with containers, and what is to be seen of them from outside."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.base = node.dir / "containers"

    def left(self) -> list[str]:
        return [str(path) for path in self.base.iterdir()] if self.base.exists() else []

    def assert_gone(self) -> None:
        wait_until(lambda: not self.left(), f"containers are removed: {self.node.logged()[-2000:]}")

    def out(self, *words: str) -> str:
        done = self.node.run(*words, user=NOBODY)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def contained() -> Iterator[Contained]:
    yield from _contained()


@pytest.fixture(scope="module")
def shared() -> Iterator[Contained]:
    yield from _contained()


def _contained(**config: object) -> Iterator[Contained]:
    before = mounts()
    node = Node(job_container_type="job_container/namespace", **config)
    node.configure(container_base_path=str(node.dir / "containers"))
    try:
        found = Contained(node.start())
        yield found
        if node.daemon is not None:
            found.assert_gone()
            node.assert_clean()
        assert mounts() == before
    finally:
        node.close()


def test_a_job_sees_empty_directories_of_its_own_and_leaves_nothing_outside(shared: Contained) -> None:
    name = shared.node.dir.name
    script = "; ".join(f"ls -A {path} | wc -l; touch {path}/{name}; ls {path}" for path in DIRS)
    assert shared.out("sh", "-c", script).split() == ["0", name] * 3
    assert not any(os.path.exists(f"{path}/{name}") for path in DIRS)


def test_tasks_of_one_job_share_them_and_other_jobs_do_not(shared: Contained) -> None:
    script = (
        "echo x > /tmp/$SLURM_PROCID; "
        "for n in 1 2 3 4 5 6 7 8 9; do [ $(ls /tmp | wc -l) = 3 ] && break; sleep 0.2; done; ls /tmp"
    )
    waiting = shared.node.popen("-n3", "sh", "-c", script, user=NOBODY)
    assert "0" not in shared.out("ls", "/tmp").split()
    said, _ = waiting.communicate(timeout=30)
    assert said.split() == ["0", "1", "2"] * 3


def test_the_directories_are_the_users_and_a_root_process_joins_by_the_held_file(shared: Contained) -> None:
    running_job = shared.node.popen("sh", "-c", "umask 077; echo secret > /tmp/mine; sleep 30", user=NOBODY)
    try:
        wait_until(lambda: any(shared.base.glob("*/dirs/_tmp/mine")), "the job has written")
        (place,) = [path for path in shared.base.iterdir() if (path / "dirs/_tmp/mine").exists()]
        assert place.stat().st_mode & 0o777 == 0o700
        assert place.stat().st_uid == 0
        inside = (place / "dirs/_tmp").stat()
        assert (inside.st_uid, inside.st_gid, inside.st_mode & 0o777) == (NOBODY.pw_uid, NOBODY.pw_gid, 0o700)
        words = ["nsenter", f"--mount={place}/ns/mnt", "cat", "/tmp/mine"]
        assert subprocess.run(words, check=True, capture_output=True, text=True).stdout == "secret\n"
    finally:
        running_job.send_signal(signal.SIGINT)
        time.sleep(0.1)
        running_job.send_signal(signal.SIGINT)
        running_job.communicate(timeout=30)


def test_no_descriptor_but_the_three_reaches_the_program(shared: Contained) -> None:
    assert shared.out("ls", "/proc/self/fd").split() == ["0", "1", "2", "3"]  # ls has the directory open


def test_task_prolog_and_epilog_run_inside(shared: Contained) -> None:
    node = shared.node
    proof = node.scratch / "proof"
    for name, words in (("before", "echo p > /tmp/p"), ("after", f"cat /tmp/p /tmp/t > {proof}")):
        (node.dir / name).write_text(f"#!/bin/sh\n{words}\n", encoding="utf-8")
        (node.dir / name).chmod(0o755)
    shared.out(f"--task-prolog={node.dir}/before", f"--task-epilog={node.dir}/after", "sh", "-c", "echo t > /tmp/t")
    assert proof.read_text(encoding="utf-8") == "p\nt\n"
    proof.unlink()
