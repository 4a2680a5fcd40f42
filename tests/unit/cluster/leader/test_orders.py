"""What a client says to its step, by way of its node's agent."""

from __future__ import annotations

import pytest

from nodectl.cluster.leader.effects import Keep
from unit.cluster.leader.cluster import JOB, Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_the_death_of_a_client_ends_its_step(cluster: Cluster) -> None:
    number = cluster.run(nodes=2, ntasks=2)
    cluster.core.received(
        "order", 0, {"job": JOB, "step": number, "call": {"method": "hangup", "parameters": {}}}, cluster.now
    )
    cluster.settle()
    assert cluster.record(number)["state"] == "CANCELLED"
    assert cluster.is_idle()


def test_what_a_client_says_again_for_want_of_an_answer_is_done_once(cluster: Cluster) -> None:
    number = cluster.run(nodes=2, ntasks=2)
    call = {"method": "Signal", "parameters": {"signal": 10}}
    for agent in cluster.agents.values():
        agent.survives = ("Signal 10",)
    for _ in range(2):
        cluster.core.received("order", 0, {"id": -1, "job": JOB, "step": number, "call": call}, cluster.now)
    cluster.settle()
    assert [agent.orders for agent in cluster.agents.values()] == [["Signal 10"], ["Signal 10"], []]
    assert cluster.heard == [-1, -1]


def test_a_signal_reaches_nodes_that_join_the_next_leader_after_it_was_sent(cluster: Cluster) -> None:
    number = cluster.run(nodes=3, ntasks=3)
    for agent in cluster.agents.values():
        agent.survives = ("Signal 10",)
    cluster.new_leader(0)
    call = {"method": "Signal", "parameters": {"signal": 10}}
    cluster.core.received("order", 0, {"id": -1, "job": JOB, "step": number, "call": call}, cluster.now)
    cluster.join(2)
    cluster.lose(1)
    cluster.settle()
    assert [agent.orders[:1] for agent in cluster.agents.values()] == [["Signal 10"], ["Signal 10"]]


def test_a_signal_is_heard_when_it_was_sent_to_all_nodes(cluster: Cluster) -> None:
    """Its client's agent says it to the next leader until then."""
    number = cluster.run(nodes=3, ntasks=3)
    order = {"id": -1, "job": JOB, "step": number, "call": {"method": "Signal", "parameters": {"signal": 10}}}
    cluster.core.received("order", 0, order, cluster.now)
    kinds = [effect.kind for effect in cluster.core.take() if not isinstance(effect, Keep)]
    assert kinds == ["order", "ordered"]
    cluster.new_leader(0)
    for _ in range(2):
        cluster.core.received("order", 0, order, cluster.now)
    cluster.join(2)
    assert cluster.heard == []
    cluster.lose(1)
    assert cluster.heard == [-1]


def test_a_signal_reaches_each_node_once_whatever_leaders_die(cluster: Cluster) -> None:
    """Before they have answered who gave it."""
    number = cluster.run(nodes=3, ntasks=3)
    for agent in cluster.agents.values():
        agent.survives = ("Signal 10",)
    order = {"id": -1, "job": JOB, "step": number, "call": {"method": "Signal", "parameters": {"signal": 10}}}
    call: tuple[int, int] | None = None
    for joined in ((), (0,), (0, 1), ()):
        cluster.new_leader(*joined)
        cluster.core.received("order", 0, order, cluster.now)
        if call is None:
            call = cluster.call("Signal", job=JOB, step=number, signal=10)
        else:
            cluster.comes_again(call)
        for agent in cluster.agents.values():
            while agent.inbox:
                agent.hear()
    assert [agent.orders for agent in cluster.agents.values()] == [["Signal 10"] * 2] * 3
