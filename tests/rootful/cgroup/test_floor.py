"""The floor of ./dev bench: its programs run in the cgroups that it makes, and none is left."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.floor import floor, launch
from needs import need
from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import tree


@pytest.fixture
def cgroup() -> Iterator[Path]:
    need("cc")
    made = Path(f"{tree.find_mount()}{cgroup_of().rstrip('/')}/nodectl-test-floor-{os.getpid()}")
    made.mkdir()
    yield made
    for path in [*made.iterdir(), made]:
        with contextlib.suppress(NotADirectoryError):
            path.rmdir()


def cpu_time(cgroup: Path) -> int:
    """Microseconds of all that have been in the cgroup and below it."""
    return int((cgroup / "cpu.stat").read_text(encoding="ascii").split()[1])


def test_loop_runs_its_commands_in_cgroups_and_leaves_none(cgroup: Path) -> None:
    with floor() as program:
        subprocess.run([program, "loop", cgroup, "50", "2"], check=True)
    assert cpu_time(cgroup) > 0
    assert not [path for path in cgroup.iterdir() if path.is_dir()]


def test_launch_runs_in_a_new_cgroup_and_leaves_none(cgroup: Path) -> None:
    row = launch(20, str(cgroup))
    assert min(row.ours, row.peer, cpu_time(cgroup)) > 0
    assert not [path for path in cgroup.iterdir() if path.is_dir()]
