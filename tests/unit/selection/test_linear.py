"""select/linear through its host: whole nodes, sharing, memory, devices, preemption, expected starts, its state."""

from __future__ import annotations

import random

import pytest

from nodectl.selection.host import Choice, Refusal
from nodectl.selection.ledger import Ledger
from nodectl.selection.loading import caller_of, load_plugin
from nodectl.selection.modes import (
    NODE_STATE_DRAIN,
    SELECT_MODE_RUN_NOW,
    SELECT_MODE_TEST_ONLY,
    SELECT_MODE_WILL_RUN,
)  # fmt: skip
from nodectl.selection.records import JobRecord, ReservationRequest
from nodectl.selection.slurmctld import Parameters
from unit.selection.stage import Stage

ALONE = Parameters()
FORCED = Parameters(over_subscribe="force", share_count=10_000, tracks_memory=False)


def linear(spec: str = "8*2s:4c:2t,mem=8G,gpu=2", parameters: Parameters = ALONE) -> Stage:
    theatre = Stage(load_plugin("select/linear", (), caller_of(20)), spec, parameters)
    theatre.selection.start("/nowhere", now=1.0)
    return theatre


def nodes_of(found: Choice | Refusal) -> str:
    return found.nodes.to01() if isinstance(found, Choice) else found.reason


def now(theatre: Stage, job: JobRecord, **more: object) -> Choice | Refusal:
    return theatre.selection.job_test(job, SELECT_MODE_RUN_NOW, now=1.0, **more)  # type: ignore[arg-type]


def test_job_gets_whole_nodes() -> None:
    theatre = linear()
    job = theatre.job(min_nodes=2, min_cpus=2)
    found = now(theatre, job)
    assert isinstance(found, Choice)
    assert found.resources.cpus == {0: 16, 1: 16}
    assert found.resources.core_bitmap.count() == 16
    assert job.job_resrcs is found.resources
    assert job.nodes == "n1,n2"


def test_machine_of_one_node_is_shared_by_all_who_come_where_that_is_forced() -> None:
    theatre = linear("1s:2c:2t,mem=4G,name=host", FORCED)
    jobs = [theatre.job(min_cpus=count % 4 + 1, pn_min_memory=3000, share_res=False) for count in range(300)]
    for job in jobs:
        assert theatre.runs(job)
        assert job.job_resrcs is not None
        assert job.job_resrcs.cpus == {0: 4}
        assert job.job_resrcs.core_bitmap.all()
    for job in jobs:
        theatre.ends(job)
    assert not theatre.selection.faults
    assert theatre.selection.ledger.is_empty()


def test_no_more_share_than_are_allowed() -> None:
    theatre = linear("2c,name=host", Parameters(over_subscribe="force", share_count=2))
    assert [theatre.runs(theatre.job()) for _ in range(3)] == [True, True, False]


def test_those_share_who_ask_for_it() -> None:
    theatre = linear("2c,name=host", Parameters(over_subscribe="yes", share_count=3))
    first = theatre.job(share_res=True)
    assert theatre.runs(first)
    assert not theatre.runs(theatre.job())
    assert theatre.runs(theatre.job(share_res=True))
    theatre.ends(first)
    assert not theatre.runs(theatre.job(share_res=False))


def test_empty_nodes_come_before_shared_ones() -> None:
    theatre = linear("3*2c", Parameters(over_subscribe="force", share_count=4))
    chosen = [now(theatre, job) for job in (theatre.job() for _ in range(1))]
    assert nodes_of(chosen[0]) == "100"
    for expected in ("100", "010", "001", "100"):
        job = theatre.job()
        assert nodes_of(now(theatre, job)) == expected
        assert not theatre.selection.job_begin(job)


def test_job_joins_one_that_has_as_many_nodes() -> None:
    theatre = linear("4*2c", Parameters(over_subscribe="force", share_count=2))
    for job in (theatre.job(min_nodes=1), theatre.job(min_nodes=3)):
        assert theatre.runs(job)
    assert nodes_of(now(theatre, theatre.job(min_nodes=3))) == "0111"


def test_memory_is_given_once_where_it_is_counted() -> None:
    theatre = linear("2*2c,mem=4G", Parameters(over_subscribe="force", share_count=9))
    jobs = [theatre.job(pn_min_memory=3000) for _ in range(3)]
    assert [theatre.runs(job) for job in jobs] == [True, True, False]
    assert theatre.runs(theatre.job(pn_min_memory=1000))
    theatre.selection.job_suspend(jobs[0], indf_susp=True)
    assert not theatre.runs(theatre.job(pn_min_memory=3000))
    refused = theatre.selection.job_test(theatre.job(pn_min_memory=5000), SELECT_MODE_TEST_ONLY)
    assert refused == Refusal("never", "Requested node configuration is not available")


def test_memory_of_each_cpu_is_that_of_all_cpus() -> None:
    theatre = linear("1s:4c:2t,mem=8G", ALONE)
    job = theatre.job(mem_per_cpu=1000)
    assert theatre.runs(job)
    assert job.job_resrcs is not None
    assert job.job_resrcs.memory == {0: 8000}


def test_devices_are_given_once_though_nodes_are_shared() -> None:
    theatre = linear("2c,gpu=1:a,gpu=2:b", FORCED)
    held = []
    for wish in ({"gpu": 1}, {"gpu:b": 1}, {"gpu": 1}, {"gpu": 1}):
        job = theatre.job(gres=wish)
        held.append(job.job_resrcs.gres[0] if theatre.runs(job) and job.job_resrcs else ())
    assert held == [("gpu:0",), ("gpu:1",), ("gpu:2",), ()]
    never = theatre.selection.job_test(theatre.job(gres={"gpu:a": 2}), SELECT_MODE_TEST_ONLY)
    assert isinstance(never, Refusal)


def test_nodes_that_are_drained_or_named_or_excluded() -> None:
    theatre = linear("4*2c,feature=fast;2c,feature=slow,name=m")
    theatre.nodes[0].node_state |= NODE_STATE_DRAIN
    theatre.selection.update_node_state(theatre.nodes[0])
    assert nodes_of(now(theatre, theatre.job())) == "01000"
    assert nodes_of(now(theatre, theatre.job(req_nodes=("n3",)))) == "00100"
    assert nodes_of(now(theatre, theatre.job(exc_nodes=("n2", "n3")))) == "00010"
    assert nodes_of(now(theatre, theatre.job(features=("slow",)))) == "00001"
    assert nodes_of(now(theatre, theatre.job(req_nodes=("n1",)))) == "Requested nodes are busy"
    assert nodes_of(theatre.selection.job_test(theatre.job(req_nodes=("n1",)), SELECT_MODE_TEST_ONLY)) == "10000"
    assert nodes_of(now(theatre, theatre.job(req_nodes=("q1",)))) == "Invalid node name specified: q1"


def test_cores_held_for_a_reservation_keep_their_nodes_free() -> None:
    theatre = linear("4*4c")
    held = theatre.nodes.core_bitmap({0: 8, 2: 1})
    assert nodes_of(now(theatre, theatre.job(min_nodes=2), excluded_cores=held)) == "0101"


def test_what_is_asked_of_each_node() -> None:
    theatre = linear("2*1s:4c:2t;2s:8c:1t")
    for layout, chosen in (
        ({"mincpus": "16"}, "001"),
        ({"threads_per_core": "2"}, "100"),
        ({"sockets_per_node": "2"}, "001"),
        ({"cores_per_socket": "8"}, "001"),
    ):
        assert nodes_of(now(theatre, theatre.job(layout=layout))) == chosen
    assert nodes_of(now(theatre, theatre.job(min_cpus=20))) == "111"
    assert nodes_of(now(theatre, theatre.job(min_cpus=20, min_nodes=1, max_nodes=1))) == "Requested nodes are busy"
    refused = theatre.selection.job_test(theatre.job(layout={"ntasks_per_node": "x"}), SELECT_MODE_TEST_ONLY)
    assert isinstance(refused, Refusal)
    assert not theatre.told


def test_lighter_nodes_come_first() -> None:
    theatre = linear("4c,weight=5,name=big;2*4c,weight=1")
    assert nodes_of(now(theatre, theatre.job())) == "010"
    assert nodes_of(now(theatre, theatre.job(min_nodes=3))) == "111"


def test_fewest_jobs_are_preempted_and_only_those_in_the_way() -> None:
    theatre = linear("4*2c")
    jobs = [theatre.job() for _ in range(4)]
    assert all(theatre.runs(job) for job in jobs)
    wide = theatre.job(min_nodes=2)
    found = now(theatre, wide, candidates=[jobs[0], jobs[3], jobs[2]])
    assert isinstance(found, Choice)
    assert len(found.preempted) == 2
    assert all(found.nodes[jobs.index(one)] for one in found.preempted)
    named = theatre.job(req_nodes=("n3",))
    found = now(theatre, named, candidates=[jobs[0], jobs[3], jobs[2]])
    assert isinstance(found, Choice)
    assert found.preempted == [jobs[2]]
    assert nodes_of(now(theatre, theatre.job(min_nodes=4), candidates=jobs[:2])) == "Requested nodes are busy"
    assert not theatre.told


def test_start_is_expected_when_enough_jobs_have_ended() -> None:
    theatre = linear("4*2c")
    jobs = [theatre.job() for _ in range(4)]
    for job, end in zip(jobs, (50.0, 20.0, 0.0, 30.0), strict=True):
        assert theatre.runs(job)
        job.end_time = end

    def start(**details: object) -> tuple[float, str]:
        found = theatre.selection.job_test(theatre.job(**details), SELECT_MODE_WILL_RUN, now=10.0)
        assert isinstance(found, Choice)
        return found.start_time, found.nodes.to01()

    assert start() == (20.0, "0100")
    assert start(min_nodes=2) == (30.0, "0101")
    assert start(req_nodes=("n1",)) == (50.0, "1000")
    assert start(min_nodes=4)[0] > 365 * 86_000
    theatre.ends(jobs[0])
    assert start() == (10.0, "1000")


@pytest.mark.parametrize("seed", range(4))
def test_expected_start_is_the_first_at_which_the_job_can_run(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - chance, no secret
    theatre = linear("12*2c")
    jobs = [theatre.job(min_nodes=chance.randint(1, 3)) for _ in range(8)]
    running = [job for job in jobs if theatre.runs(job)]
    for job in running:
        job.end_time = float(chance.randint(10, 99))
    wanted = theatre.job(min_nodes=chance.randint(4, 12), contiguous=chance.random() < 0.5)
    expected = theatre.selection.job_test(wanted, SELECT_MODE_WILL_RUN, now=5.0)
    assert isinstance(expected, Choice)
    for job in sorted(running, key=lambda one: one.end_time):
        if isinstance(now(theatre, wanted), Choice):
            break
        at = job.end_time
        theatre.ends(job)
    else:
        assert isinstance(now(theatre, wanted), Choice)
    assert expected.start_time == (at if expected.start_time > 5 else 5.0)


def test_suspended_job_lends_its_nodes_and_waits_until_they_are_free() -> None:
    theatre = linear("2c")
    first, second = theatre.job(), theatre.job()
    assert theatre.runs(first)
    assert not theatre.runs(second)
    assert not theatre.selection.job_suspend(first, indf_susp=True)
    assert theatre.runs(second)
    assert theatre.selection.job_resume(first, indf_susp=True) == "core 0 of node n1 is another job's"
    theatre.ends(second)
    assert not theatre.selection.job_resume(first, indf_susp=True)
    assert not theatre.runs(theatre.job())
    assert not theatre.told


def test_one_job_gets_the_nodes_of_another_and_gives_one_up() -> None:
    theatre = linear("4*2c,mem=4G")
    one, other = theatre.job(min_nodes=2, pn_min_memory=100), theatre.job(pn_min_memory=100)
    assert theatre.runs(one)
    assert theatre.runs(other)
    assert not theatre.selection.expand(one, other)
    assert (one.job_resrcs, one.nodes, other.nodes) == (None, "", "n1,n2,n3")
    assert other.job_resrcs is not None
    assert other.job_resrcs.memory == {0: 100, 1: 100, 2: 100}
    assert theatre.selection.ledger.jobs == [other]
    assert not theatre.selection.resized(other, theatre.nodes[1])
    assert other.nodes == "n1,n3"
    assert nodes_of(now(theatre, theatre.job(min_nodes=2))) == "0101"
    assert theatre.selection.resized(other, theatre.nodes[1]) == "job 2 cannot give up node n2"
    assert theatre.selection.expand(other, other) == "a job cannot be expanded by itself"
    theatre.ends(other)
    assert nodes_of(now(theatre, theatre.job(min_nodes=4))) == "1111"
    assert not theatre.told


def test_job_with_devices_is_not_expanded() -> None:
    theatre = linear("2*2c,gpu=1")
    one, other = theatre.job(gres={"gpu": 1}), theatre.job()
    assert theatre.runs(one)
    assert theatre.runs(other)
    assert "devices" in theatre.selection.expand(one, other)
    assert (one.nodes, other.nodes) == ("n1", "n2")
    assert theatre.selection.ledger.jobs == [one, other]


def test_whole_nodes_are_reserved() -> None:
    theatre = linear("6*2c")
    avail = theatre.nodes.bitmap([0, 1, 3, 4, 5])
    found = theatre.selection.resv_test(ReservationRequest("r", 1.0, 2.0, node_cnt=3), avail)
    assert not isinstance(found, Refusal)
    assert found.nodes.to01() == "000111"
    named = ReservationRequest("r", 1.0, 2.0, node_cnt=2, node_list="n2")
    found = theatre.selection.resv_test(named, avail)
    assert not isinstance(found, Refusal)
    assert found.nodes.to01() == "110000"
    taken = theatre.nodes.core_bitmap({0: 1})
    assert isinstance(theatre.selection.resv_test(named, avail, taken), Refusal | type(found))
    refused = theatre.selection.resv_test(ReservationRequest("r", 1.0, 2.0, core_cnt=1), avail)
    assert refused == Refusal("busy", "select/linear reserves whole nodes, and no cores")


@pytest.mark.parametrize("seed", range(3))
def test_many_jobs_come_and_go_and_nothing_is_given_twice(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - chance, no secret
    way = chance.choice([ALONE, Parameters(over_subscribe="force", share_count=3)])
    theatre = linear("6*1s:2c:2t,mem=4G,gpu=2;3*2s:4c:2t,mem=8G,gpu=4,name=m", way)
    running: list[JobRecord] = []
    stopped: list[JobRecord] = []
    for _ in range(400):
        job = theatre.job(
            min_nodes=chance.randint(1, 4),
            min_cpus=chance.randint(1, 20),
            pn_min_memory=chance.choice([0, 500, 3000]),
            gres=chance.choice([{}, {}, {"gpu": chance.randint(1, 3)}]),
            contiguous=chance.random() < 0.2,
        )
        if theatre.runs(job):
            running.append(job)
        if running and chance.random() < 0.2:
            stopped.append(running.pop(chance.randrange(len(running))))
            assert not theatre.selection.job_suspend(stopped[-1], indf_susp=True)
        if stopped and chance.random() < 0.4 and not theatre.selection.job_resume(stopped[0], indf_susp=True):
            running.append(stopped.pop(0))
        while running and chance.random() < 0.5:
            theatre.ends(running.pop(chance.randrange(len(running))))
    for job in (*running, *stopped):
        theatre.ends(job)
    assert not theatre.told
    assert theatre.selection.ledger.is_empty()
    assert isinstance(theatre.selection.ledger, Ledger)
    assert nodes_of(now(theatre, theatre.job(min_nodes=9))) == "1" * 9


def test_device_used_outside_of_all_jobs_is_given_to_none() -> None:
    theatre = linear("2c,gpu=2", FORCED)
    theatre.selection.set_devices_away(0, {"gpu:0": "process 7"})
    assert not theatre.runs(theatre.job(gres={"gpu": 2}))
    assert isinstance(theatre.selection.job_test(theatre.job(gres={"gpu": 2}), SELECT_MODE_TEST_ONLY), Choice)
    job = theatre.job(gres={"gpu": 1})
    assert theatre.runs(job)
    assert job.job_resrcs is not None
    assert job.job_resrcs.gres == {0: ("gpu:1",)}
    theatre.selection.set_devices_away(0, {})
    assert theatre.runs(theatre.job(gres={"gpu": 1}))
