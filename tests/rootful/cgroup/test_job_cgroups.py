"""The cgroup of a job goes with its last step's, also where the kernel does not give it up at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.kernel import pseudo_file
from nodectl.launch.cgroup import tree
from nodectl.service.daemon.jobs.cgroup_removals import CgroupRemovals, remove_step_cgroup

FILES = {"events": os.O_RDONLY, "kill": os.O_WRONLY}


@pytest.fixture
def job() -> Iterator[Path]:
    """A job's cgroup with two steps'."""
    base = Path(tree.find_mount()) / f"nodectl-test-{os.getpid()}"
    made = base / "job_1"
    for step in ("step_0", "step_1"):
        (made / step).mkdir(parents=True)
    yield made
    for path in (*made.glob("*/"), made, base):
        if path.exists():
            path.rmdir()


def removed(job: Path, step: str) -> bool:
    path = str(job / step).removeprefix(tree.find_mount())
    return asyncio.run(remove_step_cgroup(tree.find_mount(), path))


def test_cgroup_that_is_removed_while_its_files_are_used_is_gone(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = tree.Group(str(job / "step_0"))
    files = {name: os.open(f"{group.full_path}/cgroup.{name}", how) for name, how in FILES.items()}
    assert group.remove()
    monkeypatch.setattr(pseudo_file, "open_at", lambda path, _: files.pop(path.rpartition(".")[2]))
    assert not group.populated()
    group.kill_all()
    assert not files  # each was opened before, and used after the removal


def test_a_jobs_cgroup_that_is_busy_for_a_moment_is_removed_with_its_last_steps(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, busy = tree.Group.remove, [2]

    def sometimes(self: tree.Group) -> bool:
        if self.full_path == str(job) and busy[0]:
            busy[0] -= 1
            return False
        return remove(self)

    monkeypatch.setattr(tree.Group, "remove", sometimes)
    assert removed(job, "step_0")
    assert (job.exists(), busy[0]) == (True, 1)  # another step's is in it: nothing is tried again
    assert removed(job, "step_1")
    assert (job.exists(), busy[0]) == (False, 0)


def test_cgroup_of_an_orderly_step_is_removed_without_work_in_the_background(job: Path) -> None:
    removals = CgroupRemovals(tree.find_mount())
    for step in ("step_0", "step_1"):
        removals.begin(str(job / step).removeprefix(tree.find_mount()))  # there is no event loop for such work
    assert not job.exists()


def test_step_cgroup_with_a_process_in_it_is_emptied_in_the_background(job: Path) -> None:
    sleeper = subprocess.Popen(["sleep", "600"])
    (job / "step_0" / "cgroup.procs").write_text(str(sleeper.pid))
    path = str(job / "step_0").removeprefix(tree.find_mount())

    async def remove() -> bool:
        removals = CgroupRemovals(tree.find_mount())
        removals.begin(path)
        under_way = removals.is_removing(path)
        await removals.gone(path)
        return under_way

    try:
        assert asyncio.run(remove())
        assert sleeper.wait() == -signal.SIGKILL
        assert not (job / "step_0").exists()
    finally:
        sleeper.kill()
        sleeper.wait()
