"""Where steps go: as srun was measured to lay out steps on several nodes, and beside each other without a CPU twice."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.cluster.leader import asked
from nodectl.cluster.leader import gpus as gpus_of_step
from nodectl.cluster.leader.holding import Held
from nodectl.cluster.leader.placing import Table
from nodectl.cluster.leader.wish import Placed, Wish
from nodectl.cluster.machine import Machine
from nodectl.model.cpu_list import cpus_of, format_cpulist
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.options import request_of
from nodectl.placement.binding.step import is_exact
from nodectl.placement.machine.declared_devices import Device
from nodectl.placement.machine.spec import from_spec
from oracle.cases import TOLD, Case, cases, request, unrolled

NODE = from_spec("2s:4c:1t")


def table(count: int = 3, spec: str = "2s:4c:1t", memory: int = 1000) -> Table:
    made = Table()
    for rank in range(count):
        made.add(rank, f"n{rank + 1}", Machine(from_spec(spec), memory))
    return made


def with_gpus(*counts: int, kind: str = "") -> Table:
    made = Table()
    for rank, count in enumerate(counts):
        devices = tuple(Device("gpu", number, kind, cpus=0xF << 4 * (number % 2)) for number in range(count))
        made.add(rank, f"n{rank + 1}", Machine(NODE, 1000, devices))
    return made


def gpus(placed: Placed | None) -> list[str]:
    """By node, the numbers of those that a step holds."""
    assert placed is not None
    return [",".join(key.removeprefix("gpu:") for key in share.gres) for share in placed.held.shares.values()]


def wish(variables: dict[str, str] | None = None, **options: Any) -> Wish:
    """As a request of these members, options of layout and variables is read."""
    members: dict[str, object] = {name: options.pop(name) for name in ("mem", "mem_per_cpu") if name in options}
    layout = {name: str(value) for name, value in options.items()}
    ntasks = int(layout.pop("ntasks", 1))
    return asked.read(
        {"argv": ["true"], "environment": variables or {}, "cwd": "/", "ntasks": ntasks, "layout": layout, **members}
    ).wish


def counts(placed: Placed | None) -> list[int]:
    assert placed is not None
    return [share.ntasks for share in placed.layout.nodes]


def used(placed: Placed, rank: int) -> int:
    """The mask of its CPUs there."""
    return placed.held.shares[rank].mask if rank in placed.held.shares else 0


def measured() -> list[Case]:
    """Steps on whole nodes of four."""
    return [case for case in cases("multi4-2x4x2") if case.row["mode"] == "step"]


@pytest.mark.parametrize("case", measured(), ids=str)
def test_a_step_over_nodes_is_laid_out_as_it_was_measured(case: Case) -> None:
    made = Table(case.machine.settings)
    for rank, (name, topology) in enumerate(zip(case.machine.names, case.machine.nodes, strict=True)):
        made.add(rank, name, Machine(topology))
    wanted = request(case.row["args"], case.row.get("environ", {}))
    packed = wanted.distribution is not None and wanted.distribution.pack
    count = len(case.machine.nodes)
    nodes = wanted.nodes or (None if packed else (count, count))  # the job's, as its shell tells srun
    exact = is_exact(wanted)
    wanted = replace(wanted, nodes=nodes, exclusive=not exact, whole=not exact, exact=exact)
    try:
        placed = made.place(Wish(wanted))
    except NoLayout:
        placed = None
    if "refusal" in case.row:
        assert placed is None
        return
    assert placed is not None
    told = {name: placed.layout.environment.get(f"SLURM_{name}") for name in TOLD if name in case.row["env"]}
    assert [format_cpulist(cpus_of(task.cpus)) for task in placed.layout.tasks] == unrolled(case.row["cpus"])
    assert told == {name: case.row["env"][name] for name in told}


def test_tasks_are_shared_out_evenly_over_the_nodes_that_are_asked_for() -> None:
    assert counts(table().place(wish(ntasks=6, nodes="3"))) == [2, 2, 2]
    assert counts(table().place(wish(ntasks=5, nodes="2"))) == [3, 2]


def test_what_a_step_has_nobody_else_gets_until_it_ends() -> None:
    made = table()
    first = made.place(wish(ntasks=12, nodes="3"))
    second = made.place(wish(ntasks=12, nodes="3"))
    assert first is not None
    assert second is not None
    assert made.place(wish(ntasks=1)) is None
    for rank in range(3):
        assert used(first, rank) & used(second, rank) == 0
        assert used(first, rank) | used(second, rank) == NODE.usable
    made.release(first.held)
    assert counts(made.place(wish(ntasks=12, nodes="3"))) == [4, 4, 4]


def test_overlap_takes_nothing_and_waits_for_nobody() -> None:
    made = table()
    assert made.place(wish(ntasks=24, nodes="3")) is not None
    shared = made.place(wish(ntasks=3, nodes="3", overlap="1"))
    assert counts(shared) == [1, 1, 1]
    assert shared is not None
    made.release(shared.held)
    assert made.place(wish(ntasks=1)) is None


def test_overcommitted_tasks_share_what_is_free() -> None:
    made = table()
    assert made.place(wish(ntasks=18, nodes="3")) is not None
    placed = made.place(wish(ntasks=30, nodes="3", overcommit="1"))
    assert counts(placed) == [10, 10, 10]
    assert placed is not None
    assert [share.cpus.bit_count() for share in placed.layout.nodes] == [2, 2, 2]
    assert made.place(wish(ntasks=1)) is None


def test_whole_nodes_are_for_one_step_and_its_tasks_may_use_all_of_them() -> None:
    made = table()
    assert made.place(wish(ntasks=1, nodelist="n2")) is not None
    placed = made.place(wish(ntasks=2, nodes="2", whole="1"))
    assert placed is not None
    assert sorted(placed.held.shares) == [0, 2]
    assert [share.cpus for share in placed.layout.nodes] == [NODE.usable] * 2
    assert made.place(wish(ntasks=1, whole="1")) is None


def test_exclusive_is_a_steps_own_cpus_and_not_whole_nodes() -> None:
    made = table(1)
    for _ in range(8):
        assert made.place(wish(ntasks=1, exclusive="1")) is not None
    assert made.place(wish(ntasks=1, exclusive="1")) is None


def test_memory_is_held_as_cpus_are() -> None:
    made = table()
    first = made.place(wish(ntasks=3, nodes="3", mem=600))
    assert first is not None
    assert made.place(wish(ntasks=1, mem=600)) is None
    assert made.place(wish(ntasks=1, mem=400)) is not None
    made.release(first.held)
    assert made.place(wish(ntasks=2, nodes="2", mem_per_cpu=900)) is not None


@pytest.mark.parametrize(
    "options",
    [{"nodes": "4", "ntasks": 4}, {"ntasks": 25}, {"mem": 1001}, {"nodelist": "n9"},
     {"nodelist": "n1", "exclude": "n1"}, {"nodes": "3", "ntasks": 3, "exclude": "n2"}],
)  # fmt: skip
def test_what_can_never_be_is_refused_and_does_not_wait(options: dict[str, Any]) -> None:
    with pytest.raises(NoLayout):
        table().place(wish(**options))


def test_named_excluded_and_relative_nodes_are_kept_to() -> None:
    made = table(4)
    for options, ranks in (
        ({"nodelist": "n3"}, [2]),
        ({"exclude": "n1,n2", "nodes": "2", "ntasks": 2}, [2, 3]),
        ({"relative": "2", "nodes": "2", "ntasks": 2}, [2, 3]),
        ({"nodes": "1-3", "ntasks": 9}, [0, 1, 2]),
        ({"ntasks": 6, "ntasks_per_node": "2"}, [0, 1, 2]),
    ):
        placed = made.place(wish(**options))
        assert placed is not None
        assert sorted(placed.held.shares) == ranks, options
        made.release(placed.held)


def test_a_node_that_is_lost_gets_nothing_until_it_joins_again() -> None:
    made = table()
    made.take_out(1, "lost")
    placed = made.place(wish(ntasks=16, nodes="2"))
    assert placed is not None
    assert sorted(placed.held.shares) == [0, 2]
    with pytest.raises(NoLayout):
        made.place(wish(ntasks=3, nodes="3"))
    made.add(1, "n2", Machine(NODE, 1000))
    assert counts(made.place(wish(ntasks=8))) == [8]


def test_what_runs_keeps_what_it_has_when_a_node_joins() -> None:
    made = table(2)
    first = made.place(wish(ntasks=16, nodes="2"))
    assert first is not None
    made.add(2, "n3", Machine(NODE, 1000))
    placed = made.place(wish(ntasks=8))
    assert placed is not None
    assert sorted(placed.held.shares) == [2]
    made.release(first.held)
    assert counts(made.place(wish(ntasks=16, nodes="2"))) == [8, 8]


def test_what_a_step_holds_comes_back_as_it_was_written() -> None:
    made = table()
    placed = made.place(wish(ntasks=5, nodes="3", mem=10))
    assert placed is not None
    again = Held.from_json(placed.held.as_json())
    assert (again.number, again.shares) == (placed.held.number, placed.held.shares)
    other = table()
    other.hold(again)
    rest = other.place(wish(ntasks=19, nodes="3"))
    assert rest is not None
    assert not any(used(rest, rank) & used(placed, rank) for rank in range(3))
    other.release(again)
    other.release(rest.held)
    assert counts(other.place(wish(ntasks=24, nodes="3"))) == [8, 8, 8]


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 3), st.integers(0, 400), st.booleans()), max_size=20))
def test_no_cpu_and_no_memory_is_given_twice(steps: list[tuple[int, int, int, bool]]) -> None:
    made = table(3, "1s:4c:2t")
    running: list[Placed] = []
    for ntasks, nodes, memory, ends in steps:
        try:
            placed = made.place(wish(ntasks=ntasks, nodes=f"1-{nodes}", mem=memory))
        except NoLayout:
            continue
        if placed is not None:
            running.append(placed)
            assert len(placed.layout.tasks) == ntasks
        if ends and running:
            made.release(running.pop(0).held)
        for rank in range(3):
            masks = [used(one, rank) for one in running]
            assert sum(mask.bit_count() for mask in masks) == functools.reduce(int.__or__, masks, 0).bit_count()
            assert sum(one.held.shares[rank].memory for one in running if rank in one.held.shares) <= 1000
    for placed in running:
        made.release(placed.held)
    assert counts(made.place(wish(ntasks=24, nodes="3"))) == [8, 8, 8]


def test_options_that_srun_reads_from_variables_count() -> None:
    request = {"argv": ["true"], "environment": {"SLURM_NNODES": "3"}, "cwd": "/", "ntasks": 3}
    assert counts(table().place(asked.read(request).wish)) == [1, 1, 1]
    assert request_of({"nodes": "3"}, {}).nodes == asked.read(request).wish.request.nodes


# GPUs.


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ({"nodes": "2", "ntasks": 2}, ["0,1,2,3", "0,1,2,3"]),  # as srun: all of its nodes
        ({"nodes": "2", "ntasks": 2, "gres": "none"}, ["", ""]),
        ({"nodes": "2", "ntasks": 4, "gpus_per_task": "1"}, ["0,1", "0,1"]),
        ({"nodes": "2", "ntasks": 3, "gpus_per_task": "2"}, ["0,1,2,3", "0,2"]),  # near its CPU
        ({"nodes": "2", "ntasks": 2, "gpus": "3"}, ["0,2", "0"]),
        ({"nodes": "2", "ntasks": 2, "gpus_per_node": "1"}, ["0", "0"]),
        ({"nodes": "2", "ntasks": 2, "gres": "gpu:3"}, ["0,1,2", "0,1,2"]),
        ({"nodes": "1-2", "ntasks": 8, "gpus_per_task": "1"}, ["0,1,2,3", "0,1,2,3"]),
        ({"nodes": "1", "ntasks": 1, "gpus": "k80:1"}, ["0"]),  # Slurm gave this type alone
    ],
)
def test_a_step_has_the_gpus_that_it_asks_for(options: dict[str, Any], held: list[str]) -> None:
    assert gpus(with_gpus(4, 4).place(wish(**options))) == held


def test_no_gpu_is_two_steps_at_a_time() -> None:
    made = with_gpus(2, 2)
    first = [made.place(wish(gpus=1, ntasks=1)) for _ in range(4)]
    held = [(rank, share.gres) for one in first if one for rank, share in one.held.shares.items()]
    assert sorted(held) == [(rank, (f"gpu:{number}",)) for rank in (0, 1) for number in (0, 1)]
    assert made.place(wish(gpus=1, ntasks=1)) is None
    assert made.place(wish(ntasks=1)) is None  # which would have all of a node
    assert gpus(made.place(wish(ntasks=1, gres="none"))) == [""]
    assert made.place(wish(ntasks=1, overlap="1")) is not None
    assert first[2] is not None
    made.release(first[2].held)
    assert made.place(wish(gpus_per_node=2, ntasks=1)) is None
    assert made.place(wish(gpus=1, ntasks=1)) is not None


def test_a_step_that_says_nothing_goes_where_no_gpu_is_in_use() -> None:
    made = with_gpus(1, 0, 2)
    assert gpus(made.place(wish(gpus=1, nodelist="n1"))) == ["0"]
    assert [gpus(made.place(wish(ntasks=1))) for _ in range(2)] == [[""], [""]]  # n2 has none that could be
    assert gpus(made.place(wish(ntasks=1, exclude="n2"))) == ["0,1"]
    assert made.place(wish(ntasks=1, exclude="n2")) is None


@pytest.mark.parametrize(
    ("variables", "options", "held"),
    [
        ({"SLURM_GPUS": "4", "SLURM_GPUS_PER_NODE": "2"}, {}, ["0,1"]),  # of the job
        ({"SLURM_GPUS_PER_NODE": "2"}, {"gpus": 1}, ["0"]),
        ({"SLURM_GPUS_PER_TASK": "1"}, {}, ["0"]),
        ({"SLURM_GPUS_PER_TASK": "1"}, {"gres": "gpu:2"}, ["0,1"]),
        ({"SLURM_GPUS_PER_TASK": "9"}, {}, ["0,1"]),  # never: it is no wish of this step's
        ({"SLURM_STEP_GRES": "none"}, {}, [""]),
        ({"SLURM_GRES": "fpga:1"}, {}, ["0,1"]),
        ({"SLURM_GPU_BIND": "closest"}, {"gres": "none"}, [""]),
    ],
)
def test_variables_of_the_job_keep_no_step_from_its_node(
    variables: dict[str, str], options: dict[str, Any], held: list[str]
) -> None:
    made = with_gpus(2)
    asks = wish(variables, ntasks=1, **options)
    assert not made.never_fits(asks)
    assert gpus(made.place(asks)) == held


@pytest.mark.parametrize("variable", ["SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_GRES"])
def test_nodes_that_give_out_no_gpus_run_steps_of_a_job_that_has_some(variable: str) -> None:
    value = "gpu:2" if variable == "SLURM_GRES" else "2"
    assert gpus(table().place(wish({variable: value, "SLURM_GPU_BIND": "closest"}, ntasks=1))) == [""]
    with pytest.raises(NoLayout, match="GPUs are asked for, and the nodes of this cluster have none to give"):
        table().place(wish({variable: value}, ntasks=1, gpus=1))


@pytest.mark.parametrize("options", [{"gpus": 9}, {"gpus_per_task": 5}, {"gres": "gpu:b:1"}, {"gpus_per_node": 5}])
def test_gpus_that_can_never_be_are_refused(options: dict[str, Any]) -> None:
    made = with_gpus(4, 4, kind="a")
    with pytest.raises(NoLayout):
        made.place(wish(ntasks=2, **options))


def test_nodes_are_told_which_variables_do_not_count() -> None:
    request = {
        "argv": ["true"], "environment": {"SLURM_GPUS_PER_TASK": "1", "SLURM_GPUS": "4"}, "cwd": "/", "ntasks": 2,
        "layout": {"gpus": "2"},
    }  # fmt: skip
    assert asked.read(request).request["layout"] == {"gpus": "2", "gpus_per_task": ""}


def test_gpus_are_held_for_steps_of_an_earlier_leader() -> None:
    made = with_gpus(2)
    first = made.place(wish(ntasks=1, gpus=1))
    assert first is not None
    later = with_gpus(2)
    later.hold(Held.from_json(first.held.as_json()))
    assert later.devices_used(0) == ["gpu:0"]
    assert gpus(later.place(wish(ntasks=1, gpus=1))) == ["1"]


@pytest.mark.parametrize("given", [{"gres": "shard:1"}, {"gpu_mem": "1G"}])
def test_a_cluster_gives_no_parts_of_gpus(given: dict[str, str]) -> None:
    with pytest.raises(NoLayout, match="a cluster of several nodes gives GPUs whole"):
        gpus_of_step.read(given, given, 1)
