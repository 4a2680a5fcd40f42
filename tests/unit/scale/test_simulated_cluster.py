"""The simulator of tests/bench/scale: its arithmetic, and what real code promises in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.scale import pictures, plays
from bench.scale.client import Bulk, Gateway, Step
from bench.scale.cluster import Cluster
from bench.scale.costs import Measured
from bench.scale.footprint import footprint
from bench.scale.loop import Loop, Process, played
from bench.scale.network import Costs, Network
from bench.scale.nodes import Habits, Launch
from nodectl.cluster.mesh.core import Wire
from nodectl.cluster.mesh.mesh import LEADER
from nodectl.cluster.mesh.root import Root
from nodectl.cluster.mesh.words import Join

_LAUNCH = Launch(begun=0.01, started=0.02, ended=0.03, cpu=0.0)
_COSTS = Measured(Costs(), 0.0, [_LAUNCH], 0.001, 0.0)
Grow = Callable[..., Cluster]


@pytest.fixture(name="grow")
def fixture_grow() -> Iterator[Grow]:
    """Makes clusters of nodes that have joined; nothing is measured, so that each play is the same."""
    clusters = []

    def grow(count: int, *, slots: int = 4, task: float = 0.0) -> Cluster:
        habits = Habits([_LAUNCH], slots, 0.001, task)
        cluster = Cluster(count, loop=Loop(measured=False), habits=habits, latency=0.001)
        clusters.append(cluster)
        cluster.grow()
        return cluster

    yield grow
    for cluster in clusters:
        cluster.close()


def ran(cluster: Cluster, work: Step | Bulk) -> None:
    """To its end."""
    played(cluster.loop, cluster.agents[0], work.run)
    cluster.loop.run(over=lambda: work.ended or cluster.loop.failures)
    assert not cluster.loop.failures


def test_ranks_call_the_root_one_after_the_other(grow: Grow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all handshakes with it are at the same moment, and children come before their parents."""
    called: dict[int, float] = {}
    asked = Root.asked

    def note(root: Root, wire: Wire, join: Join, now: float) -> None:
        called.setdefault(join.rank, now)
        asked(root, wire, join, now)

    monkeypatch.setattr(Root, "asked", note)
    cluster = grow(60)
    spacing = cluster.settings.spacing
    assert spacing > 0
    assert all(called[rank] >= rank * spacing for rank in range(1, 60))


def test_each_message_arrives_once_and_in_order(grow: Grow) -> None:
    cluster = grow(60)
    sent: dict[int, list[int]] = {rank: [] for rank in range(60)}
    came: dict[int, list[int]] = {rank: [] for rank in range(60)}

    def hear(rank: int, sender: int, header: Mapping[str, Any], body: bytes) -> None:
        came[rank].append(header["number"])

    for rank, mesh in cluster.meshes.items():
        if rank != LEADER:
            mesh.handle("word", partial(hear, rank))

    def say(start: int) -> None:
        for number in range(start, start + 300):
            to = number * 7 % 60
            sent[to].append(number)
            cluster.meshes[17].send(to, "word", {"number": number})

    for start in (0, 300, 600):
        cluster.loop.within(cluster.agents[17], say, start)
        cluster.loop.run(until=cluster.loop.time() + 1)
    assert came == sent


def test_a_step_takes_what_its_nodes_and_links_take(grow: Grow) -> None:
    cluster = grow(20)
    step = Step(Gateway(cluster, 0), cluster, 20, 20)
    ran(cluster, step)
    there_and_back = 2 * cluster.depth() * cluster.network.latency
    least = there_and_back + _LAUNCH.started
    assert step.record["state"] == "COMPLETED"
    assert least <= step.started - step.called < 2 * least
    assert step.ended - step.started >= _LAUNCH.ended


def test_a_busy_process_does_the_next_thing_later() -> None:
    loop = Loop(measured=False)
    one, other = Process("one", 0), Process("other", 1)
    seen: list[tuple[str, float]] = []

    def work(process: Process, seconds: float) -> None:
        seen.append((process.name, round(loop.time(), 3)))
        loop.charge(seconds)

    for process in (one, one, other):
        loop.within(process, work, process, 0.5)
    loop.run(over=lambda: len(seen) == 3)
    loop.close()
    assert seen == [("one", 0.0), ("one", 0.5), ("other", 0.0)]


def test_what_is_sent_waits_for_the_interface_of_its_node() -> None:
    loop = Loop(measured=False)
    network = Network(loop, Costs(), latency=0.1, bandwidth=1000.0)
    here, there, beside = Process("here", 0), Process("there", 1), Process("beside", 0)
    assert network.carry(here, there, 934, 0.0) == pytest.approx(1.1)
    assert network.carry(beside, there, 934, 0.0) == pytest.approx(2.1), "it has one"
    assert network.carry(here, beside, 10**9, 0.0) < 0.1, "nothing leaves the node"
    loop.close()


def test_a_dead_node_is_noticed_in_the_time_of_the_settings(grow: Grow) -> None:
    cluster = grow(40)
    settings = cluster.settings
    killed, gone, inner = plays.deaths(cluster)
    assert settings.grace <= killed["seconds"] <= settings.grace + 2 * settings.beat
    for one in (gone, inner):
        least = settings.silence + settings.grace
        assert least - settings.beat <= one["seconds"] <= least + 3 * settings.beat


def test_what_the_leader_keeps_does_not_grow_with_commands(grow: Grow) -> None:
    kept, heard = set(), set()
    for total in (200, 800):
        cluster = grow(10)
        before = cluster.heard
        work = Bulk(Gateway(cluster, 0), cluster, 10, 4, total, 0.0)
        played(cluster.loop, cluster.agents[0], work.run)
        cluster.loop.run(over=lambda work=work: work.over >= 100)  # type: ignore[misc]
        kept.add(footprint(cluster.leader.core).objects)
        cluster.loop.run(over=lambda work=work: work.ended)  # type: ignore[misc]
        heard.add(cluster.heard - before)
        assert (work.over, work.record["state"]) == (total, "COMPLETED")
    assert max(kept) - min(kept) <= 10, "a number more or less"
    assert len(heard) == 1, "and it hears nothing of them"


def test_a_shortcut_for_commands_changes_nothing_for_the_leader(grow: Grow) -> None:
    heard = []
    for is_short in (False, True):
        cluster = grow(40)
        before = cluster.heard
        work = Bulk(Gateway(cluster, 0, is_short=is_short), cluster, 40, 4, 900, 0.0)
        ran(cluster, work)
        assert (work.over, work.record["state"]) == (900, "COMPLETED")
        heard.append(cluster.heard - before)
    assert heard[0] == heard[1]


def test_many_commands_are_looked_at_as_they_end(grow: Grow) -> None:
    cluster = grow(10)
    given = plays.Given(_COSTS, latency=0.001, bandwidth=1e9, task=0.0, slots=4)
    shown: list[dict[str, Any]] = []
    found = plays.many(cluster, given, 10_000, shown.append)
    assert [mark["tasks"] // 1000 for mark in found["marks"]] == [1, 2, 5, 9]
    assert [mark["tasks"] for mark in shown] == [mark["tasks"] for mark in found["marks"]]
    objects = [mark["objects"] for mark in found["marks"][:-1]]  # at the last one nodes may have said the end
    assert max(objects) - min(objects) <= 10


def test_what_the_dispatcher_keeps_does_not_grow_with_commands() -> None:
    found = plays.dispatched(20, 4, 40_000)
    sizes = [mark["objects"] for mark in found["marks"]]
    assert len(sizes) > 1
    assert max(sizes) < 1.1 * min(sizes)


def test_pictures_of_all_plays_are_drawn(tmp_path: Path) -> None:
    row: dict[str, Any] = {
        "nodes": 10, "joined": 0.1, "begun": 0.1, "started": 0.2, "ended": 0.3, "leader_cpu": 0.1, "root_cpu": 0.1,
        "bytes": 1000, "leader_in": 10, "leader_out": 20,
    }  # fmt: skip
    rows = [row, {**row, "nodes": 1000, "started": 0.9}]
    mark = {"tasks": 1000, "bytes": 1000, "leader_in": 10, "leader_out": 20}
    marks = [mark, {**mark, "tasks": 2_000_100, "agent_bytes": 5000}]
    pictures.write({"launches": rows, "many": {"nodes": 1000, "marks": marks}}, tmp_path)
    assert ">2M</text>" in (tmp_path / "cluster-many.svg").read_text(encoding="utf-8")
    text = (tmp_path / "cluster-launch.svg").read_text(encoding="utf-8")
    assert "1000" in text
    assert "<title>" in text
