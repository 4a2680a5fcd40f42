"""Steps that are suspended and go on: on all of their nodes, or on none."""

from __future__ import annotations

from typing import Any

import pytest

from unit.cluster.leader.cluster import JOB, Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def answer(cluster: Cluster, **refused: str) -> list[tuple[str, int, str]]:
    """Nodes answer what they were asked, those that are named with an error; what they were asked, and where."""
    asks, cluster.asks = cluster.asks, []
    for rank, header in asks:
        error = refused.get(cluster.names[rank])
        told: dict[str, Any] = {"parameters": {"running": []}}
        if error:
            told = {"error": f"org.nodectl.{error}", "parameters": {"reason": "no"}}
        cluster.core.received("answer", rank, {"id": header["id"], **told}, cluster.now)
    cluster.send()
    return [(header["method"], header["parameters"]["step"], cluster.names[rank]) for rank, header in asks]


def states(cluster: Cluster) -> list[str]:
    return [step["state"] for step in cluster.ask("List")["steps"]]


def test_a_step_stands_still_when_all_its_nodes_say_so_and_goes_on_likewise(cluster: Cluster) -> None:
    number = cluster.run(nodes=2, ntasks=2)
    for method, state in (("Suspend", "SUSPENDED"), ("Resume", "RUNNING")):
        before = states(cluster)
        call = cluster.call(method, 2, job=JOB, step=number)
        assert (states(cluster), call in cluster.replies) == (before, False)
        assert answer(cluster) == [(method, number, "n1"), (method, number, "n2")]
        assert (states(cluster), "error" in cluster.replies[call]) == ([state], False)


def test_what_one_node_cannot_stop_goes_on_everywhere(cluster: Cluster) -> None:
    number = cluster.run(nodes=3, ntasks=3)
    call = cluster.call("Suspend", job=JOB, step=number)
    answer(cluster, n2="WrongState")
    assert cluster.replies[call]["error"] == "org.nodectl.WrongState"
    assert cluster.ask("Suspend", job=JOB, step=number)["parameters"]["reason"].endswith(
        "is being suspended or resumed"
    )
    assert [ask[0] for ask in answer(cluster, n2="WrongState")] == ["Resume"] * 3
    assert states(cluster) == ["RUNNING"]


def test_a_part_that_has_just_ended_and_a_node_that_is_lost_are_no_reason_to_fail(cluster: Cluster) -> None:
    number = cluster.run(nodes=3, ntasks=3, no_kill=True)
    call = cluster.call("Suspend", job=JOB, step=number)
    cluster.lose(1)
    cluster.asks = [ask for ask in cluster.asks if ask[0] != 1]
    answer(cluster, n3="NoSuchStep")
    assert "error" not in cluster.replies[call]
    assert states(cluster) == ["SUSPENDED"]


def test_who_asked_may_be_gone_before_the_answer(cluster: Cluster) -> None:
    number = cluster.run(nodes=2, ntasks=2)
    call = cluster.call("Suspend", 2, job=JOB, step=number)
    cluster.core.received("hang_up", 2, {"id": call[1]}, cluster.now)
    answer(cluster)
    assert states(cluster) == ["SUSPENDED"]


@pytest.mark.parametrize(
    ("method", "why"), [("Suspend", "is suspended already"), ("Signal", "is suspended; resume it, or end it with KILL")]
)
def test_a_step_that_stands_still_is_not_suspended_again_and_takes_no_signal_but_kill(
    cluster: Cluster, method: str, why: str
) -> None:
    number = cluster.run(nodes=2, ntasks=2)
    refused = cluster.ask("Resume", job=JOB, step=number)
    assert refused["parameters"]["reason"] == f"step {JOB}.{number} is not suspended"
    cluster.call("Suspend", job=JOB, step=number)
    answer(cluster)
    more = {"signal": 15} if method == "Signal" else {}
    assert cluster.ask(method, job=JOB, step=number, **more)["parameters"]["reason"] == f"step {JOB}.{number} {why}"
    assert cluster.ask("Signal", job=JOB, step=number, signal=9) == {}


def test_a_job_is_all_steps_that_run(cluster: Cluster) -> None:
    assert cluster.ask("SuspendJob", job=str(JOB))["parameters"]["reason"] == f"job {JOB} has no step that runs"
    assert cluster.ask("SuspendJob", job="7")["error"].endswith("NoSuchJob")
    first, second = cluster.run(), cluster.run(nodes=2, ntasks=2)
    for method, state in (("SuspendJob", "SUSPENDED"), ("ResumeJob", "RUNNING")):
        call = cluster.call(method, job=str(JOB))
        assert [ask[1] for ask in answer(cluster)] == [first, second, second]
        assert ("error" in cluster.replies[call], states(cluster)) == (False, [state] * 2)


def test_a_later_leader_knows_what_stands_still(cluster: Cluster) -> None:
    number = cluster.run(nodes=2, ntasks=2)
    cluster.call("Suspend", job=JOB, step=number)
    answer(cluster)
    cluster.new_leader()
    cluster.settle()
    assert states(cluster) == ["SUSPENDED"]
    assert cluster.ask("Resume", job="no")["error"].endswith("InvalidParameter")
    cluster.call("Resume", job=JOB, step=number)
    answer(cluster)
    assert states(cluster) == ["RUNNING"]
    cluster.end(number)
    assert cluster.is_idle()


def test_what_is_asked_for_again_after_a_cut_link_happens_once(cluster: Cluster) -> None:
    number = cluster.run(nodes=2, ntasks=2)
    call = cluster.call("Suspend", job=JOB, step=number)
    cluster.comes_again(call)
    assert len(answer(cluster)) == 2
    done = cluster.replies[call]
    assert "error" not in done
    cluster.comes_again(call)
    assert cluster.replies[call] == done
    assert not cluster.asks
