"""What running steps use, as their nodes say it."""

from __future__ import annotations

from typing import Any

import pytest

from unit.cluster.leader.cluster import JOB, Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def row(number: int, seconds: float | None, memory: int | None = 100, **pressure: float) -> dict[str, Any]:
    return {
        "job": JOB, "step": number, "cpu_seconds": seconds, "memory": memory, "read": None, "written": 7,
        "pressure": pressure,
    }  # fmt: skip


def answer(cluster: Cluster, **rows: list[dict[str, Any]]) -> list[str]:
    """Nodes say so by their names, and those that are not named say nothing; who was asked."""
    asks, cluster.asks = cluster.asks, []
    for rank, header in asks:
        assert (header["method"], header["parameters"]) == ("Usage", {})
        if (told := rows.get(cluster.names[rank])) is not None:
            cluster.core.received("answer", rank, {"id": header["id"], "parameters": {"steps": told}}, cluster.now)
    cluster.send()
    return [cluster.names[rank] for rank, _ in asks]


def used(cluster: Cluster, call: tuple[int, int]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = cluster.replies[call]["parameters"]["steps"]
    return rows


def test_it_is_the_sum_of_all_nodes_of_a_step(cluster: Cluster) -> None:
    wide, narrow = cluster.run(nodes=3, ntasks=3), cluster.run(nodes=1, ntasks=1)
    call = cluster.call("Usage")
    stranger = {**row(wide, 1000.0), "job": JOB + 1}
    asked = answer(
        cluster, n1=[row(wide, 1.0, cpu=5.0), row(narrow, 9.0)], n2=[row(wide, 2.0, cpu=9.0, io=1.0), stranger],
        n3=[row(wide, None, None, cpu=2.0)],
    )  # fmt: skip
    assert asked == ["n1", "n2", "n3"]
    assert used(cluster, call) == [
        {**row(wide, 3.0, 200, cpu=9.0, io=1.0), "written": 21},
        row(narrow, 9.0),
    ]


def test_who_is_late_delays_nobody_and_counts_with_what_it_said_before(cluster: Cluster) -> None:
    number = cluster.run(nodes=2, ntasks=2)
    first = cluster.call("Usage")
    answer(cluster, n1=[row(number, 1.0)], n2=[row(number, 2.0)])
    assert used(cluster, first)[0]["cpu_seconds"] == 3.0
    second = cluster.call("Usage")
    late = cluster.asks[1]
    answer(cluster, n1=[row(number, 5.0)])
    assert second not in cluster.replies
    cluster.pass_time(1.0)
    assert used(cluster, second)[0]["cpu_seconds"] == 7.0
    assert cluster.core.deadline() is None
    third = cluster.call("Usage")
    cluster.asks.append(late)
    assert answer(cluster, n1=[row(number, 6.0)], n2=[row(number, 3.0)]) == ["n1", "n2"]
    assert used(cluster, third)[0]["cpu_seconds"] == 8.0, "nobody waits for who is late already"
    cluster.call("Usage")
    assert answer(cluster, n1=[], n2=[]) == ["n1", "n2"], "it is asked again when it has answered"


def test_what_a_late_node_says_counts_for_who_asks_next(cluster: Cluster) -> None:
    """However busy it is."""
    number = cluster.run(nodes=2, ntasks=2)
    seen = []
    for seconds in (1.0, 2.0, 3.0):
        call = cluster.call("Usage")
        late = cluster.asks[1:]
        answer(cluster, n1=[row(number, 100.0)])
        cluster.pass_time(1.0)
        seen.append(used(cluster, call)[0]["cpu_seconds"])
        cluster.asks = late
        answer(cluster, n2=[row(number, seconds)])
    assert seen == [100.0, 101.0, 102.0]


def test_a_caller_whose_answer_was_lost_is_answered_again_beside_a_late_node(cluster: Cluster) -> None:
    number = cluster.run(nodes=2, ntasks=2, no_kill=True)
    call = cluster.call("Usage")
    late = cluster.asks[1]
    answer(cluster, n1=[row(number, 1.0)])
    cluster.pass_time(1.0)
    cluster.comes_again(call)
    assert answer(cluster, n1=[row(number, 2.0)]) == ["n1"]
    assert used(cluster, call)[0]["cpu_seconds"] == 2.0
    cluster.core.resumed(1, cluster.now)
    cluster.send()
    assert cluster.asks == [late], "what it was asked may be lost with its link"
    cluster.asks.clear()
    cluster.lose(1)
    call = cluster.call("Usage")
    assert answer(cluster, n1=[row(number, 3.0)]) == ["n1"]
    assert used(cluster, call)[0]["cpu_seconds"] == 3.0


def test_nodes_are_asked_once_however_many_want_to_know(cluster: Cluster) -> None:
    number = cluster.run(nodes=2, ntasks=2)
    calls = [cluster.call("Usage", rank) for rank in (0, 1, 1)]
    cluster.comes_again(calls[2])
    assert len(cluster.asks) == 2
    cluster.core.received("hang_up", 0, {"id": calls[0][1]}, cluster.now)
    answer(cluster, n1=[row(number, 1.0)], n2=[row(number, 2.0)])
    assert [used(cluster, call)[0]["cpu_seconds"] for call in calls[1:]] == [3.0, 3.0]


def test_a_node_that_is_lost_is_not_waited_for(cluster: Cluster) -> None:
    number = cluster.run(nodes=3, ntasks=3, no_kill=True)
    call = cluster.call("Usage")
    cluster.lose(1)
    answer(cluster, n1=[row(number, 1.0)], n3=[row(number, 2.0)])
    assert used(cluster, call)[0]["cpu_seconds"] == 3.0


def test_where_nothing_runs_nobody_is_asked(cluster: Cluster) -> None:
    assert cluster.ask("Usage") == {"steps": []}
    assert not cluster.asks
