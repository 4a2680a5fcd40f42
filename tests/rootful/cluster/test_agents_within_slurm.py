"""Agents within a job of Slurm's, where root's service runs their parts: what commands of their cluster get, and when
they have nodes of their own.
"""

from __future__ import annotations

import json
import sys

import pytest

from nodectl.cluster.agent.place import KILL_WAIT
from nodectl.kernel import _kernel
from nodectl.launch.confine.confinement import LEAST_LANDLOCK
from rootful.cluster.agents import Agents, agents
from rootful.node import PATH, Node, running, wait_until
from rootful.slurms import JOB, SlurmJob

pytestmark = pytest.mark.rootful


def test_agents_have_their_steps_run_by_the_service(node: Node, slurm: SlurmJob) -> None:
    with agents(2, job=JOB, within=slurm, service=str(node.config_path)) as cluster:
        services = [f"the service, in {slurm.place}"] * 2
        wait_until(lambda: _steps_by(cluster) == services, "both have joined")
        done = cluster.nodectl("run", "-w", "n1", "-n1", "cat", "/proc/self/cgroup")
        assert done.stdout.strip().endswith(f"{slurm.place}/nodectl/step_0/user/task_0"), done
        assert not cluster.children(0, "of_agent")


_ASKS = """
import json, os, sys
sys.path[:0] = {path!r}
from nodectl.model.wire import framing
sock = framing.connect(os.environ["NODECTL_SOCKET"])
request = {{"argv": ["true"], "environment": {{}}, "cwd": "/", "ntasks": 1, **json.loads(sys.argv[1])}}
null = os.open("/dev/null", os.O_RDWR)
framing.send(sock, {{"method": "org.nodectl.Launch", "parameters": {{"request": request}}}}, [null] * 3)
print(json.dumps(framing.receive(sock, framing.Inbox(1 << 22))))
"""


@pytest.mark.skipif(_kernel.landlock_abi() < LEAST_LANDLOCK, reason="this kernel has no Landlock")
def test_a_strict_step_starts_none_through_the_gateway(node: Node, slurm: SlurmJob) -> None:
    with agents(1, job=JOB, within=slurm, service=str(node.config_path)) as cluster:
        assert "at strict, starts no other" in _asked(cluster, "strict")


def test_a_step_gets_none_of_a_lower_level_through_the_gateway(node: Node, slurm: SlurmJob) -> None:
    with agents(1, job=JOB, within=slurm, service=str(node.config_path)) as cluster:
        assert "secure: none is below default, the level of step" in _asked(cluster, "default", secure="none")
        told = json.loads(_asked(cluster, "default"))["parameters"]
        wait_until(lambda: not slurm.ours(), "all have ended")
        assert node.record(told["job"], told["step"])["secure"] == "default"
        assert "error" not in json.loads(_asked(cluster, "none", secure="none"))


def _asked(cluster: Agents, level: str, **more: str) -> str:
    """What the gateway answers to a task of a step of this level that asks for a step."""
    words = [sys.executable, "-IS", "-c", _ASKS.format(path=PATH), json.dumps(more)]
    done = cluster.nodectl("run", "-n1", "--overlap", f"--secure={level}", *words)
    assert done.returncode == 0, done
    return done.stdout


def test_steps_end_with_their_agent_and_get_time_for_it(slurm: SlurmJob) -> None:
    """SIGTERM first, where the agent is told to end and not killed."""
    with running(slurm_scope=slurm.scope) as node:
        with agents(1, job=JOB, within=slurm, service=str(node.config_path)) as cluster:
            program = f"trap 'echo told >{node.scratch}/told; exit' TERM; echo here; while :; do sleep 0.1; done"
            client = cluster.popen("run", "-n1", "sh", "-c", program)
            assert client.stdout is not None
            assert client.stdout.readline() == "here\n"
            cluster.stop()
            assert (node.scratch / "told").exists()
            client.communicate()
        assert slurm.end()


def test_a_step_that_ignores_its_end_is_killed_with_its_agent_before_slurm_kills_that(slurm: SlurmJob) -> None:
    with running(slurm_scope=slurm.scope, kill_wait=3600) as node:
        told = {KILL_WAIT: "3"}
        with agents(1, job=JOB, within=slurm, service=str(node.config_path), variables=told) as cluster:
            client = cluster.popen("run", "-n1", "sh", "-c", "trap '' TERM; echo here; exec sleep 1000")
            assert client.stdout is not None
            assert client.stdout.readline() == "here\n"
            cluster.stop()
            assert not cluster.gateway(0).parent.exists()
            client.communicate()
        assert slurm.end()


def test_where_the_service_refuses_agents_have_nodes_of_their_own(slurm: SlurmJob) -> None:
    with running() as node:
        with agents(1, job=JOB, within=slurm, service=str(node.config_path)) as cluster:
            (told,) = _steps_by(cluster)
            assert told.startswith("a node of their user: ")
            assert told.endswith("the configuration names no slurm_scope")
            assert cluster.nodectl("run", "-n1", "echo", "well").stdout == "well\n"
            assert slurm.user.child("nodectl").exists() is False
        slurm.end()


def test_agents_of_another_job_have_nodes_of_their_own(node: Node, slurm: SlurmJob) -> None:
    with agents(1, job=JOB + 1, within=slurm, service=str(node.config_path)) as cluster:
        assert _steps_by(cluster) == [f"a node of their user: to the service this is a process of job {JOB}"]
        assert cluster.nodectl("run", "-n1", "echo", "well").stdout == "well\n"


def _steps_by(cluster: Agents) -> list[str]:
    told = json.loads(cluster.nodectl("cluster", "status", "--json").stdout)
    return [node["steps_by"] for node in told["nodes"]]
