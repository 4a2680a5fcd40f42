"""select/cons_tres: what a job gets of each node, by SelectTypeParameters and the job's options."""

from __future__ import annotations

import pytest

from nodectl.model.device_part import device_of
from nodectl.selection.answers import Choice, Refusal
from nodectl.selection.modes import SELECT_MODE_TEST_ONLY
from nodectl.selection.records import NodeTable
from unit.selection.tres import Bed, node, nodes, parameters

TWO = "2s:4c:2t:2n"  # cores 0-1, 2-3, ... as CPUs


def test_a_core_belongs_to_one_job_with_all_its_threads() -> None:
    bed = Bed(nodes(1, TWO))
    assert bed.held("ntasks=1") == "n1:0-1"
    assert bed.held("ntasks=3") == "n1:2-3,8-9"
    assert bed.held("ntasks=12") == ""
    assert bed.held("ntasks=10") == "n1:4-7,10-15"


def test_a_job_is_charged_with_the_threads_of_its_cores_and_by_cr_cpu_with_what_it_asked_for() -> None:
    for words, cpus in (("CR_Core_Memory",), 4), (("CR_CPU_Memory",), 3), (("CR_Socket_Memory",), 8):
        bed = Bed(nodes(1, TWO, 1000), parameters(*words))
        job = bed.job("ntasks=3", "distribution=*:block", mem_per_cpu=10)
        assert bed.start(job)
        assert job.job_resrcs is not None
        assert (job.job_resrcs.cpus, job.job_resrcs.memory) == ({0: cpus}, {0: 10 * cpus})


def test_cr_cpu_fills_one_socket_where_cores_would_go_round() -> None:
    assert Bed(nodes(1, TWO), parameters("CR_Core")).held("ntasks=4") == "n1:0-1,8-9"
    assert Bed(nodes(1, TWO), parameters("CR_CPU")).held("ntasks=4") == "n1:0-3"


def test_cr_socket_gives_sockets_that_nobody_is_on_whole() -> None:
    bed = Bed(nodes(1, TWO), parameters("CR_Socket"))
    assert bed.held("ntasks=1") == "n1:0-7"
    assert bed.held("ntasks=9") == ""
    assert bed.held("ntasks=1") == "n1:8-15"
    assert bed.held("ntasks=1") == ""


def test_cr_memory_alone_gives_memory_and_shares_all_cores() -> None:
    bed = Bed(nodes(1, TWO, 1000), parameters("CR_Memory", sharing="force", count=99))
    assert bed.held("ntasks=16", pn_min_memory=600) == "n1:0-15"
    assert bed.held("ntasks=16", pn_min_memory=600) == ""
    assert bed.held("ntasks=16", pn_min_memory=400) == "n1:0-15"


def test_one_task_per_core_unless_the_job_says_otherwise() -> None:
    bed = Bed(nodes(1, TWO), parameters("CR_Core", "CR_ONE_TASK_PER_CORE"))
    assert bed.held("ntasks=2") == "n1:0-1,8-9"
    assert bed.held("ntasks=2", "ntasks_per_core=2") == "n1:2-3"
    assert bed.held("ntasks=2", "cpus_per_task=2", "distribution=*:block") == "n1:4-7"


def test_cores_go_socket_by_socket_by_default_where_configured() -> None:
    bed = Bed(nodes(1, TWO), parameters("CR_Core", "CR_CORE_DEFAULT_DIST_BLOCK"))
    assert bed.held("ntasks=4") == "n1:0-3"
    assert bed.held("ntasks=4", "distribution=*:cyclic") == "n1:4-5,8-9"


def test_the_least_loaded_node_is_first_where_configured() -> None:
    first, least = (Bed(nodes(3, TWO), parameters(*words)) for words in (("CR_Core",), ("CR_Core", "CR_LLN")))
    for bed in (first, least):
        assert bed.held("ntasks=4", "nodelist=n1")
        assert bed.held("ntasks=2", "nodelist=n2")
    assert first.held("ntasks=1").startswith("n1:")
    assert [least.held("ntasks=1")[:3] for _ in range(7)] == ["n3:", "n2:", "n3:", "n1:", "n2:", "n3:", "n1:"]


def test_memory_bounds_what_a_node_gives() -> None:
    bed = Bed(nodes(2, TWO, 1000))
    assert bed.held("ntasks=2", pn_min_memory=700).startswith("n1:")
    assert bed.held("ntasks=2", pn_min_memory=700).startswith("n2:")
    assert bed.held("ntasks=2", pn_min_memory=301) == ""
    assert bed.held("ntasks=2", mem_per_cpu=100) == "n1:2-3"
    assert bed.held("ntasks=4", mem_per_cpu=100) == "", "200 MiB would be enough for two CPUs of n2, 100 for none of n1"
    assert isinstance(bed.test(bed.job("ntasks=1", pn_min_memory=1001), SELECT_MODE_TEST_ONLY), Refusal)


def test_a_job_that_names_no_memory_is_charged_with_the_default_of_its_cpus() -> None:
    bed = Bed(nodes(1, TWO, 1000), parameters(def_mem_per_cpu=200))
    assert bed.held("ntasks=4") == "n1:0-1,8-9"
    assert bed.held("ntasks=2") == ""
    assert bed.held("ntasks=2", pn_min_memory=200) == "n1:2-3"
    assert Bed(nodes(1, TWO, 1000)).held("ntasks=16") == "n1:0-15", "without a default it is charged with none"


def test_a_job_for_itself_has_a_node_that_nobody_is_on() -> None:
    bed = Bed(nodes(2, TWO, 1000))
    assert bed.held("ntasks=1") == "n1:0-1"
    assert bed.held("ntasks=1", share_res=False, mem_per_cpu=500) == "n2:0-15"
    assert bed.held("ntasks=1", "nodelist=n2") == ""
    assert bed.held("ntasks=1", share_res=False) == ""
    assert Bed(nodes(1, TWO), parameters(sharing="exclusive")).held("ntasks=1") == "n1:0-15"


def test_more_tasks_than_cpus_have_the_whole_machine_and_wait_for_it() -> None:
    bed = Bed(nodes(1, TWO))
    small, large = bed.job("ntasks=1"), bed.job("ntasks=99", "cpus_per_task=3", whole=True, overcommit=True)
    assert bed.start(small)
    assert not bed.start(large)
    bed.end(small)
    assert bed.start(large)
    assert bed.cpus(large) == "n1:0-15"


def test_cores_that_a_job_leaves_to_the_system_are_nobodys() -> None:
    bed = Bed(nodes(1, TWO))
    assert bed.held("ntasks=1", core_spec=2) == "n1:0-5,8-13"
    assert bed.held("ntasks=1") == ""
    kept = Bed(nodes(1, TWO, reserved_cpus=0b11))
    assert kept.held("ntasks=14") == "n1:2-15"
    assert kept.held("ntasks=1") == ""


def test_jobs_share_cores_only_as_far_as_configured() -> None:
    no, yes, force = (
        Bed(nodes(1, "1s:2c:1t"), parameters(sharing=word, count=count))
        for word, count in (("no", 1), ("yes", 2), ("force", 3))
    )
    assert [bool(no.held("ntasks=2", share_res=True)) for _ in range(2)] == [True, False]
    assert [bool(yes.held("ntasks=2", share_res=True)) for _ in range(3)] == [True, True, False]
    assert [bool(force.held("ntasks=2")) for _ in range(4)] == [True, True, True, False]


def test_a_job_that_does_not_share_keeps_its_cores_from_those_that_do() -> None:
    bed = Bed(nodes(1, "1s:4c:1t"), parameters(sharing="yes", count=2))
    assert bed.held("ntasks=1") == "n1:0"
    assert [bed.held("ntasks=2", share_res=True) for _ in range(3)] == ["n1:1-2", "n1:1-2", ""]
    assert [bed.held("ntasks=1", share_res=True) for _ in range(3)] == ["n1:3", "n1:3", ""]
    assert bed.held("ntasks=1") == ""


def test_a_sharing_job_takes_free_cores_before_it_joins_others() -> None:
    bed = Bed(nodes(1, "1s:4c:1t"), parameters(sharing="force", count=9))
    assert [bed.held("ntasks=2") for _ in range(4)] == ["n1:0-1", "n1:2-3", "n1:0-1", "n1:2-3"]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("nodes=2", "ntasks=2"), "n1:0-1 n2:0-1"),
        (("nodes=2-3", "ntasks=3"), "n1:0-1 n2:0-1 n3:0-1"),
        (("nodes=2-3", "ntasks=3", "use_min_nodes"), "n1:0-1 n2:0-1"),
        (("ntasks=4", "ntasks_per_node=2"), "n1:0-1 n2:0-1"),
        (("ntasks=2", "ntasks_per_core=1", "distribution=*:block"), "n1:0-3"),
        (("ntasks=1", "mincpus=5", "distribution=*:block"), "n1:0-5"),
        (("ntasks=2", "hint=nomultithread", "distribution=*:block"), "n1:0-3"),
        (("ntasks=1", "extra_node_info=3"), ""),
        (("ntasks=1", "extra_node_info=2:5"), ""),
        (("ntasks=1", "extra_node_info=2:4:2"), "n1:0-1"),
        (("ntasks=2", "exclude=n1,n2"), "n3:0-1"),
    ],
)
def test_options_of_layout_decide_as_srun_says(words: tuple[str, ...], wanted: str) -> None:
    assert Bed(nodes(3, TWO)).held(*words) == wanted


def test_so_many_tasks_on_a_socket() -> None:
    assert Bed(nodes(1, "2s:4c:1t")).held("ntasks=4", "ntasks_per_socket=2") == "n1:0-1,4-5"
    assert Bed(nodes(1, "2s:4c:1t")).held("ntasks=5", "ntasks_per_socket=2") == ""


def test_contiguous_nodes_are_neighbours() -> None:
    bed = Bed(nodes(6, "1s:2c:1t"))
    assert bed.held("ntasks=2", "nodelist=n3")
    assert bed.held("ntasks=6", "nodes=3") == "n1:0-1 n2:0-1 n4:0-1"
    assert bed.held("ntasks=4", "nodes=2", contiguous=True) == "n5:0-1 n6:0-1"
    assert bed.held("ntasks=2", "nodes=2", contiguous=True) == ""


def test_nodes_on_both_sides_of_a_full_one_are_no_neighbours() -> None:
    bed = Bed(nodes(4, "1s:2c:1t"))
    assert bed.held("ntasks=2", "nodelist=n2")
    assert bed.held("ntasks=1", "nodelist=n4")
    assert bed.held("ntasks=4", "nodes=2", contiguous=True) == ""
    assert bed.held("ntasks=3", "nodes=2", contiguous=True) == "n3:0-1 n4:1"


def test_light_nodes_go_first() -> None:
    table = NodeTable([node("n1", TWO, weight=5), node("n2", TWO, weight=1), node("n3", TWO, weight=3)])
    bed = Bed(table)
    assert [bed.held("ntasks=16")[:2] for _ in range(3)] == ["n2", "n3", "n1"]


def test_device_used_outside_of_all_jobs_is_given_to_none_and_does_not_change_what_is_possible() -> None:
    bed = Bed(nodes(1, TWO, gpus="0011", shards=2))
    bed.selection.set_devices_away(0, {"gpu:0": "process 7"})
    one = bed.job("ntasks=1", gres={"gpu": 1})
    assert bed.start(one)
    assert one.job_resrcs is not None
    assert one.job_resrcs.gres == {0: ("gpu:1",)}
    assert not bed.start(bed.job("ntasks=1", gres={"gpu": 3}))
    assert isinstance(bed.test(bed.job(gres={"gpu": 4}), SELECT_MODE_TEST_ONLY), Choice)
    part = bed.job("ntasks=1", gres={"shard": 1})
    assert bed.start(part)
    assert part.job_resrcs is not None
    assert device_of(part.job_resrcs.gres[0][0]) not in ("gpu:0", "gpu:1")
    bed.end(one)
    bed.selection.set_devices_away(0, {})
    assert bed.start(bed.job("ntasks=1", gres={"gpu": 3}))


def test_devices_are_given_once_and_near_the_cores() -> None:
    bed = Bed(nodes(1, TWO, gpus="0011"))
    jobs = [bed.job("ntasks=4", gres={"gpu": 2}) for _ in range(3)]
    assert [bed.start(job) for job in jobs] == [True, True, False]
    assert [bed.cpus(job) for job in jobs[:2]] == ["n1:0-3", "n1:8-11"]
    assert [job.job_resrcs.gres for job in jobs[:2] if job.job_resrcs] == [
        {0: ("gpu:0", "gpu:1")}, {0: ("gpu:2", "gpu:3")},
    ]  # fmt: skip
    assert isinstance(bed.test(bed.job(gres={"gpu": 5}), SELECT_MODE_TEST_ONLY), Refusal)
    assert isinstance(bed.test(bed.job(gres={"gpu:a100": 1}), SELECT_MODE_TEST_ONLY), Refusal)
    assert isinstance(bed.test(bed.job(gres={"gpu": 4}), SELECT_MODE_TEST_ONLY), Choice)


def test_far_cores_serve_unless_binding_is_enforced() -> None:
    bed = Bed(nodes(1, TWO, gpus="0"))
    assert bed.held("ntasks=6", "distribution=*:block", "nodelist=n1") == "n1:0-5"
    assert bed.held("ntasks=4", "gres_flags=enforce-binding", gres={"gpu": 1}) == ""
    assert bed.held("ntasks=2", "gres_flags=enforce-binding", gres={"gpu": 1}) == "n1:6-7"
    far = Bed(nodes(1, TWO, gpus="0"))
    assert far.held("ntasks=6", "distribution=*:block")
    assert far.held("ntasks=4", "distribution=*:block", gres={"gpu": 1}) == "n1:8-11"


def test_a_job_whose_socket_needs_too_much_memory_waits_beside_excluded_cores() -> None:
    bed = Bed(nodes(2, "2s:4c:1t", 1000), parameters("CR_Socket_Memory"))
    found = bed.test(bed.job("ntasks=1", mem_per_cpu=400), excluded_cores=bed.cores({0: 1, 1: 1}))
    assert isinstance(found, Refusal), "and the question has an end"
    assert found.kind == "busy"


def test_what_users_ask_for_and_nobody_has_is_not_kept() -> None:
    bed = Bed(nodes(1, "1s:2c:1t", gpus="0"))
    for number in range(3):
        assert isinstance(bed.test(bed.job("ntasks=1", features=(f"feature{number}",))), Refusal)
        assert isinstance(bed.test(bed.job("ntasks=1", gres={f"gpu:type{number}": 1})), Refusal)
    assert not bed.selection._offers._features
    assert not bed.state.uses[0].shape._fitting


def test_excluded_cores_are_given_to_nobody() -> None:
    bed = Bed(nodes(1, TWO))
    cores = bed.cores({0: 0b1111})
    found = bed.test(bed.job("ntasks=12"), excluded_cores=cores)
    assert isinstance(found, Choice)
    assert not (found.resources.core_bitmap & cores).any()
    assert isinstance(bed.test(bed.job("ntasks=13"), excluded_cores=cores), Refusal)
    assert isinstance(bed.test(bed.job(share_res=False), excluded_cores=cores), Refusal)
