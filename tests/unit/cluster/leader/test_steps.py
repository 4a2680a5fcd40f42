"""Steps over several nodes, from the launch to the record."""

from __future__ import annotations

import signal

import pytest

from nodectl.cluster.leader.effects import SendEach
from nodectl.cluster.leader.life import KILL_SECONDS
from unit.cluster.leader.cluster import JOB, NOW, Cluster

SIGTERM = signal.SIGTERM.value


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_step_begins_on_all_its_nodes_before_its_launch_is_answered(cluster: Cluster) -> None:
    call = cluster.launch(nodes=3, ntasks=6)
    for agent in list(cluster.agents.values())[:2]:
        while agent.inbox:
            agent.hear()
        while agent.outbox:
            cluster.hear(agent.rank)
    assert call not in cluster.replies
    cluster.settle()
    number = cluster.number(call)
    assert cluster.replies[call]["parameters"]["ranks"] == "0-2"
    assert [agent.parts[number]["tasks"] for agent in cluster.agents.values()] == ["0-1", "2-3", "4-5"]


def test_its_client_is_told_once_that_it_has_started_and_by_whom_a_task_ended(cluster: Cluster) -> None:
    number = cluster.run(nodes=3, ntasks=3)
    assert cluster.events[number] == [{"event": "start", "pids": [100, 101, 102]}]
    cluster.end(number)
    exits = [(event["node"], event["tasks"]) for event in cluster.events[number][1:]]
    assert sorted(exits) == [("n1", [0]), ("n2", [1]), ("n3", [2])]


def test_a_record_tells_of_all_nodes_and_sums_up_what_they_used(cluster: Cluster) -> None:
    number = cluster.run(nodes=3, ntasks=3, name="solver")
    record = cluster.end(number)
    assert cluster.ends[number] == record
    told = ("job", "step", "name", "node", "ntasks", "state", "exit_status", "uid")
    assert {name: record[name] for name in told} == {
        "job": JOB, "step": number, "name": "solver", "node": "n[1-3]", "ntasks": 3, "state": "COMPLETED",
        "exit_status": 0, "uid": 1000,
    }  # fmt: skip
    assert record["cpu_seconds"] == [3.0, 1.5]
    assert record["peak_memory"] == 102
    assert [(row["node"], row["tasks"]) for row in record["nodes"]] == [("n1", "0"), ("n2", "1"), ("n3", "2")]
    assert [(task["task"], task["node"]) for task in record["tasks"]] == [(0, "n1"), (1, "n2"), (2, "n3")]
    assert (record["started"], record["ended"]) == (NOW, NOW + 1)
    assert cluster.is_idle()


@pytest.mark.parametrize(
    ("statuses", "status", "state"),
    [((0, 0, 0), 0, "COMPLETED"), ((0, 3 << 8, 2 << 8), 3, "FAILED"), ((9 << 8, 0, 15), 143, "FAILED")],
)
def test_the_exit_status_is_the_highest_code_and_a_signal_counts_more(
    cluster: Cluster, statuses: tuple[int, ...], status: int, state: str
) -> None:
    number = cluster.run(nodes=3, ntasks=3)
    for rank, of_task in enumerate(statuses):
        cluster.agents[rank].end(number, of_task)
    cluster.settle()
    record = cluster.record(number)
    assert (record["exit_status"], record["state"]) == (status, state)


def test_what_one_node_refuses_is_the_answer_to_the_launch_and_ends_the_others(cluster: Cluster) -> None:
    cluster.agents[1].refuses = {"name": "LaunchRefused", "reason": "no such plugin", "exit_status": 7}
    call = cluster.launch(nodes=3, ntasks=3)
    cluster.settle()
    reply = cluster.replies[call]
    assert reply["error"] == "org.nodectl.LaunchRefused"
    assert reply["parameters"] == {"reason": "n2: no such plugin", "exit_status": 7}
    assert not any(agent.parts for agent in cluster.agents.values())
    assert cluster.is_idle()
    assert cluster.record(0)["state"] == "FAILED"
    assert cluster.record(0)["reason"] == "n2: no such plugin"


def test_one_bad_exit_ends_the_step_on_all_nodes_where_that_is_wanted(cluster: Cluster) -> None:
    number = cluster.run(nodes=3, ntasks=3, kill_on_bad_exit=True)
    cluster.agents[2].end(number, 3 << 8)
    cluster.settle()
    record = cluster.record(number)
    assert record["state"] == "FAILED"
    assert record["reason"] == "task 2 ended with exit code 3 and --kill-on-bad-exit was given"
    other = cluster.run(nodes=3, ntasks=3)
    cluster.agents[2].end(other, 3 << 8)
    cluster.settle()
    assert other in cluster.agents[0].parts


def test_a_lost_node_ends_its_steps_and_says_which_tasks_are_lost_with_it(cluster: Cluster) -> None:
    number = cluster.run(nodes=3, ntasks=6)
    cluster.lose(1)
    cluster.settle()
    record = cluster.ends[number]
    assert (record["state"], record["reason"]) == ("NODE_FAIL", "node n2 was lost: it does not answer")
    assert record["exit_status"] != 0
    texts = [event["text"] for event in cluster.events[number] if event["event"] == "message"]
    assert texts == ["nodectl: error: node n2 was lost: it does not answer, and tasks 2-3 with it"]
    assert cluster.is_idle()
    again = cluster.run(nodes=2, ntasks=2)
    assert again not in cluster.core.books.life.steps[again].parts
    assert list(cluster.core.books.life.steps[again].parts) == [0, 2]


def test_with_no_kill_the_others_go_on_without_it(cluster: Cluster) -> None:
    number = cluster.run(nodes=3, ntasks=3, no_kill=True)
    cluster.lose(1)
    cluster.settle()
    assert number in cluster.agents[0].parts
    record = cluster.end(number)
    assert record["state"] == "NODE_FAIL"
    assert [row["state"] for row in record["nodes"]] == ["COMPLETED", "NODE_FAIL", "COMPLETED"]


@pytest.mark.parametrize("later", [False, True], ids=["the leader", "the next leader"])
def test_a_step_that_goes_on_without_a_node_holds_nothing_there(cluster: Cluster, *, later: bool) -> None:
    number = cluster.run(nodes=3, ntasks=3, no_kill=True)
    cluster.lose(1)
    cluster.settle()
    if later:
        cluster.new_leader()
        cluster.settle()
    step = cluster.core.books.life.steps[number]
    assert list(step.held.shares) == [0, 2]
    cluster.end(number)
    assert cluster.is_idle()


def test_parts_that_need_each_other_end_with_a_lost_node_whatever_no_kill_says(cluster: Cluster) -> None:
    number = cluster.run(nodes=3, ntasks=3, no_kill=True)
    cluster.agents[0].stand(number, joined=True)
    cluster.settle()
    cluster.lose(1)
    cluster.settle()
    assert (cluster.ends[number]["state"], cluster.is_idle()) == ("NODE_FAIL", True)


@pytest.mark.parametrize("when", ["after", "with the leader", "with the leader, then"])
def test_a_node_that_is_lost_before_parts_need_each_other_ends_them_all(cluster: Cluster, when: str) -> None:
    """An agent says so late, or said so to a leader that is no more."""
    number = cluster.run(nodes=3, ntasks=3, no_kill=True)
    if when == "with the leader, then":
        cluster.agents[0].stand(number, joined=True)
        cluster.settle()
    if when == "after":
        cluster.lose(1)
    else:
        del cluster.agents[1]
        cluster.new_leader()
    cluster.settle()
    if when != "with the leader, then":
        assert number not in cluster.ends
        cluster.agents[0].stand(number, joined=True)
        cluster.settle()
    assert (cluster.ends[number]["state"], cluster.is_idle()) == ("NODE_FAIL", True)


@pytest.mark.parametrize("leaders", [1, 2])
def test_what_one_part_cannot_go_on_from_ends_all(cluster: Cluster, leaders: int) -> None:
    number = cluster.run(nodes=3, ntasks=3)
    cluster.agents[2].stand(number, fatal=["FAILED", "task 2 called MPI_Abort with code 7"])
    if leaders > 1:
        cluster.agents[2].end(number, 15)
        cluster.new_leader()  # which has heard nothing of it
    cluster.settle()
    cluster.agents[0].stand(number, fatal=["FAILED", "what follows from it"])
    cluster.settle()
    record = cluster.record(number)
    assert (record["state"], record["reason"]) == ("FAILED", "task 2 called MPI_Abort with code 7")
    texts = [event["text"] for event in cluster.events[number] if event["event"] == "message"]
    assert texts == [f"nodectl: error: step 4711.{number}: task 2 called MPI_Abort with code 7: the step ends"]
    assert cluster.is_idle()


def test_a_node_that_is_lost_before_it_begins_is_the_answer_to_the_launch(cluster: Cluster) -> None:
    call = cluster.launch(nodes=3, ntasks=3)
    cluster.lose(2)
    cluster.settle()
    assert cluster.replies[call]["error"] == "org.nodectl.LaunchRefused"
    assert "n3 was lost" in cluster.replies[call]["parameters"]["reason"]
    assert cluster.is_idle()


def test_the_death_of_a_clients_node_ends_its_steps_elsewhere(cluster: Cluster) -> None:
    call = cluster.launch(rank=2, nodelist="n1")
    cluster.settle()
    number = cluster.number(call)
    cluster.lose(2)
    cluster.settle()
    assert cluster.record(number)["state"] == "CANCELLED"


def test_orders_reach_every_node_also_one_that_has_not_begun(cluster: Cluster) -> None:
    number = cluster.run(nodes=3, ntasks=3)
    assert cluster.ask("Signal", job=JOB, step=number, signal=SIGTERM) == {}
    cluster.settle()
    assert cluster.record(number)["state"] == "CANCELLED"
    assert cluster.record(number)["exit_status"] == 128 + SIGTERM
    assert cluster.ask("Signal", job=JOB, step=number, signal=SIGTERM)["error"] == "org.nodectl.WrongState"
    assert cluster.ask("Signal", job=JOB, step=99, signal=SIGTERM)["error"] == "org.nodectl.NoSuchStep"


def test_a_cancellation_is_told_once_and_not_by_each_node(cluster: Cluster) -> None:
    number = cluster.run(nodes=3, ntasks=3)
    line = "nodectl: error: *** STEP 4711.0 ON {} CANCELLED AT 2026-01-01T00:00:00 ***"
    for agent in cluster.agents.values():
        events = [{"event": "message", "text": line.format(agent.name)}]
        agent.say("told", {"job": JOB, "step": number, "events": events})
    cluster.settle()
    assert [event["event"] for event in cluster.events[number]] == ["start", "message"]


def test_a_part_that_does_not_end_is_given_up_and_its_node_gets_nothing_more(cluster: Cluster) -> None:
    number = cluster.run(nodes=3, ntasks=3)
    stuck = cluster.agents[1].parts.pop(number)  # it does nothing that it is told
    cluster.ask("Signal", job=JOB, step=number, signal=9)
    cluster.settle()
    for _ in range(2):
        moment = cluster.core.deadline()
        assert moment is not None
        cluster.now = moment
        cluster.core.tick(cluster.now)
        cluster.settle()
    record = cluster.record(number)
    assert record["state"] == "NODE_FAIL"
    assert "n2 did not end its part" in record["reason"]
    assert stuck["node"] == "n2"
    assert [row["state"] for row in cluster.ask("Nodes")["nodes"]] == ["IDLE", "DOWN", "IDLE"]


def test_who_waits_for_a_step_is_answered_when_it_has_ended(cluster: Cluster) -> None:
    number = cluster.run(nodes=2, ntasks=2)
    waiting = cluster.call("Wait", job=JOB, step=number)
    assert waiting not in cluster.replies
    record = cluster.end(number)
    assert cluster.replies[waiting]["parameters"]["record"] == record


def test_who_wants_to_see_a_step_is_answered_when_all_its_nodes_know_it(cluster: Cluster) -> None:
    cluster.settle()
    cluster.launch(nodes=3, ntasks=3)
    calls = [cluster.call("View", rank, job=JOB, step=0) for rank in (1, 2)]
    cluster.comes_again(calls[0])
    cluster.core.received("hang_up", 2, {"id": calls[1][1]}, cluster.now)
    for rank in range(3):
        assert calls[0] not in cluster.replies
        cluster.agents[rank].hear()
        cluster.hear(rank)
    assert cluster.replies[calls[0]]["parameters"] == {"ntasks": 3, "ranks": "0-2"}
    assert "parameters" in cluster.replies[calls[1]], "its node has no use for more than one answer"
    assert cluster.ask("View", job=JOB, step=0) == {"ntasks": 3, "ranks": "0-2"}


@pytest.mark.parametrize("no_kill", [False, True])
def test_who_wants_to_see_a_step_of_which_a_node_is_lost_is_answered(cluster: Cluster, *, no_kill: bool) -> None:
    cluster.settle()
    cluster.launch(nodes=3, ntasks=3, no_kill=no_kill)
    call = cluster.call("View", job=JOB, step=0)
    for rank in (0, 2):
        cluster.agents[rank].hear()
        cluster.hear(rank)
    cluster.lose(1)
    cluster.settle()
    if no_kill:
        assert cluster.replies[call]["parameters"] == {"ntasks": 3, "ranks": "0,2"}
    else:
        assert cluster.replies[call]["parameters"]["reason"] == f"step {JOB}.0 has ended: NODE_FAIL"


def test_who_wants_to_see_a_step_that_one_node_refuses_is_refused(cluster: Cluster) -> None:
    cluster.agents[2].refuses = {"name": "LaunchRefused", "reason": "no", "exit_status": 1}
    cluster.launch(nodes=3, ntasks=3)
    call = cluster.call("View", job=JOB, step=0)
    cluster.settle()
    assert cluster.replies[call]["parameters"]["reason"] == f"step {JOB}.0 has ended: FAILED"


def test_who_wants_to_see_a_step_waits_for_its_nodes_after_the_leaders_death(cluster: Cluster) -> None:
    number = cluster.run(nodes=2, ntasks=2)
    cluster.new_leader()
    call = cluster.call("View", 2, job=JOB, step=number)
    assert call not in cluster.replies
    cluster.settle()
    assert cluster.replies[call]["parameters"] == {"ntasks": 2, "ranks": "0-1"}


def test_a_launch_that_is_too_long_for_a_message_is_refused(cluster: Cluster) -> None:
    call = cluster.launch(nodes=2, ntasks=2)
    for agent in cluster.agents.values():
        agent.inbox.clear()
    effect = SendEach("start", {"step": 0}, {0: None, 1: None})
    cluster.core.too_long(effect, "5000000 bytes", cluster.now)
    cluster.settle()
    assert cluster.replies[call]["error"] == "org.nodectl.TooLarge"
    assert cluster.is_idle()


def test_what_ignores_sigterm_is_killed_before_its_nodes_are_given_up(cluster: Cluster) -> None:
    number = cluster.run(nodes=3, ntasks=3)
    for agent in cluster.agents.values():
        agent.survives = ("Signal 15", "End", "hangup")
    cluster.ask("Signal", job=JOB, step=number, signal=SIGTERM)
    assert cluster.ask("Cancel", jobs=[str(JOB)]) == {"cancelled": [f"{JOB}.{number}"]}
    cluster.settle()
    moment = cluster.core.deadline()
    assert moment is not None
    cluster.pass_time(moment - cluster.now)
    cluster.settle()
    assert cluster.record(number)["state"] == "CANCELLED"
    assert [row["state"] for row in cluster.ask("Nodes")["nodes"]] == ["IDLE"] * 3
    assert cluster.is_idle()


def test_a_part_that_ended_badly_ends_the_others_though_no_leader_saw_its_task_exit(cluster: Cluster) -> None:
    number = cluster.run(nodes=3, ntasks=3, kill_on_bad_exit=True)
    cluster.agents[2].end(number, 3 << 8)
    cluster.new_leader()
    cluster.settle()
    assert not any(agent.parts for agent in cluster.agents.values())
    assert (cluster.record(number)["state"], cluster.record(number)["reason"]) == ("FAILED", "FAILED on n3")
    other = cluster.run(nodes=3, ntasks=3)
    cluster.agents[2].end(other, 3 << 8)
    cluster.new_leader()
    cluster.settle()
    assert other in cluster.agents[0].parts


def test_nobody_waits_for_the_output_of_a_launch_that_was_refused(cluster: Cluster) -> None:
    cluster.agents[1].refuses = {"name": "LaunchRefused", "reason": "no such plugin", "exit_status": 7}
    cluster.launch(nodes=3, ntasks=3)
    cluster.agents[2].hear()
    cluster.settle()
    assert [set(cluster.agents[rank].orders) for rank in (0, 2)] == [{"hangup"}, {"hangup"}]
    cluster.agents[1].refuses = None
    for agent in cluster.agents.values():
        agent.orders.clear()
    cluster.run(nodes=3, ntasks=3, kill_on_bad_exit=True)
    cluster.agents[1].end(1, 3 << 8)
    cluster.settle()
    assert [cluster.agents[rank].orders for rank in (0, 2)] == [["End"], ["End"]]  # its output is read


def test_tasks_are_told_of_their_jobs_nodes_where_slurm_does_not() -> None:
    cluster = Cluster(tells_job=True)
    number = cluster.run(nodes=2, ntasks=2)
    told = cluster.agents[0].parts[number]["environment"]
    assert (told["SLURM_JOB_NODELIST"], told["SLURM_JOB_CPUS_PER_NODE"], told["SLURM_JOB_NUM_NODES"]) == (
        "n[1-3]", "8(x3)", "3",
    )  # fmt: skip
    cluster = Cluster()
    number = cluster.run(nodes=2, ntasks=2)
    assert "SLURM_JOB_NODELIST" not in cluster.agents[0].parts[number]["environment"]


def test_a_signal_that_is_asked_for_again_after_a_cut_link_is_sent_once(cluster: Cluster) -> None:
    number = cluster.run(nodes=3, ntasks=3)
    call = cluster.call("Signal", job=JOB, step=number, signal=10)
    cluster.comes_again(call)
    assert cluster.replies[call]["parameters"] == {}
    cluster.settle()
    assert [agent.orders for agent in cluster.agents.values()] == [["Signal 10"]] * 3


def test_a_number_that_is_asked_for_again_is_the_same(cluster: Cluster) -> None:
    call = cluster.call("Reserve")
    first = cluster.replies[call]
    cluster.comes_again(call)
    assert cluster.replies[call] == first
    assert cluster.ask("Reserve")["step"] == first["parameters"]["step"] + 1


def test_what_was_cancelled_is_told_again(cluster: Cluster) -> None:
    number = cluster.run()
    call = cluster.call("Cancel")
    cluster.settle()
    cluster.comes_again(call)
    assert cluster.replies[call]["parameters"] == {"cancelled": [f"{JOB}.{number}"]}


def test_who_waits_is_remembered_once(cluster: Cluster) -> None:
    number = cluster.run()
    call = cluster.call("Wait", job=JOB, step=number)
    cluster.comes_again(call)
    assert cluster.core.books.life.steps[number].waiters == [call]


def test_a_node_is_asked_once(cluster: Cluster) -> None:
    number = cluster.run()
    call = cluster.call("Explain", job=JOB, step=number)
    cluster.comes_again(call)
    assert len(cluster.asks) == 1


@pytest.mark.parametrize("dropped", [False, True])
def test_an_end_that_a_link_has_lost_is_ordered_again(cluster: Cluster, *, dropped: bool) -> None:
    number = cluster.run(nodes=3, ntasks=3)
    cluster.call("Cancel")
    if dropped:
        cluster.pass_time(KILL_SECONDS)
    cluster.agents[1].inbox.clear()
    cluster.settle()
    assert number in cluster.agents[1].parts
    cluster.core.resumed(1, cluster.now)
    cluster.settle()
    assert cluster.agents[1].orders == ["hangup" if dropped else "End"]
    assert cluster.record(number)["state"] == "CANCELLED"


@pytest.mark.parametrize("pty", [[], [0, 24], [2, 24, 80, 0, 0]])
def test_a_terminal_of_no_task_is_refused(cluster: Cluster, pty: list[int]) -> None:
    reply = cluster.replies[cluster.launch(ntasks=2, pty=pty)]
    assert reply["parameters"]["parameter"] == "pty"
    assert cluster.is_idle()
