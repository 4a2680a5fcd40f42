"""What is played: a step on all nodes, many commands, a node's death. Figures are in simulated seconds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from bench.scale.client import Bulk, Gateway, Step
from bench.scale.cluster import Cluster
from bench.scale.costs import Measured
from bench.scale.footprint import footprint
from bench.scale.loop import Loop, played
from nodectl.cluster import tree
from nodectl.cluster.agent.dispatcher import Dispatcher

Figures = dict[str, Any]
_CALM = 2.0  # seconds after the nodes have joined
_STEPS = 3
_CLIENT = 0  # the rank at which commands are typed: where a script of sbatch's runs
_AT_ONCE = 500
_MARKS = 4


class Given:
    """What all plays have: costs, and the network's."""

    def __init__(self, costs: Measured, *, latency: float, bandwidth: float, task: float, slots: int) -> None:
        self.costs = costs
        self.latency = latency
        self.bandwidth = bandwidth
        self.task = task
        self.slots = slots

    def cluster(self, count: int, *, journal: str = "", measured: bool = True) -> Cluster:
        """One whose nodes have all joined."""
        random.seed(count)
        loop = Loop(self.costs.turn, measured=measured)
        cluster = Cluster(
            count, loop=loop, costs=self.costs.sockets, habits=self.costs.habits(self.slots, self.task),
            latency=self.latency, bandwidth=self.bandwidth, journal=journal,
        )  # fmt: skip
        cluster.joined = cluster.grow()
        loop.run(until=loop.time() + _CALM)
        return cluster


def _told(cluster: Cluster) -> None:
    if cluster.loop.failures:
        raise RuntimeError(str(cluster.loop.failures[0]))


class _Load:
    """What leader and root have done since."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._before = self._now()

    def _now(self) -> list[float]:
        cluster, network = self._cluster, self._cluster.network
        leader, root = cluster.leader_process, cluster.agents[0]
        return [
            leader.cpu, root.cpu, cluster.heard, network.received.get(leader, 0), network.sent.get(leader, 0),
            network.received.get(root, 0), network.sent.get(root, 0),
        ]  # fmt: skip

    def figures(self) -> Figures:
        names = ("leader_cpu", "root_cpu", "leader_heard", "leader_in", "leader_out", "root_in", "root_out")
        return {name: now - before for name, now, before in zip(names, self._now(), self._before, strict=True)}


def launches(cluster: Cluster) -> Figures:
    """Steps with a task on each node, one after the other: the median of each time."""
    gateway = Gateway(cluster, _CLIENT)
    rows = []
    for _ in range(_STEPS):
        load = _Load(cluster)
        step = Step(gateway, cluster, cluster.count, cluster.count)
        played(cluster.loop, gateway.agent, step.run)
        cluster.loop.run(over=lambda step=step: step.ended or cluster.loop.failures)  # type: ignore[misc]
        _told(cluster)
        assert step.record["state"] == "COMPLETED", step.record
        rows.append({
            "begun": step.began - step.called, "started": step.started - step.called, "ended": step.ended - step.called,
            **load.figures(),
        })  # fmt: skip
        cluster.loop.run(until=cluster.loop.time() + _CALM)
    median = {name: sorted(row[name] for row in rows)[len(rows) // 2] for name in rows[0]}
    found = footprint(cluster.leader.core)
    return {"nodes": cluster.count, "joined": cluster.joined, **median, "objects": found.objects, "bytes": found.bytes}


def bulk(cluster: Cluster, given: Given, totals: list[int]) -> list[Figures]:
    """So many commands over all nodes, each number in a step of its own."""
    gateway = Gateway(cluster, _CLIENT)
    rows = []
    for total in totals:
        load = _Load(cluster)
        work = Bulk(gateway, cluster, cluster.count, given.slots, total, given.costs.client)
        played(cluster.loop, gateway.agent, work.run)
        cluster.loop.run(over=lambda work=work, total=total: work.over >= total // 2 or cluster.loop.failures)  # type: ignore[misc]
        _told(cluster)
        leader = footprint(cluster.leader.core)
        agent = footprint(gateway.launched, without=(cluster.meshes[_CLIENT], cluster.loop))
        cluster.loop.run(over=lambda work=work: work.ended or cluster.loop.failures)  # type: ignore[misc]
        _told(cluster)
        assert (work.over, work.record["state"]) == (total, "COMPLETED"), work.record
        rows.append({
            "nodes": cluster.count, "tasks": total, "seconds": work.ended - work.began,
            "rate": total / (work.ended - work.began), "window": work.window, "client_cpu": work.process.cpu,
            "leader_objects": leader.objects, "leader_bytes": leader.bytes, "agent_objects": agent.objects,
            "agent_bytes": agent.bytes, **load.figures(),
        })  # fmt: skip
    return rows


def many(cluster: Cluster, given: Given, total: int, show: Callable[[Figures], object]) -> Figures:
    """So many commands over all nodes, what is said of them by a shortcut. As they end: what the leader keeps, and what
    it has said and heard since the launch.
    """
    gateway = Gateway(cluster, _CLIENT, is_short=True)
    load = _Load(cluster)
    begun = time.process_time()
    work = Bulk(gateway, cluster, cluster.count, given.slots, total, given.costs.client)
    played(cluster.loop, gateway.agent, work.run)
    marks: list[Figures] = []
    for goal in _goals(total):
        cluster.loop.run(over=lambda goal=goal: work.over >= goal or cluster.loop.failures)  # type: ignore[misc]
        _told(cluster)
        leader = footprint(cluster.leader.core)
        mark = {"tasks": work.over, "seconds": cluster.loop.time() - work.began, "objects": leader.objects,
                "bytes": leader.bytes, "cpu": time.process_time() - begun, **load.figures()}  # fmt: skip
        if total // 10 < goal <= total // 2:  # at the last one its step may be over
            agent = footprint(gateway.launched, without=(cluster.meshes[_CLIENT], cluster.loop, gateway.post))
            mark |= {"agent_objects": agent.objects, "agent_bytes": agent.bytes}
        marks.append(mark)
        show({"nodes": cluster.count, **mark})
    cluster.loop.run(over=lambda: work.ended or cluster.loop.failures)
    _told(cluster)
    assert (work.over, work.record["state"]) == (total, "COMPLETED"), work.record
    seconds = work.ended - work.began
    return {"nodes": cluster.count, "tasks": total, "seconds": seconds, "rate": total / seconds, "marks": marks,
            "window": work.window, "client_cpu": work.process.cpu, "cpu": time.process_time() - begun,
            **load.figures()}  # fmt: skip


def _goals(total: int) -> list[int]:
    """Powers of ten, then parts of all; the last one while some still run."""
    powers = [10**power for power in range(3, 12) if 10**power < total // 5]
    return [*powers, total // 5, total // 2, total - total // 1000 - 1]


def dispatched(nodes: int, slots: int, total: int) -> Figures:
    """So many commands through the dispatcher alone, with no network: what it takes and how much it keeps, as it goes
    on. Nodes tell of all ends at once.
    """
    has: dict[int, list[int]] = {rank: [] for rank in range(nodes)}
    facts: Mapping[str, Any] = {}
    over = 0

    def send(rank: int, method: str, parameters: Mapping[str, Any]) -> None:
        has[rank] += [one["seq"] for one in parameters.get("commands", ())]

    def tell(event: Mapping[str, Any]) -> None:
        nonlocal over, facts
        facts = event if event["event"] == "start" else facts
        over += len(event.get("ended", ()))

    dispatcher = Dispatcher(range(nodes), send, tell)
    for rank in has:
        start = {"event": "start", "pids": [], "slots": slots, "window": slots + 64, "window_bytes": 1 << 20}
        dispatcher.heard(rank, start)
    sent = turn = 0
    marks: list[Figures] = []
    begin = time.process_time()
    taken = 0.0
    while over < total:
        count = min(_AT_ONCE, facts["window"] - (sent - over), total - sent)
        if count > 0:
            commands = [{"seq": seq, "argv": ["./analyse", "--seed", str(seq)]} for seq in range(sent, sent + count)]
            dispatcher.call("Run", {"commands": commands})
            sent += count
        else:
            rank, turn = turn % nodes, turn + 1
            if ended := [{"seq": seq, "status": 0} for seq in has[rank]]:
                has[rank] = []
                dispatcher.heard(rank, {"event": "tasks", "ended": ended})
        if over >= (len(marks) + 1) * total // (_MARKS + 1) and len(marks) < _MARKS:
            taken += time.process_time() - begin
            found = footprint(dispatcher, without=(send, tell))
            marks.append({"tasks": over, "objects": found.objects, "bytes": found.bytes})
            begin = time.process_time()
    taken += time.process_time() - begin
    return {"nodes": nodes, "tasks": total, "seconds": taken, "each": taken / total, "marks": marks}


def deaths(cluster: Cluster) -> list[Figures]:
    """Who is lost how, and how long the leader does not know. The last one has others beneath it."""
    loop = cluster.loop
    leaf, inner, killed = cluster.count - 1, 1, cluster.count - 2
    rows = []
    for what, rank, do in (
        ("its agent is killed", killed, cluster.kill),
        ("it is gone", leaf, cluster.crash),
        (f"it is gone, {len(_beneath(cluster, inner))} stand beneath it", inner, cluster.crash),
    ):
        at = loop.time()
        do(rank)
        loop.run(over=lambda rank=rank: rank in cluster.lost)  # type: ignore[misc]
        rows.append({"nodes": cluster.count, "what": what, "seconds": cluster.lost[rank] - at})
        _told(cluster)
    loop.run(until=loop.time() + cluster.settings.grace)
    assert len(cluster.lost) == len(rows), f"others were lost, too: {sorted(cluster.lost)[:9]}"
    return rows


def _beneath(cluster: Cluster, top: int) -> list[int]:
    generations = tree.beneath(top, cluster.count, cluster.settings.width)
    return [rank for generation in generations for rank in generation if rank != top]
