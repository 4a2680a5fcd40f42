"""What the queue, the plugins' host and the built-in plugins promise together, whatever people submit: no job is lost,
no core, byte or device is given twice, nobody starves, and backfill never delays the first in line.

The workloads are hypothesis'; `nodectl.lab.simulation.rules` looks from outside. One run has the size of the promise.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nodectl.lab.simulation import described, generator, stage, submission
from nodectl.lab.simulation.story import Played
from nodectl.lab.simulation.workload import NodeEvent, WorkJob, Workload
from nodectl.model.device_part import part_of
from nodectl.scheduler.policy import Policy, UserLimits, qos_lines
from nodectl.selection.slurmctld import Parameters

SHARED = "8c,mem=16G,gpu=2,shard=8,gpumem=4003"
NODES = ("8c,mem=16G,gpu=2", "2s:4c:2t,mem=64G", "3*4c,mem=8G,gpu=1", "2*2s:2c:2t,mem=4G;4c,mem=32G", "1c",
         SHARED)  # fmt: skip
HIGH = ("Name=high Priority=10 Preempt=normal", "Name=normal")
ENDED = {"COMPLETED", "FAILED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "DEADLINE", "CANCELLED"}


def made(spec: str, jobs: int, users: int, load: float, seed: int) -> Workload:
    machine = submission.machine_of(described.nodes_of(spec))
    return generator.generate(generator.Recipe(jobs, users, load, 60.0), machine, seed)


def spiced(workload: Workload, seed: int, *, preempting: bool) -> Workload:
    """The same, with dependencies, shared and exclusive nodes, and urgent jobs among them."""
    random = Random(seed)  # noqa: S311 - nothing secret
    jobs: list[WorkJob] = []
    for job in workload.jobs:
        chance = random.random()
        changed = job
        if chance < 0.15 and jobs:
            kind = random.choice(("after", "afterany", "afterok", "afternotok"))
            changed = replace(job, dependency=f"{kind}:{random.choice(jobs).number}")
        elif chance < 0.2:
            changed = replace(job, exclusive=True)
        elif chance < 0.3:
            changed = replace(job, oversubscribe=True)
        if preempting and random.random() < 0.15:
            changed = replace(changed, qos="high")
        jobs.append(changed)
    return replace(workload, jobs=tuple(jobs))


def play(plugin: str, spec: str, workload: Workload, policy: Policy, **more: object) -> Played:
    setting = stage.Setting(policy, seconds=0, **more)  # type: ignore[arg-type]  # a setting's
    return stage.play(plugin, described.nodes_of(spec), workload, setting)


def assert_kept(played: Played) -> None:
    assert not played.violations, played.violations[:5]
    labels = Counter(story.label for story in played.stories)
    assert max(labels.values()) == 1
    assert {story.state for story in played.stories if not story.reason.startswith("Dependency")} <= ENDED


worlds = settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))


@worlds
@given(
    plugin=st.sampled_from(["select/cons_tres", "select/linear"]),
    spec=st.sampled_from(NODES),
    jobs=st.integers(1, 120),
    users=st.integers(1, 8),
    load=st.floats(0.3, 4.0),
    seed=st.integers(0, 2**31),
    max_wait=st.sampled_from([0, 120, 3600]),
    bf_max_job_test=st.sampled_from([30, 100]),
    epilog=st.sampled_from([0.0, 7.0]),
)
def test_nothing_is_lost_given_twice_starved_or_delayed(
    plugin: str, spec: str, jobs: int, users: int, load: float, seed: int, max_wait: int, bf_max_job_test: int,
    epilog: float,
) -> None:  # fmt: skip
    workload = made(spec, jobs, users, load, seed)
    policy = Policy(max_wait=max_wait, bf_max_job_test=bf_max_job_test)
    played = play(plugin, spec, workload, policy, epilog=epilog)
    assert_kept(played)
    assert len(played.stories) == jobs


@worlds
@given(
    spec=st.sampled_from(NODES),
    jobs=st.integers(1, 100),
    load=st.floats(0.5, 4.0),
    seed=st.integers(0, 2**31),
    mode=st.sampled_from(["suspend", "requeue", "cancel", "off"]),
    sharing=st.sampled_from([("no", 1), ("yes", 3), ("force", 2), ("exclusive", 1)]),
    drained=st.lists(st.tuples(st.floats(0, 3000), st.sampled_from(["drain", "down"]), st.floats(1, 600)), max_size=3),
    limits=st.sampled_from([UserLimits(), UserLimits(jobs=2), UserLimits(cpus=16), UserLimits(memory=1 << 16)]),
    plugin=st.sampled_from(["select/cons_tres", "select/linear"]),
    users=st.integers(1, 8),
    max_wait=st.sampled_from([86_400, 600]),
    epilog=st.sampled_from([0.0, 7.0]),
)
# A job whose turn had come was kept off what others were preempted for, by one that waited behind it: nobody started.
@example(
    spec=NODES[0],
    jobs=105,
    load=2.644810290498822,
    seed=1706465772,
    mode="requeue",
    sharing=("no", 1),
    drained=[],
    limits=UserLimits(),
    plugin="select/cons_tres",
    users=3,
    max_wait=600,
    epilog=7.0,
)
# Where some jobs share, one that does not was placed on cores of a job that was still ending, and refused each time.
@example(
    spec=NODES[3],
    jobs=81,
    load=2.0165652914863825,
    seed=2102276408,
    mode="cancel",
    sharing=("yes", 3),
    drained=[],
    limits=UserLimits(),
    plugin="select/cons_tres",
    users=4,
    max_wait=86_400,
    epilog=7.0,
)
# The first in line was placed on cores that were full because of a job that was still ending, and refused each time.
@example(
    spec=NODES[2],
    jobs=61,
    load=3.354120030870239,
    seed=638904295,
    mode="cancel",
    sharing=("force", 2),
    drained=[],
    limits=UserLimits(),
    plugin="select/cons_tres",
    users=5,
    max_wait=600,
    epilog=7.0,
)
def test_nor_where_jobs_depend_share_preempt_and_nodes_go_down(
    spec: str, jobs: int, load: float, seed: int, mode: str, sharing: tuple[str, int],
    drained: list[tuple[float, str, float]], limits: UserLimits, plugin: str, users: int, max_wait: int, epilog: float,
) -> None:  # fmt: skip
    workload = spiced(made(spec, jobs, users, load, seed), seed, preempting=mode != "off")
    if limits.cpus:  # what is above its user's limit waits for ever, as in Slurm
        small = (replace(job, tasks=min(job.tasks, 4), cpus_per_task=1) for job in workload.jobs)
        workload = replace(workload, jobs=tuple(small))
    events = [one for at, state, pause in drained for one in (
        NodeEvent(at, "n1", state), NodeEvent(at + pause, "n1", "resume"))]  # fmt: skip
    workload = replace(workload, events=tuple(sorted(events, key=lambda event: event.time)))
    policy = Policy(qos=qos_lines(HIGH), preempt_mode=mode, limits=limits, max_wait=max_wait)
    parameters = Parameters(over_subscribe=sharing[0], share_count=sharing[1])
    played = play(plugin, spec, workload, policy, parameters=parameters, epilog=epilog)
    assert_kept(played)


@pytest.mark.parametrize("plugin", ["select/cons_tres", "select/linear"])
def test_nobody_waits_for_an_epilog_where_the_same_is_free(plugin: str) -> None:
    jobs = [WorkJob(number, float(number), (1.0,), 60, gres=(("gpu", 1),)) for number in range(1, 9)]
    sharing = Parameters(over_subscribe="force", share_count=8)
    played = play(plugin, "16c,gpu=8", Workload("epilogs", tuple(jobs)), Policy(), epilog=30.0, parameters=sharing)
    assert_kept(played)
    assert [story.start for story in played.stories] == [job.submit for job in jobs]


@pytest.mark.parametrize("plugin", ["select/cons_tres", "select/linear"])
def test_devices_are_shared_and_no_part_is_given_twice(plugin: str) -> None:
    """Ten seeds, of which each has jobs that ask for whole devices, for shards, for memory and for neither."""
    shared = 0
    for seed in range(10):
        workload = spiced(made(SHARED, 150, 5, 3.0, seed), seed, preempting=True)
        policy = Policy(qos=qos_lines(HIGH), preempt_mode=("suspend", "requeue")[seed % 2])
        parameters = Parameters(over_subscribe="force", share_count=3)
        played = play(plugin, SHARED, workload, policy, parameters=parameters, epilog=seed % 3 * 5.0)
        assert_kept(played)
        runs = [run for story in played.stories for run in story.runs]
        held = [key for run in runs for share in run.shares.values() for key in share.gres]
        shared += sum(part_of(key) is not None for key in held)
    assert (shared > 20) == (plugin == "select/cons_tres")


def test_ten_thousand_jobs_of_fifty_users_on_a_node_of_64_cpus() -> None:
    spec = "2s:16c:2t,mem=256G,gpu=4"
    machine = submission.machine_of(described.nodes_of(spec))
    workload = generator.generate(generator.Recipe(10_000, 50, 1.0), machine, 1)
    played = play("select/cons_tres", spec, workload, Policy())
    assert_kept(played)
    assert len(played.stories) == 10_000
    assert len({story.user for story in played.stories}) == 50
    assert {story.state for story in played.stories} == {"COMPLETED", "FAILED", "TIMEOUT"}


def test_a_start_that_the_rules_do_not_allow_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules are no ornament: without backfill's care for the first in line they speak."""
    from nodectl.scheduler.room import Room

    monkeypatch.setattr(Room, "excluded", lambda self, job, now: None)
    monkeypatch.setattr(Room, "delays", lambda self, job, resources, now: None)
    broken = set()
    for seed in range(6):
        workload = made(NODES[0], 120, 6, 3.0, seed)
        broken |= {one.rule for one in play("select/cons_tres", NODES[0], workload, Policy()).violations}
    assert "first in line delayed" in broken
