"""Steps of a cluster go where the select plugin of the user's own configuration puts them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootful.cluster.agents import Agents, agents
from rootful.node import wait_until

pytestmark = pytest.mark.rootful
LAST = """
plugin_type = "select/last"
plugin_name = "the last node"

def select_p_job_test(job, bitmap, least, most, wanted, mode, candidates, preempted, excluded):
    last = list(bitmap.search(1))[-1]
    bitmap.setall(0)
    bitmap[last] = 1
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Agents]:
    directory = Path(tempfile.mkdtemp(prefix="nodectl-test-plugins-"))
    try:
        (directory / "select").mkdir()
        (directory / "select" / "last.py").write_text(LAST)
        for path, mode in ((directory, 0o755), (directory / "select", 0o755), (directory / "select/last.py", 0o644)):
            path.chmod(mode)
        with agents(3, config=f'select_type = "select/last"\nplugin_dir = "{directory}"\n') as started:
            yield started
    finally:
        shutil.rmtree(directory)


def all_have_joined(cluster: Agents) -> bool:
    told = json.loads(cluster.nodectl("cluster", "status", "--json").stdout)
    return [bool(node["cpus"]) for node in told["nodes"]] == [True] * 3


def test_a_sites_plugin_sees_all_nodes_of_a_cluster_and_chooses_one(cluster: Agents) -> None:
    wait_until(lambda: all_have_joined(cluster), "the leader knows all nodes")
    for _ in range(2):
        done = cluster.nodectl("run", "-n1", "sh", "-c", "echo $SLURMD_NODENAME")
        assert (done.stdout, done.stderr, done.returncode) == ("n2\n", "", 0)
