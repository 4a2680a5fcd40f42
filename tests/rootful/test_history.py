"""The history as commands tell it: long lists, and long commands in it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from nodectl.daemon.store import Ended, Store
from rootful.node import NOBODY, OTHER, Node

FEW, MANY = 10, 4000


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    yield node
    node.close()


def remember(node: Node, count: int, size: int) -> None:
    """Steps of two users in turns, with records of about `size` characters, in the history of a node to be started."""
    store = Store(f"{node.values['state_dir']}/history.db", 10_000)
    facts = {"user": "x", "name": "x", "state": "COMPLETED", "ntasks": 1, "cpus": "1", "submitted": 1.0, "step": 0}
    store.add(
        Ended({**facts, "job": store.next_job(), "uid": user.pw_uid, "ended": 2.0 + n, "command": ["x" * size]}, b"")
        for n in range(count // 2)
        for user in (NOBODY, OTHER)
    )
    store.close()


def jobs(node: Node, most: int, user: object = None) -> list[int]:
    listed = node.nodectl("ps", "--json", f"--ended={most}", user=user)  # type: ignore[arg-type]
    return [step["job"] for step in json.loads(listed.stdout)["steps"]]


def test_list_of_thousands_comes_whole_and_newest_first(node: Node) -> None:
    remember(node, MANY, 1000)
    node.start()
    assert jobs(node, 10_000) == list(range(MANY, 0, -1))
    assert jobs(node, MANY - 7) == list(range(MANY, 7, -1))
    assert jobs(node, MANY, OTHER) == list(range(MANY, 0, -2))


def test_one_reply_has_room_for_no_more_than_is_read_at_once(node: Node) -> None:
    remember(node, FEW, 1 << 20)
    node.start()
    reply = node.call("List", ended=FEW)
    assert reply["more"]
    assert len(reply["steps"]) == 1  # type: ignore[arg-type]
    assert jobs(node, FEW) == list(range(FEW, 0, -1))


def test_running_steps_are_told_once(node: Node) -> None:
    remember(node, MANY, 1000)
    node.start()
    listed = node.nodectl("run", *node.command("ps", "--json", f"--ended={MANY}"))
    found = [step["job"] for step in json.loads(listed.stdout)["steps"]]
    assert found == list(range(MANY + 1, 0, -1))


def test_step_that_has_left_its_record_has_ended_whatever_keeps_its_runner(node: Node) -> None:
    node.start()
    assert node.run("true", user=NOBODY).returncode == 0
    with node.popen("sh", "-c", "echo on; exec sleep 60", user=NOBODY) as step:
        assert step.stdout is not None
        assert step.stdout.readline() == "on\n"
        record = node.steps / "2.0.record"
        record.write_text(json.dumps({**node.record(1), "job": 2}), encoding="ascii")
        assert node.call("List")["steps"] == []
        states = [(found["job"], found["state"]) for found in node.call("List", ended=2)["steps"]]  # type: ignore[attr-defined]
        assert states == [(2, "COMPLETED"), (1, "COMPLETED")]
        assert "has ended: COMPLETED" in node.nodectl("signal", "2").stderr
        record.unlink()
        assert [found["state"] for found in node.call("List")["steps"]] == ["RUNNING"]  # type: ignore[attr-defined]
        step.terminate()
    node.assert_clean()


def test_beginning_of_a_long_command_is_told_and_kept(node: Node) -> None:
    node.start()
    words = ["x" * 100_000] * 10
    assert node.nodectl("run", "sh", "-c", "echo ${#10}", "sh", *words, user=NOBODY).stdout == "100000\n"
    node.nodectl("run", "true", *["x"] * 50_000, user=NOBODY)
    shown = json.loads(node.nodectl("show", "1", "--json").stdout)["command"]
    assert shown[:4] == ["sh", "-c", "echo ${#10}", "sh"]
    assert len(shown) == 5
    assert shown[4] == "x" * (len(shown[4]) - 3) + "..."
    assert len("".join(shown)) <= 4096 + 3
    assert len(json.loads(node.nodectl("show", "2", "--json").stdout)["command"]) < 2100
    assert node.nodectl("run", "true", "short").returncode == 0
    assert json.loads(node.nodectl("show", "3", "--json").stdout)["command"] == ["true", "short"]
