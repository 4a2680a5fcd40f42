"""What steps use on other nodes, for `nodectl top`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from nodectl.launch.cgroup import tree
from rootful.cluster.agents import GIVEN_UP, Agents
from rootful.node import wait_until
from rootful.used import ASK

pytestmark = pytest.mark.rootful


class Delegated(Agents):
    """Each in a cgroup of its own, as an allocation of Slurm's may give it to its user."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.top = tree.Group(f"{tree.find_mount()}/{self.dir.name}").make()

    def _cgroup(self, rank: int) -> tree.Group:
        group = self.top.child(f"n{rank}").make()
        for name in ("", "/cgroup.procs", "/cgroup.subtree_control"):
            os.chown(f"{group.full_path}{name}", self.user.pw_uid, self.user.pw_gid)
        return group

    def close(self) -> None:
        super().close()
        for directory, _, _ in os.walk(self.top.full_path, topdown=False):
            wait_until(lambda directory=directory: tree.Group(directory).remove(), f"{directory} is empty")


def used(cluster: Agents) -> list[dict[str, Any]]:
    """As the first node tells it."""
    words = [sys.executable, "-IS", "-c", ASK, str(cluster.gateway(0))]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=GIVEN_UP, **cluster.how(0))
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


@pytest.fixture(params=[Delegated, Agents])
def cluster(request: pytest.FixtureRequest) -> Iterator[Agents]:
    """With cgroups for its steps, and without any."""
    started: Agents = request.param(2)
    try:
        yield started.start()
    finally:
        started.close()


def test_who_looks_on_one_node_sees_what_a_step_uses_on_another(cluster: Agents) -> None:
    assert used(cluster) == []
    step = cluster.popen("run", "-n1", "-w", "n1", "sh", "-c", "while :; do :; done")
    wait_until(lambda: any((row["cpu_seconds"] or 0) > 0 for row in used(cluster)), "it uses a CPU")
    (row,) = used(cluster)
    assert row["memory"] > 0
    step.terminate()
    step.communicate(timeout=GIVEN_UP)


def test_what_a_step_uses_is_the_sum_of_its_nodes(cluster: Agents) -> None:
    size = 64 << 20
    script = f"import time\nkept = bytearray({size})\nprint('here', flush=True)\ntime.sleep(1000)"
    step = cluster.popen("run", "-N2", "-n2", sys.executable, "-ISc", script)
    assert step.stdout is not None
    assert [step.stdout.readline() for _ in range(2)] == ["here\n"] * 2
    wait_until(lambda: (used(cluster)[0]["memory"] or 0) > 2 * size, "both nodes have answered in time")
    assert used(cluster)[0]["memory"] < 3 * size
    step.terminate()
    step.communicate(timeout=GIVEN_UP)
