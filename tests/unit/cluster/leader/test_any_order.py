"""Whatever order messages, losses and restarts come in: no CPU is given twice, every launch is answered, every step
ends exactly once, and nothing is left.

`Agent` asserts that no CPU is given twice, `Cluster` that no step ends in two ways.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from unit.cluster.leader.cluster import JOB, Cluster

EXAMPLES = int(os.environ.get("LEADER_EXAMPLES", "40"))
PHASES = [Phase.generate] if "LEADER_EXAMPLES" in os.environ else list(Phase)
LAUNCHES = st.fixed_dictionaries(
    {"ntasks": st.integers(1, 12)},
    optional={
        "nodes": st.sampled_from(["1", "2", "3", "1-4", "4"]),
        "mem": st.integers(1, 900),
        "cpus_per_task": st.integers(1, 3),
        "kill_on_bad_exit": st.just(True),
        "no_kill": st.just(True),
        "whole": st.just("1"),
        "immediate": st.integers(0, 2),
        "nodelist": st.sampled_from(["n1", "n[2-3]", "n4"]),
        "exclude": st.sampled_from(["n1", "n2"]),
    },
)


class Anything(RuleBasedStateMachine):
    """Four nodes of eight CPUs each."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(4, "2s:4c:1t", 1000, join=False)
        self.calls: list[tuple[int, int]] = []
        self.pending: dict[tuple[int, int], dict[str, object]] = {}
        self.gone: set[tuple[int, int]] = set()

    @initialize()
    def join(self) -> None:
        self.cluster.join()

    def ranks(self) -> list[int]:
        return sorted(self.cluster.agents)

    @rule(given=LAUNCHES, of=st.integers(0, 3))
    def launch(self, given: dict[str, Any], of: int) -> None:
        ranks = self.ranks()
        self.calls.append(self.cluster.launch(rank=ranks[of % len(ranks)], **given))

    @rule(of=st.integers(0, 3))
    def node_hears(self, of: int) -> None:
        agent = self.cluster.agents[self.ranks()[of % len(self.ranks())]]
        if agent.inbox:
            agent.hear()

    @rule(of=st.integers(0, 3))
    def leader_hears(self, of: int) -> None:
        rank = self.ranks()[of % len(self.ranks())]
        if self.cluster.agents[rank].outbox:
            self.cluster.hear(rank)

    @rule(of=st.integers(0, 3), which=st.integers(0, 9), status=st.sampled_from([0, 0, 256, 9]))
    def tasks_end(self, of: int, which: int, status: int) -> None:
        agent = self.cluster.agents[self.ranks()[of % len(self.ranks())]]
        if agent.parts:
            agent.end(sorted(agent.parts)[which % len(agent.parts)], status)

    @rule(which=st.integers(0, 30))
    def client_hangs_up(self, which: int) -> None:
        if self.calls:
            rank, number = call = self.calls[which % len(self.calls)]
            if rank in self.cluster.agents and call not in self.cluster.replies:
                self.gone.add(call)
                self.cluster.core.received("hang_up", rank, {"id": number}, self.cluster.now)
                self.cluster.send()

    @rule(which=st.integers(0, 30), signal=st.sampled_from([9, 15]))
    def somebody_signals(self, which: int, signal: int) -> None:
        self.cluster.call("Signal", self.ranks()[0], job=JOB, step=which, signal=signal)

    @precondition(lambda self: len(self.cluster.agents) > 2)
    @rule(of=st.integers(0, 3))
    def node_is_lost(self, of: int) -> None:
        self.cluster.lose(self.ranks()[of % len(self.ranks())])

    @rule(of=st.integers(0, 3), both=st.booleans())
    def link_breaks(self, of: int, both: bool) -> None:
        """What was on its way is lost, of one direction or of both."""
        agent = self.cluster.agents[self.ranks()[of % len(self.ranks())]]
        agent.outbox.clear()
        if both:
            agent.inbox.clear()
        self.cluster.core.resumed(agent.rank, self.cluster.now)
        self.cluster.send()
        self.cluster.gateway_asks_again(agent.rank)

    @rule()
    def leader_dies(self) -> None:
        self.cluster.new_leader()

    @rule(seconds=st.sampled_from([0.1, 1, 5]))
    def time_passes(self, seconds: float) -> None:
        self.cluster.pass_time(seconds)

    @invariant()
    def nothing_is_told_that_makes_no_sense(self) -> None:
        for call, reply in self.cluster.replies.items():
            assert call in self.cluster.asked or reply
            if "error" not in reply and call in self.calls:
                assert reply["parameters"]["job"] == JOB

    def teardown(self) -> None:
        """All that runs ends, and everything was answered and forgotten."""
        cluster = self.cluster
        if not cluster.core.books.table.machines:
            return
        for _ in range(200):
            cluster.settle()
            cluster.pass_time(3)
            running = [(agent, number) for agent in cluster.agents.values() for number in list(agent.parts)]
            if not running and not cluster.core.books.line and not cluster.core.books.life.steps:
                break
            for agent, number in running:
                if number in agent.parts:
                    agent.end(number)
        cluster.settle()
        for call in self.calls:
            if call[0] in cluster.agents and call not in self.gone:
                assert call in cluster.replies, f"nobody answered {call}"
        for call, reply in cluster.replies.items():
            if call in self.calls and "error" not in reply and call[0] in cluster.agents and call not in self.gone:
                assert reply["parameters"]["step"] in cluster.ends, f"step {reply['parameters']} has no end"
        numbers = [
            reply["parameters"]["step"]
            for call, reply in cluster.replies.items()
            if call in self.calls and "error" not in reply
        ]
        assert len(set(numbers)) == len(numbers), "two launches have the same step"
        assert cluster.is_idle()


TestAnything = Anything.TestCase
TestAnything.settings = settings(
    max_examples=EXAMPLES, phases=PHASES, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
