"""The history as commands tell it: long lists, and long commands in it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from nodectl.service.daemon.history.store import Ended, Store
from rootful.node import NOBODY, OTHER, Node, wait_until

FEW, MANY = 10, 4000


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    yield node
    node.close()


def remember(node: Node, count: int, size: int, trace: bytes = b"") -> None:
    """Steps of two users in turns, with records of about `size` characters, in the history of a node to be started."""
    store = Store(f"{node.values['state_dir']}/history.db", 10_000)
    facts = {"user": "x", "name": "x", "state": "COMPLETED", "ntasks": 1, "cpus": "1", "submitted": 1.0, "step": 0}
    store.add(
        [
            Ended(
                {**facts, "job": store.next_job(), "uid": user.pw_uid, "ended": 2.0 + n, "command": ["x" * size]}, trace
            )
            for n in range(count // 2)
            for user in (NOBODY, OTHER)
        ]
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


def test_log_has_one_line_for_each_ended_step_whatever_its_user_calls_it(node: Node) -> None:
    node.start()
    name = "x\nnodectl daemon: ended step=9.0 uid=0"
    node.run("-J", name, "sh", "-c", "exit 3", user=NOBODY)
    node.run("-J", "second", "true")
    wait_until(lambda: "ended step=2.0" in node.logged(), "the second is told")
    first, second = (line for line in node.logged().splitlines() if line.startswith("nodectl daemon: ended step="))
    assert first.startswith(f'nodectl daemon: ended step=1.0 uid={NOBODY.pw_uid} user="nobody" name="x\\nnodectl')
    assert 'state="FAILED" exit_status=3 ntasks=1 ' in first
    assert 'step=2.0 uid=0 user="root" name="second" state="COMPLETED" exit_status=0' in second
    node.configure(log_ended_steps=False)
    node.restart()
    assert node.run("true").returncode == 0
    wait_until(lambda: not list(node.steps.iterdir()), "it is in the history")
    assert "step=3.0" not in node.logged()


def test_flood_of_one_user_flushes_no_others_record_away(node: Node) -> None:
    node.configure(history_limit=20)
    node.start()
    assert node.run("true").returncode == 0
    request = {"argv": ["true"], "environment": {"PATH": "/usr/bin:/bin"}, "cwd": "/", "ntasks": 1, "uid": "nobody"}
    jobs = [node.call("Launch", request=request)["job"] for _ in range(60)]
    for job in jobs:
        node.call("Wait", job=job, step=0)
    wait_until(lambda: not list(node.steps.iterdir()), "they are in the history")
    kept = [step["job"] for step in node.call("List", ended=100)["steps"]]  # type: ignore[attr-defined]
    assert len(kept) <= 21
    assert kept[-1] == 1
    assert jobs[-1] in kept


def test_long_trace_comes_in_several_replies(node: Node) -> None:
    lines = [json.dumps({"t": number, "call": "x" * 1000}) for number in range(3000)]
    remember(node, 2, 10, "".join(f"{line}\n" for line in lines).encode("ascii"))
    node.start()
    reply = node.call("Trace", job=1, step=0)
    first: list[object] = reply["trace"]  # type: ignore[assignment]
    assert 0 < len(first) < 1100
    assert int(str(reply["next"])) > 0
    shown = node.nodectl("trace", "--json", "1", user=NOBODY)
    assert [json.loads(line) for line in shown.stdout.splitlines()] == [json.loads(line) for line in lines]
    assert node.call("Trace", job=1, step=0, begin=1 << 30) == {"trace": [], "next": 0}
