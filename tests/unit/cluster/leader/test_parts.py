"""What each node is told of a step over several nodes."""

from __future__ import annotations

import pytest

from nodectl.cluster.leader.parts import of_job, parts_of
from nodectl.model.cpu_list import mask_of, parse_cpulist
from nodectl.placement.binding import spread
from nodectl.placement.binding.layout import Layout
from nodectl.placement.binding.options import request_of
from nodectl.placement.binding.request import Settings
from nodectl.placement.binding.step import place
from nodectl.placement.machine.spec import from_spec
from nodectl.selection.planning import allocate
from oracle.cases import Case, cases, played

NODE = from_spec("2s:4c:2t:2n")
SETTINGS = Settings()
NAMES = ("n1", "n2", "n3", "n4")


def laid_out(**given: object) -> Layout:
    request = request_of(given, {})
    allocation = allocate((NODE,) * 4, request, (), SETTINGS, NAMES)
    return place((NODE,) * 4, allocation, request, SETTINGS)


def test_tasks_in_turn_have_the_numbers_of_the_whole_step_on_each_node() -> None:
    whole, own = parts_of(laid_out(nodes="3", ntasks="5", distribution="cyclic"), NAMES, (4711, 2))
    assert whole | {"environment": {}} == {
        "job": 4711, "step": 2, "nodes": "n[1-3]", "nnodes": 3, "ntasks": 5, "tasks_per_node": "2(x2),1",
        "environment": {},
    }  # fmt: skip
    told = [(part["node"], part["nodeid"], part["tasks"]) for part in own.values()]
    assert told == [("n1", 0, "0,3"), ("n2", 1, "1,4"), ("n3", 2, "2")]


def test_nodes_without_a_task_are_no_part_of_the_step() -> None:
    whole, own = parts_of(laid_out(nodes="2", ntasks="2", nodelist="n4"), NAMES, (1, 0))
    assert whole["nnodes"] == len(own) == 2
    assert "n4" in {part["node"] for part in own.values()}
    for nodeid, part in enumerate(own.values()):
        assert part["nodeid"] == nodeid


def test_each_node_tells_its_own_binding_and_all_tell_what_is_the_steps() -> None:
    layout = laid_out(nodes="2", ntasks="3", cpus_per_task="2", cpu_bind="verbose,cores")
    whole, own = parts_of(layout, NAMES, (1, 0), environment={"SLURM_JOB_PARTITION": "p"})
    variables = whole["environment"]
    assert isinstance(variables, dict)
    assert variables["SLURM_CPU_BIND_VERBOSE"] == "verbose"
    assert variables["SLURM_JOB_PARTITION"] == "p"
    assert not {"SLURM_CPU_BIND", "SLURM_GTIDS", "SLURM_CPUS_ON_NODE"} & variables.keys()
    assert [part["bind"] for part in own.values()] == [["mask_cpu:", "0x0003,0x000C"], ["mask_cpu:", "0x0003"]]
    assert [part["masks"] for part in own.values()] == [["3", "c"], ["3"]]


def test_memory_policies_are_told_where_there_are_any() -> None:
    _, without = parts_of(laid_out(nodes="2", ntasks="2"), NAMES, (1, 0))
    assert not any("mem_policies" in part for part in without.values())
    _, with_some = parts_of(laid_out(nodes="2", ntasks="2", mem_bind="local"), NAMES, (1, 0))
    assert all(part["mem_policies"] == [[2, "0"]] for part in with_some.values())


def test_a_jobs_nodes_are_told_as_slurm_writes_them() -> None:
    assert of_job({"n1": 16, "n2": 16, "n3": 4}) == {
        "SLURM_NODELIST": "n[1-3]", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3",
        "SLURM_JOB_CPUS_PER_NODE": "16(x2),4",
    }  # fmt: skip
    assert of_job({}) == {}


@pytest.mark.parametrize("mode", ["step", "job", "alloc"])
def test_every_placement_measured_on_several_nodes_comes_out_of_its_parts(mode: str) -> None:
    tried = [case for case in cases("multi4-2x4x2") if case.row["mode"] == mode]
    assert tried
    for case in tried:
        layout = played(case)
        if isinstance(layout, Layout):
            _compare(case, layout)


def _compare(case: Case, layout: Layout) -> None:
    whole, own = parts_of(layout, case.machine.names, (1, 0))
    parts = [{**whole, **part} for part in own.values()]
    masks: dict[int, int] = {}
    for part in parts:
        assert isinstance(part["masks"], list)
        numbers = sorted(parse_cpulist(str(part["tasks"])))
        step = int(str(part["cpus"]), 16)
        masks |= {task: int(mask, 16) or step for task, mask in zip(numbers, part["masks"], strict=True)}
    assert masks == {place.task: place.cpus for place in layout.tasks}, str(case)
    assert mask_of(masks) == (1 << len(layout.tasks)) - 1, f"{case}: every number once"
    counts = [len(parse_cpulist(str(part["tasks"]))) for part in parts]
    assert spread.tasks_per_node(counts) == whole["tasks_per_node"]
    if told := case.row.get("env", {}).get("TASKS_PER_NODE"):
        assert told == whole["tasks_per_node"] or "0" in told, str(case)
    first = next(part for part in parts if 0 in parse_cpulist(str(part["tasks"])))
    if gtids := case.row.get("env", {}).get("GTIDS"):
        assert [int(task) for task in gtids.split(",")] == sorted(parse_cpulist(str(first["tasks"]))), str(case)
