"""The account from outside: each rule is broken once, by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.lab.simulation.described import nodes_of
from nodectl.lab.simulation.rules import Rules
from nodectl.lab.simulation.story import Run, Share
from nodectl.lab.simulation.submission import BEGINNING
from nodectl.model.states import SUSPENDED
from nodectl.scheduler.policy import Policy
from nodectl.selection.modes import NODE_STATE_DRAIN
from nodectl.selection.records import JobDetails, JobRecord
from nodectl.selection.slurmctld import Parameters


class World:
    """Rules over two nodes of four cores, with a queue that says what the test wants."""

    def __init__(self, parameters: Parameters | None = None) -> None:
        self.line: list[JobRecord] = []
        self.expected: float | None = None
        self.host = SimpleNamespace(
            nodes=nodes_of("2*4c,mem=100,gpu=1"), parameters=parameters or Parameters(), faults=[]
        )
        queue: Any = SimpleNamespace(
            policy=Policy(),
            in_order=lambda now: iter(self.line),
            expected_start=lambda job, now: self.expected,
            goes_before=lambda job, other, now: job.nice < other.nice,
        )
        host: Any = self.host
        self.rules = Rules(host, queue)

    def job(self, number: int, **details: object) -> JobRecord:
        job = JobRecord(number, time_limit=60, submit_time=BEGINNING, details=JobDetails(**details))  # type: ignore[arg-type]  # as named
        self.rules.submitted(job, 1, 0.0)
        return job

    def start(self, job: JobRecord, *cores: int, now: float = 0.0, memory: int = 0, gres: tuple[str, ...] = ()) -> None:
        self.rules.started(job, Run(now, {0: Share(cores, len(cores), memory, gres)}), now)

    @property
    def broken(self) -> list[str]:
        return [one.rule for one in self.rules.violations]


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_given_once_breaks_nothing(world: World) -> None:
    first, second = world.job(1), world.job(2)
    world.start(first, 0, 1, memory=60, gres=("gpu:0",))
    world.start(second, 2, 3, memory=40)
    world.rules.gave_back(first)
    third = world.job(3)
    world.start(third, 0, 1, memory=60, gres=("gpu:0",))
    assert world.broken == []


def test_a_core_given_twice(world: World) -> None:
    world.start(world.job(1), 0, 1)
    world.start(world.job(2), 1, 2)
    assert world.broken == ["core given twice"]
    assert world.rules.violations[0].jobs == (1, 2)


def test_cores_may_be_shared_as_often_as_the_configuration_says() -> None:
    world = World(Parameters(over_subscribe="force", share_count=2))
    for number in (1, 2):
        world.start(world.job(number), 0)
    assert world.broken == []
    world.start(world.job(3), 0)
    assert world.broken == ["core given twice"]


def test_memory_and_devices_given_twice(world: World) -> None:
    world.start(world.job(1), 0, memory=60, gres=("gpu:0",))
    world.start(world.job(2), 1, memory=60, gres=("gpu:0",))
    assert world.broken == ["memory given twice", "device given twice"]


def test_cores_of_a_suspended_job_are_free_and_its_memory_is_not(world: World) -> None:
    first = world.job(1)
    world.start(first, 0, 1, memory=60)
    first.job_state = SUSPENDED
    world.rules.suspended(first, 5.0)
    second = world.job(2)
    world.start(second, 0, 1, now=6.0, memory=40)
    assert world.broken == []
    world.rules.resumed(first, Run(0.0, {}), 7.0)
    assert world.broken == ["core given twice"] * 2


def test_a_start_before_its_time(world: World) -> None:
    world.start(world.job(1, begin_time=BEGINNING + 50), 0, now=49.0)
    held = world.job(2)
    held.held = "user"
    world.start(held, 1)
    world.host.nodes[0].node_state |= NODE_STATE_DRAIN
    world.start(world.job(3), 2)
    assert world.broken == ["started too early"] * 3


@pytest.mark.parametrize(
    ("dependency", "end", "fine"),
    [
        ("afterok:1", ("COMPLETED", 0), True),
        ("afterok:1", ("COMPLETED", 3), False),
        ("afterok:1", ("TIMEOUT", 0), False),
        ("afterok:1", None, False),
        ("afternotok:1", ("FAILED", 1), True),
        ("afternotok:1", ("COMPLETED", 0), False),
        ("afterany:1", ("FAILED", 1), True),
        ("afterany:1", None, False),
        ("after:1", None, True),
        ("after:9", None, False),
        ("afterok:9?afterany:1", ("FAILED", 1), True),
        ("afterok:1,afterany:9", ("COMPLETED", 0), False),
        ("singleton", None, True),
    ],
)
def test_a_start_before_what_it_depends_on(
    world: World, dependency: str, end: tuple[str, int] | None, fine: bool
) -> None:
    first = world.job(1)
    world.start(first, 0)
    if end:
        world.rules.gave_back(first)
        world.rules.ended(first, *end, 5.0)
    world.start(world.job(2, dependency=dependency), 1, now=6.0)
    assert world.broken == ([] if fine else ["started too early"])


def test_more_tasks_of_an_array_than_allowed(world: World) -> None:
    for number in (5, 6, 7):
        job = world.job(number)
        job.array_job_id, job.array_task_id, job.array_limit = 5, number, 2
        world.start(job, number - 5)
    assert world.broken == ["started too early"]


def test_who_is_first_in_line_starts_when_it_was_expected_to(world: World) -> None:
    first = world.job(1)
    first.state_reason = "Resources"
    world.line, world.expected = [first], BEGINNING + 100
    world.rules.after(10.0)
    world.expected = BEGINNING + 300  # a later forecast excuses nothing
    world.rules.after(50.0)
    world.start(first, 0, now=150.0)
    assert world.broken == ["first in line delayed"]
    assert "expected to start at 100 s and started 50 s later" in world.rules.violations[0].words


def test_what_was_not_expected_at_first_is_a_promise_once_it_is(world: World) -> None:
    first = world.job(1)
    first.state_reason = "Resources"
    world.line = [first]
    world.rules.after(10.0)
    world.expected = BEGINNING + 100
    world.rules.after(20.0)
    world.start(first, 0, now=150.0)
    assert world.broken == ["first in line delayed"]


def test_who_is_overtaken_has_no_claim(world: World) -> None:
    first, urgent = world.job(1), world.job(2)
    first.state_reason = urgent.state_reason = "Resources"
    world.line, world.expected = [first], BEGINNING + 100
    world.rules.after(10.0)
    world.line = [urgent, first]
    world.rules.after(20.0)
    world.start(first, 0, now=150.0)
    assert world.broken == []


def test_one_that_is_more_urgent_may_delay_who_is_first(world: World) -> None:
    first, urgent, other = world.job(1), world.job(2), world.job(3)
    first.state_reason, urgent.nice = "Resources", -5
    world.line, world.expected = [first], BEGINNING + 100
    world.rules.after(10.0)
    world.start(urgent, 1, now=20.0)
    world.start(first, 0, now=150.0)
    assert world.broken == []
    world.line = [other]
    other.state_reason = "Resources"
    world.rules.after(160.0)
    world.start(world.job(4), 2, now=170.0)
    world.start(other, 3, now=180.0)
    assert world.broken == ["first in line delayed"]


def test_what_the_host_did_not_believe_is_told_once(world: World) -> None:
    world.host.faults.append("plugin select/mine: select_p_job_test: returned 'x', not a number")
    world.rules.after(3.0)
    world.rules.after(4.0)
    assert [(one.time, one.rule) for one in world.rules.violations] == [(3.0, "plugin")]


def test_an_end_that_comes_twice_and_what_is_held_at_the_end(world: World) -> None:
    job = world.job(1)
    world.start(job, 0)
    world.rules.ended(job, "COMPLETED", 0, 5.0)
    world.rules.ended(job, "COMPLETED", 0, 6.0)
    world.rules.at_the_end(9.0, [])
    assert world.broken == ["lost", "lost"]
