"""Steps of a cluster go where the select plugin of the user's own configuration puts them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.cluster.agents import GIVEN_UP, Agents, agents
from rootful.node import wait_until

pytestmark = pytest.mark.rootful
LAST = """
import os
plugin_type = "select/last"
plugin_name = "the last node"

def select_p_job_test(job, bitmap, least, most, wanted, mode, candidates, preempted, excluded):
    chosen = list(bitmap.search(1))[-least:]
    bitmap.setall(0)
    for node in chosen:
        bitmap[node] = 1

def select_p_job_resized(job, node):
    with open(os.path.dirname(__file__) + "/resized", "a", encoding="utf-8") as file:
        file.write(node.name + "\\n")
"""


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="nodectl-test-plugins-"))
    try:
        (made / "select").mkdir()
        (made / "select/last.py").write_text(LAST)
        (made / "select/resized").touch()
        for name, mode in ((".", 0o755), ("select", 0o755), ("select/last.py", 0o644), ("select/resized", 0o666)):
            (made / name).chmod(mode)
        yield made
    finally:
        shutil.rmtree(made)


@pytest.fixture(scope="module")
def cluster(directory: Path) -> Iterator[Agents]:
    with agents(3, config=f'select_type = "select/last"\nplugin_dir = "{directory}"\n') as started:
        yield started


def all_have_joined(cluster: Agents) -> bool:
    told = json.loads(cluster.nodectl("cluster", "status", "--json").stdout)
    return [bool(node["cpus"]) for node in told["nodes"]] == [True] * 3


def test_a_sites_plugin_sees_all_nodes_of_a_cluster_and_chooses_one(cluster: Agents) -> None:
    wait_until(lambda: all_have_joined(cluster), "the leader knows all nodes")
    for _ in range(2):
        done = cluster.nodectl("run", "-n1", "sh", "-c", "echo $SLURMD_NODENAME")
        assert (done.stdout, done.stderr, done.returncode) == ("n2\n", "", 0)


def test_a_sites_plugin_is_told_of_the_node_that_a_step_goes_on_without(cluster: Agents, directory: Path) -> None:
    program = "echo here; while [ ! -e go ]; do sleep 0.05; done; echo done"
    client = cluster.popen("run", "-N2", "-n2", "--no-kill", "sh", "-c", program)
    assert client.stdout is not None
    assert [client.stdout.readline() for _ in range(2)] == ["here\n"] * 2
    cluster.kill(2)
    wait_until(lambda: (directory / "select/resized").read_text() == "n2\n", "the plugin is told")
    (cluster.home / "go").touch()
    out, _ = client.communicate(timeout=GIVEN_UP)
    assert out.split() == ["done"]
    assert (directory / "select/resized").read_text() == "n2\n"
