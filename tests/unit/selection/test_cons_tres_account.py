"""select/cons_tres keeps account: whatever jobs do, nothing is given twice, and what is given back is as it was."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.model.device_part import device_of, part_of
from nodectl.model.states import COMPLETING, RUNNING, SUSPENDED
from nodectl.selection.records import JobRecord
from nodectl.selection.tres.use import lowered, raised
from unit.selection.tres import Bed, nodes, parameters

Draw = Callable[..., Any]  # of hypothesis
SPEC, MEMORY, GPUS = "2s:3c:2t", 1000, "0011"
SHARES: tuple[dict[str, int], ...] = ({"shard": 1}, {"shard": 3}, {"gpumem": 40}, {"shard": 1, "gpumem": 60})


@st.composite
def beds(draw: st.DrawFn) -> Bed:
    sharing = draw(st.sampled_from(("no", "yes", "force", "exclusive")))
    mode = draw(st.sampled_from(("CR_Core_Memory", "CR_CPU_Memory", "CR_Socket_Memory")))
    one_user = draw(st.booleans())
    table = nodes(draw(st.integers(1, 3)), SPEC, MEMORY, GPUS, shards=5, gpu_memory=103, one_user=one_user)
    return Bed(table, parameters(mode, sharing=sharing, count=3))


def a_job(bed: Bed, draw: Draw) -> JobRecord:
    return bed.job(
        f"ntasks={draw(st.integers(1, 9))}",
        f"cpus_per_task={draw(st.integers(1, 3))}",
        mem_per_cpu=draw(st.sampled_from((0, 10, 100))),
        gres=draw(st.sampled_from(({}, {"gpu": 1}, {"gpu": 3}, *SHARES))),
        share_res=draw(st.sampled_from((None, None, True, False))),
        user_id=draw(st.sampled_from((1000, 1001))),
    )


def nothing_is_given_twice(bed: Bed, most: int) -> None:
    table = bed.table
    cores: dict[int, list[JobRecord]] = {}
    memory, devices = [0] * len(table), [list[str]() for _ in table]
    for job in bed.jobs:
        held = job.job_resrcs
        assert held is not None
        for core in held.core_bitmap.search(1) if job.job_state == RUNNING else ():
            cores.setdefault(core, []).append(job)
        for node, share in held.memory.items():
            memory[node] += share
        for node, keys in held.gres.items():
            devices[node] += keys
    for there in cores.values():
        sharing = [job for job in there if bed.state.wishes.sharers(job) > 1]
        assert len(there) == 1 or (len(there) <= most and sharing == there)
    assert all(used <= MEMORY for used in memory)
    assert [use.memory for use in bed.state.uses] == memory
    for node, there_held in enumerate(devices):
        keys = tuple(there_held)
        parts = [part_of(key) for key in keys]
        wholes = [key for key, part in zip(keys, parts, strict=True) if part is None]
        shared = {device_of(key) for key, part in zip(keys, parts, strict=True) if part is not None}
        assert len(set(wholes)) == len(wholes)
        assert not shared.intersection(wholes)
        for name in shared:
            of_it = [part for key in keys if device_of(key) == name and (part := part_of(key)) is not None]
            assert sum(part.shards for part in of_it) <= 5
            assert sum(part.memory for part in of_it) <= 103
            users = {job.user_id for job in bed.jobs if name in map(device_of, _keys(job, node))}
            assert len(users) == 1 or not table[node].devices[0].one_user
        use = bed.state.uses[node]
        assert (use.gres.bit_count(), use.shared.bit_count()) == (len(wholes), len(shared))


def _keys(job: JobRecord, node: int) -> tuple[str, ...]:
    return job.job_resrcs.gres.get(node, ()) if job.job_resrcs is not None else ()


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_nothing_is_given_twice_and_all_comes_back(data: st.DataObject) -> None:
    bed = data.draw(beds())
    empty = bed.snapshot()
    for _ in range(data.draw(st.integers(1, 15))):
        what = data.draw(st.sampled_from(("start", "start", "end", "suspend", "resume", "again")))
        if what == "start":
            bed.start(a_job(bed, data.draw))
        elif what == "again":
            before = bed.snapshot()
            again = Bed(bed.table, bed.selection.parameters)
            again.selection.start("/nonexistent", bed.jobs)
            assert again.snapshot() == before, "what a restart makes of the jobs' records"
        elif bed.jobs:
            job = data.draw(st.sampled_from(bed.jobs))
            if what == "end":
                bed.end(job)
            elif what == "suspend" and job.job_state == RUNNING:
                bed.suspend(job)
            elif what == "resume" and job.job_state == SUSPENDED:
                bed.resume(job)
        nothing_is_given_twice(bed, 3)
    assert not bed.said
    for job in list(bed.jobs):
        bed.end(job)
    assert bed.snapshot() == empty
    assert bed.state.cpus == [0] * len(bed.table)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_job_that_begins_and_ends_leaves_everything_as_it_was(data: st.DataObject) -> None:
    bed = data.draw(beds())
    for _ in range(data.draw(st.integers(0, 5))):
        bed.start(a_job(bed, data.draw))
    before = bed.snapshot()
    job = a_job(bed, data.draw)
    if bed.start(job):
        assert bed.snapshot() != before
        bed.end(job)
    assert bed.snapshot() == before


@given(st.lists(st.integers(0, 255), max_size=8), st.randoms(use_true_random=False))
def test_levels_do_not_depend_on_the_order_of_coming_and_going(jobs: list[int], chance: object) -> None:
    levels: tuple[int, ...] = ()
    for cores in jobs:
        levels = raised(levels, cores)
    for number, level in enumerate(levels):
        for core in range(8):
            assert (level >> core & 1) == (sum(cores >> core & 1 for cores in jobs) > number)
    chance.shuffle(jobs)  # type: ignore[attr-defined]
    for cores in jobs:
        levels = lowered(levels, cores)
    assert levels == ()


def test_jobs_that_overlap_since_the_configuration_changed_stay_alone_until_the_last_has_left() -> None:
    table = nodes(1, "1s:4c:1t")
    sharing = Bed(table, parameters(sharing="force", count=3))
    first, second, third = (sharing.job("ntasks=4") for _ in range(3))
    assert all(map(sharing.start, (first, second, third)))
    bed = Bed(table, parameters(sharing="yes", count=9))
    bed.selection.start("/nonexistent", sharing.jobs)
    for job in (second, first):
        job.job_state = COMPLETING
        bed.selection.job_fini(job)
        bed.selection.released(job)
        assert not bed.start(bed.job("ntasks=1"))
        assert not bed.start(bed.job("ntasks=1", share_res=True))
    bed.selection.job_fini(third)
    bed.selection.released(third)
    assert bed.start(bed.job("ntasks=4"))


def test_a_job_whose_cores_others_have_by_now_is_not_resumed() -> None:
    bed = Bed(nodes(1, "1s:4c:1t", 1000, "00"))
    stopped = bed.job("ntasks=3", pn_min_memory=600, gres={"gpu": 2})
    assert bed.start(stopped)
    bed.suspend(stopped)
    assert not bed.start(bed.job("ntasks=4", pn_min_memory=500)), "it keeps its memory"
    assert not bed.start(bed.job("ntasks=4", gres={"gpu": 1})), "and its devices"
    other = bed.job("ntasks=4", pn_min_memory=400)
    assert bed.start(other)
    assert not bed.resume(stopped)
    bed.end(other)
    assert bed.resume(stopped)
    assert not bed.start(bed.job("ntasks=2"))


def test_a_job_that_is_suspended_for_a_moment_keeps_its_cores() -> None:
    bed = Bed(nodes(1, "1s:4c:1t"))
    job = bed.job("ntasks=4")
    assert bed.start(job)
    before = bed.snapshot()
    hooks = bed.plugin.hooks
    assert hooks["select_p_job_suspend"](job, False) == hooks["select_p_job_resume"](job, False) == 0
    assert bed.snapshot() == before


def test_a_suspended_job_that_gives_up_a_node_takes_no_cores_back() -> None:
    bed = Bed(nodes(2, "1s:4c:1t"))
    stopped, running = bed.job("ntasks=8"), bed.job("ntasks=8")
    assert bed.start(stopped)
    bed.suspend(stopped)
    assert bed.start(running)
    assert bed.selection.expand(running, stopped), "the cores would belong to a job that stands still"
    assert not bed.selection.resized(stopped, bed.table[1])
    bed.end(running)
    assert not bed.selection.ledger.busy.any()
    assert bed.start(bed.job("ntasks=8"))
    assert not bed.resume(stopped)


def test_uses_that_no_node_has_any_more_are_forgotten_at_once() -> None:
    bed = Bed(nodes(1, "1s:4c:1t", 1000))
    gc.disable()
    try:
        for memory in range(1, 100):
            job = bed.job("ntasks=1", pn_min_memory=memory)
            assert bed.start(job)
            bed.test(bed.job("ntasks=1"))
            bed.end(job)
        assert len(bed.state.pool) == 1
    finally:
        gc.enable()


def test_a_restart_finds_jobs_that_stand_still() -> None:
    bed = Bed(nodes(1, "1s:4c:1t", 1000))
    running, stopped, ending = (bed.job("ntasks=1", pn_min_memory=100) for _ in range(3))
    assert all(map(bed.start, (running, stopped, ending)))
    bed.suspend(stopped)
    bed.plugin.hooks["select_p_job_fini"](ending)
    ending.job_state = COMPLETING
    before = bed.snapshot()
    assert bed.plugin.hooks["select_p_job_init"](bed.jobs) == 0
    assert bed.snapshot() == before


def test_a_device_is_not_begun_with_twice() -> None:
    bed = Bed(nodes(1, "1s:4c:1t", gpus="0"))
    one, two = bed.job(gres={"gpu": 1}), bed.job(gres={"gpu": 1})
    begin = bed.plugin.hooks["select_p_job_begin"]
    bed.test(one)
    bed.test(two, excluded_cores=bed.cores({0: 1}))
    assert begin(one) == 0
    assert begin(two) != 0
    two.job_resrcs = None
    assert begin(two) != 0, "nothing was selected for it"


def test_a_job_begins_only_with_what_is_free() -> None:
    bed = Bed(nodes(1, "1s:4c:1t", 1000))
    one, two = bed.job("ntasks=3"), bed.job("ntasks=2")
    for job in (one, two):
        bed.test(job)
    begin, fini = (bed.plugin.hooks[f"select_p_job_{word}"] for word in ("begin", "fini"))
    assert begin(one) == 0
    assert begin(two) != 0
    assert fini(two) == fini(one) == fini(one) == 0, "a call may be replayed"
    assert begin(two) == begin(two) == 0
    assert fini(two) == 0
    assert all(not use.levels for use in bed.state.uses)


def test_a_fifth_of_a_device_each_runs_twenty_times_on_four_and_the_next_one_waits() -> None:
    for gres in ({"shard": 1}, {"gpumem": 16_000}, {"shard": 1, "gpumem": 16_000}):
        bed = Bed(nodes(1, "2s:16c:1t", 0, GPUS, shards=5, gpu_memory=80_000))
        jobs = [bed.job("ntasks=1", gres=gres) for _ in range(21)]
        assert [bed.start(job) for job in jobs] == [True] * 20 + [False]
        held = [_keys(job, 0)[0] for job in bed.jobs]
        assert {key: sum(map(key.__eq__, map(device_of, held))) for key in map(device_of, held)} == {
            f"gpu:{number}": 5 for number in range(4)
        }
        assert not bed.start(bed.job("ntasks=1", gres={"gpu": 1})), "a shared device is not given whole"
        for job in list(bed.jobs[:5]):
            bed.end(job)
        assert bed.start(bed.job("ntasks=1", gres={"gpu": 1}))
        assert not bed.start(bed.job("ntasks=1", gres=gres)), "and a whole one not in parts"


def test_jobs_fill_a_device_that_is_shared_before_they_share_another() -> None:
    bed = Bed(nodes(1, "1s:16c:1t", 0, "0000", shards=4, gpu_memory=400))
    wide, narrow, small = (bed.job("ntasks=1", gres={"shard": count}) for count in (3, 2, 1))
    assert all(map(bed.start, (wide, narrow, small)))
    assert [_keys(job, 0) for job in (wide, narrow, small)] == [
        ("gpu:0/shard:3/mem:300M",), ("gpu:1/shard:2/mem:200M",), ("gpu:0/shard:1/mem:100M",),
    ]  # fmt: skip


def test_shards_and_memory_of_a_device_are_one_account() -> None:
    bed = Bed(nodes(1, "1s:16c:1t", 0, "0", shards=4, gpu_memory=400))
    assert bed.start(bed.job("ntasks=1", gres={"gpumem": 250}))
    assert not bed.start(bed.job("ntasks=1", gres={"shard": 2})), "150 MiB are left, two shards are 200"
    assert bed.start(bed.job("ntasks=1", gres={"shard": 1}))
    assert not bed.start(bed.job("ntasks=1", gres={"gpumem": 51}))
    assert bed.start(bed.job("ntasks=1", gres={"shard": 3, "gpumem": 50})), "so much memory for as many shards"
