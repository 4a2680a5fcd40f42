"""What a leader that was killed at any place leaves, and what the next one makes of it."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from nodectl.cluster.leader.journal import InUse, Journal, read
from unit.cluster.leader.cluster import JOB, Cluster


def opened(path: Path, said: list[str] | None = None) -> Journal:
    return Journal(str(path), (said if said is not None else []).append)


def test_a_torn_last_line_is_left_out_wherever_it_was_torn(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = opened(path)
    journal.append([{"e": "numbers", "kept": 1000}], durable=True)
    whole = path.stat().st_size
    journal.append([{"e": "step", "name": "sölver\n"}])
    journal.close()
    data = path.read_bytes()
    for size in range(whole, len(data)):
        path.write_bytes(data[:size])
        torn = opened(path)
        assert torn.entries == [{"e": "numbers", "kept": 1000}]
        torn.append([{"e": "next"}])
        torn.close()
        again = opened(path)
        assert again.entries == [{"e": "numbers", "kept": 1000}, {"e": "next"}]
        again.close()


def test_a_line_that_was_changed_ends_what_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = opened(path)
    journal.append([{"e": "a"}, {"e": "b"}, {"e": "c"}])
    journal.close()
    path.write_bytes(path.read_bytes().replace(b'"b"', b'"x"'))
    assert opened(path).entries == [{"e": "a"}]


def test_two_leaders_have_not_one_journal(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal")
    with pytest.raises(InUse, match="another leader"):
        opened(tmp_path / "journal")
    journal.rewrite([{"e": "a"}])
    with pytest.raises(InUse):
        opened(tmp_path / "journal")
    journal.close()
    assert opened(tmp_path / "journal").entries == [{"e": "a"}]


def test_a_disk_without_locks_keeps_it_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(_fd: int, _how: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", flock)
    said: list[str] = []
    journal = opened(tmp_path / "journal", said)
    journal.append([{"e": "leader", "epoch": 1}])
    journal.rewrite([{"e": "leader", "epoch": 2}])
    journal.close()
    assert (opened(tmp_path / "journal").entries, said) == ([{"e": "leader", "epoch": 2}], [])


def test_it_does_not_grow_without_bounds(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = opened(path)
    while not journal.is_long:
        journal.append([{"e": "ended", "text": "x" * 1_000_000}])
    journal.rewrite([{"e": "numbers", "kept": 7}])
    assert path.stat().st_size < 100
    journal.append([{"e": "more"}])
    journal.close()
    assert opened(path).entries == [{"e": "numbers", "kept": 7}, {"e": "more"}]


def test_a_full_disk_costs_no_line_that_was_written_before(tmp_path: Path) -> None:
    path, said = tmp_path / "journal", list[str]()
    journal = opened(path, said)
    journal.append([{"e": "a"}])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, limits[1]))  # Python ignores SIGXFSZ
    try:
        journal.append([{"e": "b" * 100}])
        journal.append([{"e": "c" * 100}])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    journal.append([{"e": "d"}])
    journal.close()
    assert len(said) == 1
    assert opened(path).entries == [{"e": "a"}, {"e": "d"}]


def test_nobodys_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    os.symlink(tmp_path / "mine", tmp_path / "journal")
    with pytest.raises(OSError, match="symbolic links"):
        opened(tmp_path / "journal")


def test_the_next_leader_goes_on_with_what_runs_and_knows_what_has_ended() -> None:
    cluster = Cluster()
    ended = cluster.run(name="first")
    record = cluster.end(ended)
    running = cluster.run(nodes=3, ntasks=20)
    cluster.new_leader()
    cluster.settle()
    assert cluster.record(ended) == record
    waiting = cluster.launch(ntasks=8)
    cluster.settle()
    assert waiting not in cluster.replies
    assert cluster.end(running)["state"] == "COMPLETED"
    assert cluster.number(waiting) > running
    cluster.end(cluster.number(waiting))
    assert cluster.is_idle()


def test_a_part_that_ended_while_nobody_led_is_told_to_the_next_leader() -> None:
    cluster = Cluster()
    number = cluster.run(nodes=3, ntasks=3)
    for agent in cluster.agents.values():
        agent.end(number, 5 << 8)
    cluster.new_leader()
    cluster.settle()
    record = cluster.record(number)
    assert (record["state"], record["exit_status"]) == ("FAILED", 5)
    assert cluster.ends[number] == record
    assert cluster.is_idle()


def test_a_start_that_died_with_the_leader_is_told_as_lost_and_ends_elsewhere() -> None:
    cluster = Cluster()
    call = cluster.launch(nodes=3, ntasks=3)
    cluster.agents[1].inbox.pop()  # of three orders one was on its way
    cluster.new_leader()
    cluster.settle()
    assert "n2 has lost its part" in cluster.replies[call]["parameters"]["reason"]
    assert cluster.is_idle()


def test_a_part_that_was_about_to_begin_when_the_leader_died_may_fail_still() -> None:
    cluster = Cluster(1)
    call = cluster.launch()
    agent = cluster.agents[0]
    agent.inbox.clear()
    cluster.new_leader()
    while agent.inbox:
        kind, header = agent.inbox.popleft()
        if kind == "leader":
            agent.say("here", {"token": header["token"], "steps": [[JOB, 0]]})
    cluster.settle()
    assert call not in cluster.replies
    error = {"name": "LaunchRefused", "reason": "no such plugin", "exit_status": 1}
    agent.say("begun", {"job": JOB, "step": 0, "error": error})
    cluster.settle()
    assert cluster.replies[call]["parameters"]["reason"] == "no such plugin"
    assert cluster.is_idle()


def test_a_launch_that_was_carried_out_is_not_carried_out_again() -> None:
    cluster = Cluster()
    call = cluster.launch(nodes=2, ntasks=2)
    for agent in cluster.agents.values():
        while agent.inbox:
            agent.hear()
    cluster.new_leader()  # which the gateway asks again
    cluster.settle()
    assert len(cluster.core.books.life.steps) == 1
    number = cluster.number(call)
    cluster.end(number)
    cluster.core.received("call", 0, cluster.asked[call], cluster.now)
    cluster.settle()
    assert cluster.is_idle()


def test_what_a_node_runs_and_no_leader_knows_is_ended() -> None:
    cluster = Cluster()
    number = cluster.run(nodes=2, ntasks=2)
    cluster.journal.clear()
    cluster.new_leader()
    cluster.settle()
    assert not any(agent.parts for agent in cluster.agents.values())
    assert cluster.run() > number


def test_no_number_is_given_twice_whenever_the_leader_dies() -> None:
    cluster = Cluster()
    numbers = []
    for _ in range(3):
        numbers += [cluster.run(), cluster.run()]
        for number in numbers[-2:]:
            cluster.end(number)
        cluster.new_leader()
    assert len(set(numbers)) == 6


def test_a_journal_that_was_written_anew_says_the_same() -> None:
    cluster = Cluster()
    ended, running = cluster.run(), cluster.run(nodes=2, ntasks=2)
    record = cluster.end(ended)
    cluster.journal = list(cluster.core.entries())
    cluster.new_leader()
    cluster.settle()
    assert cluster.record(ended) == record
    assert cluster.end(running)["state"] == "COMPLETED"
    assert cluster.run() > running
    assert cluster.ask("Show", job=JOB, step=running)["record"]["ntasks"] == 2


def test_a_node_that_was_lost_with_its_leader_is_told_when_the_client_hears_the_next_one() -> None:
    cluster = Cluster()
    whole, without = cluster.run(nodes=3, ntasks=3), cluster.run(nodes=3, ntasks=3, no_kill=True, overlap="")
    del cluster.agents[2]
    cluster.new_leader()
    cluster.settle()
    for number in (whole, without):
        texts = [event["text"] for event in cluster.events[number] if event["event"] == "message"]
        assert [text for text in texts if "n3 was lost" in text], texts
    assert cluster.ends[whole]["state"] == "NODE_FAIL"
    assert without not in cluster.ends
    assert cluster.end(without)["state"] == "NODE_FAIL"
    assert cluster.is_idle()


def test_a_step_that_was_lost_with_its_node_before_its_client_asked_is_told_with_the_reason() -> None:
    cluster = Cluster()
    call = cluster.launch(rank=0, nodelist="n3")
    cluster.settle()
    number = cluster.number(call)
    del cluster.agents[2]
    cluster.new_leader()
    cluster.settle()
    assert cluster.ends[number]["state"] == "NODE_FAIL"
    assert any("n3 was lost" in event.get("text", "") for event in cluster.events[number])
    assert cluster.is_idle()


def test_what_another_leader_has_kept_is_read_without_its_lock(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal")
    journal.append([{"e": "a"}])
    journal.flush()
    assert read(str(tmp_path / "journal")) == [{"e": "a"}]
    assert read(str(tmp_path / "none")) == []
    journal.close()
