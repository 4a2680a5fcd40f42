"""Commands of a bulk step over several nodes: each ends once, no node has more than it takes, whoever is lost."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.cluster.agent import dispatcher
from nodectl.cluster.agent.dispatcher import Dispatcher
from nodectl.launch.stepd.bulk_commands import BadCommand


class Stage:
    """Nodes that run what they are sent, in some order, and a client that keeps to its window."""

    def __init__(self, ranks: range, slots: int = 2, ahead: int = 3) -> None:
        self.slots, self.most = slots, slots + ahead
        self.waiting: dict[int, list[int]] = {rank: [] for rank in ranks}
        self.runs: dict[int, list[int]] = {rank: [] for rank in ranks}
        self.closed: set[int] = set()
        self.window = 0
        self.ended: list[int] = []
        self.failed: list[int] = []
        self.withdrawn: list[int] = []
        self.begun: list[int] = []
        self.dispatcher = Dispatcher(ranks, self.send, self.tell)

    def send(self, rank: int, method: str, parameters: Mapping[str, Any]) -> None:
        assert rank not in self.closed, "it was told that nothing more comes"
        if method == "NoMore":
            self.closed.add(rank)
        elif method == "Run":
            self.waiting[rank] += [one["seq"] for one in parameters["commands"]]
            assert len(self.waiting[rank]) + len(self.runs[rank]) <= self.most

    def tell(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "start":
            self.window = event["window"]
        for told in event.get("ended", ()):
            (self.failed if told["status"] else self.ended).append(told["seq"])
        self.withdrawn += event.get("withdrawn", ())

    def start(self, rank: int) -> None:
        event = {"event": "start", "pids": [], "slots": self.slots, "window": self.most, "window_bytes": 1000}
        self.dispatcher.heard(rank, event)

    def begin(self, rank: int) -> None:
        if self.waiting[rank] and len(self.runs[rank]) < self.slots:
            seq = self.waiting[rank].pop(0)
            self.runs[rank].append(seq)
            self.begun.append(seq)
            self.dispatcher.heard(rank, {"event": "tasks", "begun": [[seq, 0, 1]]})

    def end(self, rank: int) -> None:
        if self.runs[rank]:
            seq = self.runs[rank].pop(0)
            self.dispatcher.heard(rank, {"event": "tasks", "ended": [{"seq": seq, "status": 0}]})

    def lose(self, rank: int) -> None:
        if rank in self.waiting:
            del self.waiting[rank], self.runs[rank]
            self.dispatcher.lost(rank, "it was lost")

    def run(self, *numbers: int) -> None:
        self.dispatcher.call("Run", {"commands": [{"seq": seq, "argv": ["true"]} for seq in numbers]})


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), losses=st.integers(0, 3), total=st.integers(0, 60))
def test_every_command_ends_once_whoever_is_lost(seed: int, losses: int, total: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    stage = Stage(range(4))
    order = list(range(4))
    dice.shuffle(order)
    for rank in order:
        assert not stage.window
        stage.start(rank)
    sent, lost = 0, 0
    while len(stage.ended) + len(stage.failed) < total:
        flying = sent - len(stage.ended) - len(stage.failed)
        if sent < total and flying < stage.window and dice.random() < 0.5:
            stage.run(sent)
            sent += 1
        rank = dice.choice(list(stage.waiting))
        dice.choice((stage.begin, stage.end))(rank)
        if lost < losses and dice.random() < 0.02:
            lost += 1
            stage.lose(rank)
    stage.dispatcher.call("NoMore", {})
    assert sorted(stage.ended + stage.failed) == list(range(total))
    assert stage.closed >= stage.waiting.keys()
    assert all(stage.begun.count(seq) <= 2 for seq in stage.begun), "once more, and no more"


def test_commands_go_where_there_is_room() -> None:
    stage = Stage(range(3))
    for rank in range(3):
        stage.start(rank)
    stage.run(*range(6))
    assert [len(found) for found in stage.waiting.values()] == [2, 2, 2]


def test_what_has_not_begun_can_be_withdrawn() -> None:
    stage = Stage(range(1))
    stage.start(0)
    stage.run(*range(9))
    stage.dispatcher.call("Withdraw", {})
    assert stage.withdrawn == [5, 6, 7, 8], "the node tells of those that it has"


def test_a_node_that_never_came_keeps_nobody_waiting() -> None:
    stage = Stage(range(2))
    stage.start(0)
    assert not stage.window
    stage.lose(1)
    assert stage.window == stage.most


def test_a_command_that_takes_two_nodes_along_fails() -> None:
    stage = Stage(range(3))
    for rank in range(3):
        stage.start(rank)
    stage.run(0)
    for _ in range(2):
        (rank,) = [rank for rank, waiting in stage.waiting.items() if waiting]
        stage.begin(rank)
        stage.lose(rank)
    assert stage.failed == [0]


@pytest.mark.parametrize("commands", [[{"seq": -1, "argv": ["a"]}], [{"seq": 1}], ["rubbish"], "rubbish"])
def test_what_is_no_command_is_refused(commands: object) -> None:
    stage = Stage(range(1))
    stage.start(0)
    with pytest.raises(BadCommand):
        stage.dispatcher.call("Run", {"commands": commands})


def test_a_command_longer_than_a_message_should_be_goes_alone() -> None:
    stage = Stage(range(1))
    event = {"event": "start", "pids": [], "slots": 2, "window": 9, "window_bytes": 4 << 20}
    stage.most = 9
    stage.dispatcher.heard(0, event)
    long = {"argv": ["echo", *["x" * 100_000] * 3]}
    stage.dispatcher.call("Run", {"commands": [{"seq": 0, **long}, {"seq": 1, "argv": ["true"]}, {"seq": 2, **long}]})
    assert stage.waiting[0] == [0, 1, 2]
    for _ in range(3):
        stage.begin(0)
        stage.end(0)
    stage.dispatcher.call("NoMore", {})
    assert stage.closed == {0}


def test_a_command_looks_at_few_of_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(range(1000))
    for rank in range(1000):
        stage.start(rank)
    looked = 0
    load = dispatcher._Node.load

    def counted(node: dispatcher._Node) -> float:
        nonlocal looked
        looked += 1
        return load(node)

    monkeypatch.setattr(dispatcher._Node, "load", counted)
    stage.run(*range(2000))
    for rank in range(1000):
        stage.begin(rank)
        stage.end(rank)
    stage.run(*range(2000, 3000))
    assert looked < 20 * 3000, "not at all of them for each"
    assert {len(found) + len(stage.runs[rank]) for rank, found in stage.waiting.items()} == {2}


def test_who_has_many_nodes_does_not_keep_what_all_of_them_would_take() -> None:
    stage = Stage(range(2000), slots=2, ahead=64)
    for rank in range(2000):
        stage.start(rank)
    assert stage.window == 2 * 2000 + 65_536
