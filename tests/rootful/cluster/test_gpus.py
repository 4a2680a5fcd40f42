"""GPUs of steps over agents of a job to which Slurm gave some: made up, for nothing opens them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from rootful.cluster.agents import GIVEN_UP, Agents, agents
from rootful.node import running, wait_until
from rootful.slurms import SlurmJob, scope

pytestmark = pytest.mark.rootful
_GIVEN = {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_GPUS": "2,3", "SLURM_GPUS_ON_NODE": "2"}
# What the shell of the job has, of the client's node alone.
_OF_JOB = {"SLURM_GPUS": "4", "SLURM_GPUS_PER_NODE": "2", "CUDA_VISIBLE_DEVICES": "4,5", "SLURM_JOB_GPUS": "4,5"}
_SEEN = ("sh", "-c", "echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Agents]:
    with agents(2, variables=_GIVEN) as started:
        yield started


def how(cluster: Agents, **variables: str) -> dict[str, Any]:
    return {"env": cluster.environment(0, **_OF_JOB, **variables)}


def seen(cluster: Agents, *words: str, **variables: str) -> list[str]:
    done = cluster.nodectl("run", *words, *_SEEN, **how(cluster, **variables))
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(done.stdout.splitlines())


def in_use(cluster: Agents) -> list[list[str]]:
    told = json.loads(cluster.nodectl("cluster", "status", "--json").stdout)
    assert [node["gres"] for node in told["nodes"]] == [["gpu:0", "gpu:1"]] * 2
    return [node["gres_used"] for node in told["nodes"]]


def test_a_step_that_says_nothing_has_the_gpus_of_its_nodes(cluster: Agents) -> None:
    assert seen(cluster, "-N2", "-n2") == ["0 0,1", "1 0,1"]
    assert seen(cluster, "-N1", "-n1") == ["0 0,1"]  # fewer than the variables say of the job


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-N2", "-n4", "--gpus-per-task=1"], ["0 0", "1 1", "2 0", "3 1"]),
        (["-N2", "-n4", "--gpus=2"], ["0 0", "1 0", "2 0", "3 0"]),
        (["-N2", "-n2", "--gres=gpu:1"], ["0 0", "1 0"]),
        (["-N2", "-n2", "--gres=none"], ["0 ", "1 "]),
        (["-N1", "-n2", "--gpus-per-node=2", "--gpu-bind=map_gpu:1,0"], ["0 1", "1 0"]),
    ],
)
def test_options_mean_what_they_mean_to_srun(cluster: Agents, words: list[str], expected: list[str]) -> None:
    assert [line.rstrip() for line in seen(cluster, *words)] == [line.rstrip() for line in expected]


def test_a_variable_of_the_job_can_deal_them_out(cluster: Agents) -> None:
    assert seen(cluster, "-N2", "-n4", SLURM_GPUS_PER_TASK="1") == ["0 0", "1 1", "2 0", "3 1"]


def test_steps_beside_each_other_have_gpus_of_their_own(cluster: Agents) -> None:
    program = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES; read line"
    words = ("run", "-N1", "-n1", "--gpus=1", "sh", "-c", program)
    clients = [cluster.popen(*words, **how(cluster), stdin=subprocess.PIPE) for _ in range(4)]
    lines = []
    for client in clients:
        assert client.stdout is not None
        lines.append(client.stdout.readline().strip())
    assert sorted(lines) == ["n0 0", "n0 1", "n1 0", "n1 1"]
    assert in_use(cluster) == [["gpu:0", "gpu:1"]] * 2
    late = cluster.popen("run", "-N1", "-n1", *_SEEN, **how(cluster))
    wait_until(lambda: "PENDING" in cluster.nodectl("queue").stdout, "a step waits that would have all of a node")
    for client in clients:
        client.communicate("go\n", GIVEN_UP)
    assert late.communicate(timeout=GIVEN_UP) == ("0 0,1\n", "")
    wait_until(lambda: in_use(cluster) == [[], []], "nothing is held")


def test_more_than_there_are_is_refused_in_one_line(cluster: Agents) -> None:
    done = cluster.nodectl("run", "-N2", "-n2", "--gpus-per-node=3", "true")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert "Requested node configuration is not available" in done.stderr


def test_at_roots_service_a_step_sees_what_slurm_gave_its_node() -> None:
    with scope(f"nodectl-scope-{os.getpid()}") as top:
        slurm = SlurmJob(top, 77)
        with (
            running(slurm_scope=slurm.scope, kill_wait=600) as node,
            agents(2, job=77, within=slurm, service=str(node.config_path), variables=_GIVEN) as cluster,
        ):
            assert seen(cluster, "-wn1", "-n1", SLURM_GPUS_PER_TASK="1") == ["0 0,1"]
            done = cluster.nodectl("run", "-n1", "--gpus=1", "true")
            assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
            assert "GPUs are asked for, and the nodes of this cluster have none to give" in done.stderr
        wait_until(lambda: not slurm.ours(), "nothing is left")
        slurm.end()
