"""The cgroup of a job goes with its last step's, also where the kernel does not give it up at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.launch.cgroup import tree
from nodectl.service.daemon.jobs.step_cgroups import remove_step_cgroup


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
