"""Steps laid out on made-up machines: what measurements of real ones do not reach."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nodectl.model.cpu_list import cpus_of, format_cpulist, mask_of_list
from nodectl.placement.binding import spread, step
from nodectl.placement.binding.allocation import Allocation
from nodectl.placement.binding.layout import Layout
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.options import request_of
from nodectl.placement.binding.request import Settings
from nodectl.placement.machine.spec import from_lscpu, from_spec
from nodectl.placement.machine.topology import Topology

SETTINGS = Settings()
TWO = from_spec("2s:4c:2t:2n:i")


def laid_out(machine: Topology, held: str = "", settings: Settings = SETTINGS, **given: object) -> Layout:
    cpus = mask_of_list(held) if held else machine.usable
    allocation = Allocation.of_masks((machine,), {0: cpus})
    return step.place((machine,), allocation, request_of(given, {}), settings)


def cpus(layout: Layout) -> list[str]:
    return [format_cpulist(cpus_of(place.cpus)) for place in layout.tasks]


def hybrid() -> Topology:
    """Two cores of two threads (0-1, 2-3) and two of one (4, 5)."""
    rows = [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 3)]
    return from_lscpu(json.dumps({"cpus": [{"cpu": cpu, "socket": 0, "core": core} for cpu, core in rows]}).encode())


def test_cores_that_are_not_alike_are_each_skipped_by_their_own_threads() -> None:
    assert cpus(laid_out(hybrid(), ntasks=4, cpu_bind="cores")) == ["0-1", "2-3", "4", "5"]


def test_an_exact_step_on_unlike_cores_has_a_cpu_for_each_task() -> None:
    layout = laid_out(hybrid(), "4-5", ntasks=2, exact=True)
    assert cpus(layout) == ["4", "5"]


def test_a_node_is_whole_when_the_step_has_all_that_the_service_may_use() -> None:
    machine = replace(TWO, usable=mask_of_list("0-3,8-11"))
    assert cpus(laid_out(machine, ntasks=2, cpu_bind="map_ldom:0")) == ["0-3,8-11"] * 2
    with pytest.raises(NoLayout, match=r"Entire node must be allocated for map_ldom; allocated CPUs are 0,8"):
        laid_out(machine, "0", ntasks=1, cpu_bind="map_ldom:0")


def test_a_task_that_asks_for_whole_numa_nodes_stays_in_the_steps_cpus() -> None:
    layout = laid_out(TWO, ntasks=2, exact=True, cpu_bind="ldoms")
    assert cpus(layout) == ["0,8", "0,8"]
    assert layout.environment["SLURM_CPU_BIND_LIST"] == "0x0F0F,0x0F0F"


@pytest.mark.parametrize("listed", ["map_cpu:0,16", "map_cpu:0,0*3,4", "mask_cpu:0x1,0x10000"])
def test_an_entry_that_no_task_uses_must_be_there_all_the_same(listed: str) -> None:
    with pytest.raises(NoLayout, match="allocated CPUs are: 0x0303"):
        laid_out(TWO, "0-1", ntasks=1, cpu_bind=listed)


def test_one_thread_binds_as_asked_otherwise_but_to_one_thread_of_a_core() -> None:
    assert cpus(laid_out(TWO, ntasks=2, cpu_bind="one_thread,threads")) == ["0", "4"]
    # More tasks than cores: they go round, where without it each has a thread of its own.
    given = cpus(laid_out(TWO, ntasks=16, cpu_bind="one_thread,threads"))
    assert sorted(given) == sorted(["0", "1", "2", "3", "4", "5", "6", "7"] * 2)
    hinted = laid_out(TWO, ntasks=8, hint="nomultithread")
    assert cpus(laid_out(TWO, ntasks=8, cpu_bind="threads,one_thread", threads_per_core=1)) == cpus(hinted)


@pytest.mark.parametrize("listed", ["map_cpu:16", "map_cpu:0,4", "mask_cpu:0x10", "mask_cpu:0x1,0xf0"])
def test_a_list_outside_of_the_step_is_refused_with_the_mask_it_has(listed: str) -> None:
    with pytest.raises(NoLayout, match="allocated CPUs are: 0x0303"):
        laid_out(TWO, "0-1", ntasks=2, cpu_bind=listed)


def test_more_tasks_than_cpus_are_refused_unless_they_overcommit() -> None:
    with pytest.raises(NoLayout, match="More processors requested than permitted"):
        laid_out(TWO, ntasks=17)
    assert cpus(laid_out(TWO, ntasks=17, overcommit=True)) == ["0-15"] * 17


def test_the_configurations_binding_holds_where_the_user_asked_for_none() -> None:
    settings = Settings(task_plugin_param=("autobind=cores",))
    assert cpus(laid_out(TWO, settings=settings, ntasks=3)) == ["0,8", "4,12", "1,9"]
    assert cpus(laid_out(TWO, settings=settings, ntasks=3, cpu_bind="threads")) == ["0", "4", "8"]


def test_sockets_may_be_numa_nodes_for_binding_but_not_for_the_choice_of_cores() -> None:
    machine = from_spec("2s:4c:1t:4n")
    settings = Settings(slurmd_parameters=("numa_node_as_socket",))
    layout = laid_out(machine, settings=settings, ntasks=4, cpus_per_task=1)
    assert layout.nodes[0].cpus == mask_of_list("0,1,4,5")
    assert cpus(layout) == ["0", "4", "1", "5"]


def test_the_reason_of_a_mask_names_the_hardware() -> None:
    layout = laid_out(TWO, ntasks=8, cpu_bind="cores")
    assert [place.why for place in layout.tasks[:2]] == [
        "bound to cores, as asked, sockets in turn: core 0 of socket 0",
        "bound to cores, as asked, sockets in turn: core 4 of socket 1",
    ]
    threads = laid_out(TWO, ntasks=16).tasks[0]
    assert threads.why.endswith("a part of core 0 of socket 0")


def test_a_numa_node_that_there_is_not_is_refused() -> None:
    with pytest.raises(NoLayout, match="NUMA node 2 does not exist; cannot bind local task 0"):
        laid_out(TWO, ntasks=2, mem_bind="map_mem:2")


def test_a_step_names_nodes_of_its_job_only() -> None:
    machines = (TWO,) * 3
    allocation = Allocation.of_masks(machines, dict.fromkeys(range(3), TWO.usable), ("a", "b", "c"))

    def nodes(**given: object) -> list[int]:
        layout = step.place(machines, allocation, request_of(given, {}), SETTINGS)
        return [place.node for place in layout.tasks]

    assert nodes(ntasks=4, nodes="2", nodelist="c") == [0, 0, 2, 2]
    assert nodes(ntasks=2, nodes="2", exclude="a", distribution="cyclic") == [1, 2]
    assert nodes(ntasks=1, nodes="1", relative=1) == [1]
    with pytest.raises(NoLayout, match="d"):
        nodes(ntasks=1, nodelist="d")
    with pytest.raises(NoLayout, match="Only allocated 3 nodes asked for 4"):
        nodes(ntasks=4, nodes="4")


def test_blocks_are_packed_and_what_is_dealt_in_turn_is_not() -> None:
    machines = (TWO,) * 4
    allocation = Allocation.of_masks(machines, dict.fromkeys(range(4), TWO.usable))

    def told(**given: object) -> tuple[str, str]:
        environment = step.place(machines, allocation, request_of(given, {}), SETTINGS).environment
        return environment["SLURM_TASKS_PER_NODE"], environment["SLURM_GTIDS"]

    assert told(ntasks=20, nodes="2", distribution="block,Pack")[0] == "16,4"
    assert told(ntasks=6, nodes="2", distribution="cyclic,Pack") == ("3(x2)", "0,2,4")
    assert told(ntasks=8, nodes="4", distribution="cyclic,Pack") == ("2(x4)", "0,4")
    # As measured: without -N, Pack takes as few nodes as there is need of.
    assert told(ntasks=5, cpus_per_task=2, distribution="cyclic,Pack") == ("5", "0,1,2,3,4")


def test_blocks_are_packed_where_the_configuration_says_so_unless_the_step_does_not_want_it() -> None:
    machines = (TWO,) * 2
    allocation = Allocation.of_masks(machines, dict.fromkeys(range(2), TWO.usable))
    packing = Settings(select_type_parameters=("cr_core", "cr_pack_nodes"))
    for settings, words, counts in (
        (SETTINGS, {}, "9(x2)"),
        (packing, {}, "16,2"),
        (packing, {"distribution": "block,NoPack"}, "9(x2)"),
        (packing, {"distribution": "cyclic"}, "9(x2)"),
    ):
        layout = step.place(machines, allocation, request_of({"ntasks": 18, "nodes": "2", **words}, {}), settings)
        assert layout.environment["SLURM_TASKS_PER_NODE"] == counts


def test_tasks_follow_the_host_file_one_by_one() -> None:
    machines = (TWO,) * 2
    allocation = Allocation.of_masks(machines, {0: TWO.usable, 1: TWO.usable}, ("a", "b"))
    request = request_of({"distribution": "arbitrary", "ntasks": 3}, {}, "b\na\nb\n")
    layout = step.place(machines, allocation, request, SETTINGS)
    assert [place.node for place in layout.tasks] == [1, 0, 1]
    assert layout.environment["SLURM_TASKS_PER_NODE"] == "1,2"
    assert layout.environment["SLURM_GTIDS"] == "0,2"
    with pytest.raises(NoLayout, match="4 tasks but hostlist specified 3 nodes"):
        step.place(machines, allocation, replace(request, ntasks=4), SETTINGS)


def test_spreading_evenly_passes_nodes_by_that_are_full_until_all_are() -> None:
    assert spread.evenly([1, 4, 2], 6) == [1, 3, 2]
    assert spread.evenly([1, 1], 5) == [3, 2]


def test_packing_fills_a_node_before_the_next() -> None:
    assert spread.packed([4, 4, 4], 7) == [4, 2, 1]
    assert spread.packed([1, 1], 5) == [3, 2]


def test_planes_begin_with_one_task_everywhere() -> None:
    assert spread.planes([16] * 4, 9, 5) == [5, 2, 1, 1]
    assert spread.in_turn([3, 2], 2) == [[0, 1, 4], [2, 3]]


def test_counts_of_tasks_are_told_in_runs() -> None:
    assert spread.tasks_per_node([3, 2, 2, 2, 3]) == "3,2(x3),3"


@pytest.mark.parametrize(
    ("nodes", "ntasks", "size", "measured"),
    [
        (2, 4, 2, [3, 1]), (2, 8, 3, [4, 4]), (2, 11, 4, [6, 5]), (2, 5, 1, [3, 2]), (3, 7, 2, [3, 3, 1]),
        (3, 8, 4, [5, 2, 1]), (3, 11, 3, [4, 4, 3]), (3, 11, 4, [5, 5, 1]),
    ],
)  # fmt: skip
def test_planes_beyond_a_nodes_cpus_are_whole(nodes: int, ntasks: int, size: int, measured: list[int]) -> None:
    """As srun -O has dealt them out on nodes of one CPU."""
    assert spread.planes([1] * nodes, ntasks, size) == measured
