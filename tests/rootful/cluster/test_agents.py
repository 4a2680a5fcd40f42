"""Agents by themselves: they begin, open their gateways, keep their nodes going, end, and leave nothing."""

from __future__ import annotations

import signal

import psutil
import pytest

from rootful.cluster.agents import agents
from rootful.node import end_again_and_again, wait_until

pytestmark = pytest.mark.rootful


def test_three_agents_begin_and_end() -> None:
    with agents() as cluster:
        assert all(cluster.children(rank, "of_agent") for rank in range(3))


def test_an_agent_whose_children_copy_has_no_thread() -> None:
    """A fork from several threads may stand still for ever."""
    with agents(1) as cluster:
        wait_until(lambda: cluster.children(0, "leader"), "its leader is there")
        assert psutil.Process(cluster.agents[0].pid).num_threads() == 1


def test_a_daemon_that_dies_is_started_again() -> None:
    with agents(1) as cluster:
        (daemon,) = cluster.children(0, "of_agent")
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
        wait_until(lambda: cluster.children(0, "of_agent"), "another daemon is there")


@pytest.mark.parametrize("rank", [0, 1])
def test_an_agent_that_is_told_to_end_again_and_again_leaves_nothing(rank: int) -> None:
    """As at the end of a job, where Slurm, the holder and a login session may all say so."""
    with agents(2) as cluster:
        agent = cluster.agents[rank]
        cluster.look()
        directory = cluster.gateway(rank).parent
        assert end_again_and_again(agent, signal.SIGTERM) == 0
        assert not directory.exists()


def test_an_agent_that_is_killed_leaves_nothing() -> None:
    with agents(2) as cluster:
        cluster.kill(1)
        place = cluster.gateway(1).parent
        wait_until(lambda: not place.exists(), "its node has removed its directory")
