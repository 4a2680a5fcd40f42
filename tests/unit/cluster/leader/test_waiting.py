"""Launches that wait for nodes, and the calls that tell of them."""

from __future__ import annotations

import pytest

from unit.cluster.leader.cluster import JOB, Cluster, request


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_what_does_not_fit_waits_and_starts_when_it_does(cluster: Cluster) -> None:
    first = cluster.run(nodes=3, ntasks=24)
    waiting = cluster.launch(nodes=2, ntasks=2)
    cluster.settle()
    assert waiting not in cluster.replies
    [row] = cluster.ask("Queue")["jobs"]
    assert (row["job"], row["state"], row["name"], row["tasks"]) == (JOB, "PENDING", "true", 2)
    cluster.end(first)
    assert cluster.number(waiting) > first
    assert not cluster.ask("Queue")["jobs"]


def test_launches_that_need_the_same_start_in_the_order_in_which_they_came(cluster: Cluster) -> None:
    first = cluster.run(nodes=3, ntasks=24)
    waiting = [cluster.launch(nodes=3, ntasks=24) for _ in range(3)]
    cluster.settle()
    cluster.end(first)
    for call in waiting:
        cluster.end(cluster.number(call))
    assert cluster.is_idle()


def test_a_small_launch_passes_a_large_one_but_not_for_ever(cluster: Cluster) -> None:
    small = cluster.run()
    large = cluster.launch(nodes=3, ntasks=24)
    passed = 0
    for _ in range(400):
        call = cluster.launch()
        cluster.settle()
        if call not in cluster.replies:
            break
        cluster.end(cluster.number(call))
        passed += 1
    assert passed == 256
    cluster.end(small)
    cluster.end(cluster.number(large))
    assert call in cluster.replies


def test_a_launch_is_withdrawn_while_it_waits_and_not_when_it_has_begun(cluster: Cluster) -> None:
    first = cluster.launch(nodes=3, ntasks=24)
    cluster.settle()
    waiting = cluster.launch(nodes=2, ntasks=2)
    cluster.settle()
    for rank, number in (first, waiting):
        cluster.core.received("withdraw", rank, {"id": number}, cluster.now)
    cluster.send()
    assert cluster.replies[waiting]["error"] == "org.nodectl.Withdrawn"
    assert not cluster.ask("Queue")["jobs"]
    cluster.end(cluster.number(first))
    assert cluster.is_idle()


def test_immediate_waits_no_longer_than_it_may(cluster: Cluster) -> None:
    first = cluster.run(nodes=3, ntasks=24)
    at_once = cluster.launch(immediate=0)
    soon = cluster.launch(immediate=5)
    assert cluster.replies[at_once]["error"] == "org.nodectl.Busy"
    cluster.pass_time(4)
    assert soon not in cluster.replies
    cluster.pass_time(2)
    assert cluster.replies[soon]["error"] == "org.nodectl.Busy"
    cluster.end(first)
    assert cluster.is_idle()


def test_who_hangs_up_waits_no_more(cluster: Cluster) -> None:
    first = cluster.run(nodes=3, ntasks=24)
    rank, number = cluster.launch()
    cluster.core.received("hang_up", rank, {"id": number}, cluster.now)
    cluster.send()
    assert "has gone" in cluster.replies[rank, number]["parameters"]["reason"]  # the gateway lets go of its streams
    cluster.end(first)
    assert not cluster.core.books.life.steps


def test_what_waits_for_a_node_that_is_lost_is_refused(cluster: Cluster) -> None:
    first = cluster.run(nodes=2, ntasks=16)
    waiting = cluster.launch(nodes=3, ntasks=3)
    cluster.settle()
    cluster.lose(2)
    assert "not available" in cluster.replies[waiting]["parameters"]["reason"]
    cluster.end(first)


def test_a_launch_before_all_nodes_have_joined_waits_for_them() -> None:
    cluster = Cluster(join=False)
    call = cluster.launch(nodes=3, ntasks=3)
    cluster.join(0, 1)
    cluster.pass_time(1)
    assert call not in cluster.replies
    cluster.join(2)
    cluster.pass_time(1)
    cluster.settle()
    assert cluster.number(call) == 0


def test_nodes_that_never_join_are_not_waited_for_for_ever() -> None:
    cluster = Cluster(join=False)
    call = cluster.launch(nodes=3, ntasks=3)
    cluster.join(0, 1)
    cluster.pass_time(61)
    assert "error" in cluster.replies[call]
    assert [row["state"] for row in cluster.ask("Nodes")["nodes"]] == ["IDLE", "IDLE", "DOWN"]


def test_cancel_ends_what_runs_and_what_waits(cluster: Cluster) -> None:
    first = cluster.run(nodes=3, ntasks=24, name="solver")
    waiting = cluster.launch()
    assert cluster.ask("Cancel", jobs=[str(JOB)], names=["other"]) == {"cancelled": []}
    assert cluster.ask("Cancel", jobs=[str(JOB)]) == {"cancelled": [f"{JOB}.{first}", f"{JOB}.{first + 1}"]}
    cluster.settle()
    assert cluster.record(first)["state"] == "CANCELLED"
    assert "error" in cluster.replies[waiting]
    assert cluster.ask("Cancel", jobs=["1"])["error"] == "org.nodectl.NoSuchJob"


def test_a_launch_that_waits_has_the_number_of_its_step(cluster: Cluster) -> None:
    first = cluster.run(nodes=3, ntasks=24, name="solver")
    waiting, more = cluster.launch(name="one"), cluster.launch(name="two")
    assert [job["id"] for job in cluster.ask("Queue")["jobs"]] == [f"{JOB}.{first + 1}", f"{JOB}.{first + 2}"]
    told = cluster.ask("Explain", job=JOB, step=first + 2)["explanation"]
    assert (told["state"], told["for"]) == ("PENDING", [f"step {JOB}.{first} (solver)"])
    assert cluster.ask("ExplainJob", job=str(JOB))["explanation"]["state"] == "PENDING"
    assert cluster.ask("Signal", job=JOB, step=first + 1, signal=15) == {"cancelled": True}
    assert "error" in cluster.replies[waiting]
    cluster.end(first)
    cluster.settle()
    assert cluster.number(more) == first + 2
    assert cluster.ask("ExplainJob", job=str(JOB))["error"] == "org.nodectl.NoSuchJob"


def test_a_step_that_is_cancelled_is_ended_and_not_only_signalled(cluster: Cluster) -> None:
    number = cluster.run(nodes=3, ntasks=3)
    cluster.agents[0].end(number)
    cluster.settle()
    cluster.ask("Cancel", jobs=[str(JOB)])
    cluster.settle()
    assert [agent.orders for agent in cluster.agents.values()] == [[], ["End"], ["End"]]
    (line,) = [event["text"] for event in cluster.events[number] if event["event"] == "message"]
    assert line.startswith(f"nodectl: error: *** STEP {JOB}.{number} ON n[1-3] CANCELLED AT ")
    assert cluster.record(number)["state"] == "CANCELLED"


def test_lists_show_what_runs_and_what_has_ended(cluster: Cluster) -> None:
    ended = cluster.run()
    cluster.end(ended)
    running = cluster.run(nodes=2, ntasks=2)
    steps = cluster.ask("List", ended=10)["steps"]
    assert [(step["step"], step["state"]) for step in steps] == [(running, "RUNNING"), (ended, "COMPLETED")]
    assert cluster.ask("Show", job=JOB, step=running)["record"]["node"] == "n[1-2]"
    assert cluster.ask("Show", job=JOB, step=7)["error"] == "org.nodectl.NoSuchStep"
    rows = cluster.ask("Accounting", of="steps")["records"]
    assert [(row["step"], row["cpus"]) for row in rows] == [(running, 2), (ended, 1)]


def test_nodes_show_what_of_them_is_taken(cluster: Cluster) -> None:
    cluster.run(nodes=2, ntasks=2, mem=100)
    rows = cluster.ask("Nodes")["nodes"]
    assert [(row["name"], row["state"], row["cpus"], row["cpus_used"], row["memory_used"]) for row in rows] == [
        ("n1", "MIXED", 8, 1, 100), ("n2", "MIXED", 8, 1, 100), ("n3", "IDLE", 8, 0, 0),
    ]  # fmt: skip


def test_a_reserved_number_is_the_steps_and_is_given_once(cluster: Cluster) -> None:
    reserved = cluster.ask("Reserve")
    assert reserved == {"job": JOB, "step": 1}
    assert cluster.run(job=JOB, step=1) == 1
    again = cluster.launch(job=JOB, step=1)
    assert cluster.replies[again]["error"] == "org.nodectl.InvalidRequest"
    assert cluster.run(jobid=JOB) == 2
    assert cluster.replies[cluster.launch(jobid=JOB + 1)]["error"] == "org.nodectl.NoSuchStep"


def test_a_number_that_an_earlier_leader_reserved_is_the_steps_and_is_given_once(cluster: Cluster) -> None:
    reserved = cluster.ask("Reserve")["step"]
    cluster.new_leader()
    cluster.settle()
    assert cluster.run(job=JOB, step=reserved) == reserved
    again = cluster.launch(job=JOB, step=reserved)
    assert cluster.replies[again]["error"] == "org.nodectl.InvalidRequest"


def test_an_answer_to_an_earlier_leader_is_none_to_the_next_one(cluster: Cluster) -> None:
    number = cluster.run(nodes=2, ntasks=2, nodelist="n[2-3]")
    cluster.call("Trace", job=JOB, step=number)
    [(rank, asked)] = cluster.asks
    cluster.new_leader()
    cluster.settle()
    late = {"id": asked["id"], "parameters": {"trace": ["another's"], "next": 0}}
    cluster.core.received("answer", rank, late, cluster.now)
    cluster.send()
    assert late["parameters"] not in [reply.get("parameters") for reply in cluster.replies.values()]


def test_what_only_a_node_knows_is_asked_of_it(cluster: Cluster) -> None:
    number = cluster.run(nodes=2, ntasks=2, nodelist="n[2-3]")
    call = cluster.call("Trace", job=JOB, step=number)
    [(rank, asked)] = cluster.asks
    assert (rank, asked["method"], asked["parameters"]) == (1, "Trace", {"job": JOB, "step": number})
    answer = {"id": asked["id"], "parameters": {"trace": [], "next": 0}}
    cluster.core.received("answer", rank, answer, cluster.now)
    cluster.send()
    assert cluster.replies[call]["parameters"] == {"trace": [], "next": 0}


def test_a_question_that_a_broken_link_has_lost_is_asked_again(cluster: Cluster) -> None:
    number = cluster.run(nodes=2, ntasks=2, nodelist="n[2-3]")
    call = cluster.call("Trace", job=JOB, step=number)
    cluster.core.resumed(2, cluster.now)
    cluster.core.resumed(1, cluster.now)
    cluster.send()
    assert [rank for rank, _ in cluster.asks] == [1, 1]
    assert cluster.asks[0] == cluster.asks[1]
    for tasks in ([1], [2]):
        answer = {"id": cluster.asks[0][1]["id"], "parameters": {"trace": tasks, "next": 0}}
        cluster.core.received("answer", 1, answer, cluster.now)
    cluster.send()
    assert cluster.replies[call]["parameters"]["trace"] == [1]


def test_nothing_is_asked_of_a_node_that_an_earlier_leader_lost(cluster: Cluster) -> None:
    number = cluster.run(nodes=2, ntasks=2, nodelist="n[2-3]")
    cluster.lose(1)
    cluster.settle()
    cluster.new_leader()
    cluster.settle()
    assert "it does not answer" in cluster.ask("Trace", job=JOB, step=number)["parameters"]["reason"]
    assert [row["reason"] for row in cluster.ask("Nodes")["nodes"]] == ["", "it does not answer", ""]


def test_who_calls_is_answered_though_the_leader_makes_a_mistake(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(cluster.core.calls, "answer", fail)
    with pytest.raises(OSError, match="Too many"):
        cluster.call("Nodes")
    cluster.send()
    reply = cluster.replies[0, cluster.calls]
    assert reply["error"] == "org.nodectl.InternalError"
    assert "Too many open files" in reply["parameters"]["reason"]


@pytest.mark.parametrize(
    ("given", "parameter"),
    [({"method": "Submit", "parameters": {}}, "method"), ({"method": "List", "parameters": {"x": 1}}, "x"),
     ({"method": "Launch", "parameters": {"request": {"argv": []}}}, "cwd"),
     ({"method": "Launch", "parameters": {"request": {**request(), "part": {}}}}, "part")],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_and_named(cluster: Cluster, given: dict[str, object], parameter: str) -> None:
    cluster.core.received("call", 0, {"id": 99, **given}, cluster.now)
    cluster.send()
    assert cluster.replies[0, 99]["parameters"]["parameter"] == parameter
