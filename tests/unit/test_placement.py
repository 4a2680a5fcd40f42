from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.cpu_bind import CpuBind, Unit, parse
from nodectl.cpu_list import cpus_of, format_cpulist, mask_of, parse_cpulist
from nodectl.placement import NoFit, Placement, Request, bind
from unit.machines import Machine, topology_of

SMT = Machine("2s:4c:2t")
SMT_LAST = Machine("2s:4c:2t", "last")
PLAIN = Machine("1s:6c:1t")
WIDE = Machine("1s:4c:4t")
MACHINES = (SMT, SMT_LAST, PLAIN, WIDE, Machine("4s:2c:2t", "last"), Machine("3s:3c:1t"))


def place(machine: Machine, allocation: str, ntasks: int, cpus: int = 1, text: str = "quiet") -> Placement:
    request = Request(ntasks, cpus, parse(text))
    return bind(topology_of(machine), mask_of(parse_cpulist(allocation)), request)


def lists(placement: Placement) -> list[str]:
    return [format_cpulist(cpus_of(mask)) for mask in placement.masks]


BY_CORE = ["0-1", "8-9", "2-3", "10-11", "4-5", "12-13", "6-7", "14-15"]
BY_THREAD = ["0", "8", "1", "9", "2", "10", "3", "11", "4", "12", "5", "13", "6", "14", "7", "15"]

# As Slurm 22.05.8 placed them in steps on such machines.
RECORDED = [
    (SMT, "0-15", 2, 1, "sockets", ["0-7", "8-15"]),
    (SMT, "0-15", 2, 1, "cores", ["0-1", "8-9"]),
    (SMT, "0-15", 8, 1, "cores", BY_CORE),
    (SMT, "0-15", 9, 1, "cores", [*BY_CORE, "0-1"]),
    (SMT, "0-15", 9, 1, "threads", BY_THREAD[:9]),
    (SMT, "0-3,8-9", 2, 2, "threads", ["0-1", "8-9"]),
    (SMT, "0-1", 2, 1, "sockets", ["0-1", "0-1"]),
    (SMT, "0-15", 2, 1, "quiet", ["0-7", "8-15"]),
    (SMT, "0-15", 8, 1, "quiet", BY_CORE),
    (SMT, "0-15", 8, 2, "quiet", BY_CORE),
    (SMT, "0-15", 16, 1, "quiet", BY_THREAD),
    (SMT, "0-1", 2, 1, "quiet", ["0", "1"]),
    (SMT, "0-3,8-11", 2, 3, "quiet", ["0-3,8-11"] * 2),
    (SMT, "0-15", 17, 1, "quiet", ["0-15"] * 17),
    (SMT, "0-15", 4, 1, "map_cpu:0*2,8", ["0", "0", "8", "0"]),
    (SMT, "0-15", 4, 1, "mask_cpu:0x1*2,0x6", ["0", "0", "1-2", "0"]),
    (SMT, "0-15", 1, 1, "mask_cpu:0x0", ["0-15"]),
    (SMT, "0-15", 4, 1, "map_cpu:15", ["15"] * 4),
    (SMT_LAST, "0-15", 2, 1, "cores", ["0,8", "4,12"]),
    (SMT_LAST, "0-15", 4, 1, "cores", ["0,8", "4,12", "1,9", "5,13"]),
    (SMT_LAST, "0,4,8,12", 3, 1, "cores", ["0,8", "4,12", "4,12"]),
    (PLAIN, "0-5", 6, 1, "quiet", ["0", "1", "2", "3", "4", "5"]),
    (PLAIN, "0-5", 3, 1, "cores", ["0", "1", "2"]),
    (PLAIN, "0-5", 4, 1, "quiet", ["0-5"] * 4),
    (PLAIN, "0-5", 2, 3, "quiet", ["0-2", "3-5"]),
    (PLAIN, "0-5", 3, 1, "sockets", ["0-5"] * 3),
    (PLAIN, "0-4", 5, 1, "none", ["0-4"] * 5),
    (PLAIN, "0-5", 6, 1, "map_cpu:4,4,1", ["4", "4", "1"] * 2),
]


@pytest.mark.parametrize(("machine", "allocation", "ntasks", "cpus", "text", "expected"), RECORDED)
def test_tasks_go_where_slurm_puts_them(
    *, machine: Machine, allocation: str, ntasks: int, cpus: int, text: str, expected: list[str]
) -> None:
    assert lists(place(machine, allocation, ntasks, cpus, text)) == expected


def test_none_leaves_tasks_free_where_the_whole_machine_is_theirs() -> None:
    assert place(SMT, "0-15", 2, text="none").masks == (0, 0)


def test_none_is_free_within_what_the_service_may_use() -> None:
    topology = topology_of(SMT, frozenset(range(4)))
    assert bind(topology, 0b1111, Request(1, 1, CpuBind(Unit.NONE))).masks == (0,)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("map_cpu:0,4", "--cpu-bind=map_cpu: CPU 4 is not allocated; allocated CPUs are: 0x000F"),
        ("map_cpu:16", "--cpu-bind=map_cpu: CPU 16 is not on this machine; allocated CPUs are: 0x"),
        ("mask_cpu:0x1,0x30", "--cpu-bind=mask_cpu: CPU 4 is not allocated; allocated CPUs are: 0"),
        ("map_cpu:65535", "--cpu-bind=map_cpu: CPU 65535 is not on this machine"),
    ],
)
def test_list_outside_of_the_allocation_is_refused_even_where_no_task_gets_that_entry(text: str, reason: str) -> None:
    with pytest.raises(NoFit) as refusal:
        place(SMT, "0-3", 1, text=text)
    assert refusal.value.reason.startswith(reason)


def test_task_larger_than_the_allocation_is_refused_with_the_mask() -> None:
    with pytest.raises(NoFit, match=r"^5 CPUs a task of the 4 in the allocation \(mask 0x000F\)$"):
        place(SMT, "0-3", 1, 5)


def test_allocation_without_a_usable_cpu_is_refused() -> None:
    with pytest.raises(NoFit, match="holds no CPU"):
        bind(topology_of(SMT, frozenset({0})), 0b10, Request(1))


def test_offline_cpus_are_no_part_of_an_allocation() -> None:
    machine = Machine("1s:4c:1t", offline=(1,))
    assert lists(place(machine, "0-3", 3)) == ["0", "2", "3"]


def test_core_with_an_offline_thread_is_still_whole() -> None:
    assert lists(place(Machine("1s:2c:2t", offline=(3,)), "0-2", 2)) == ["0-1", "2"]


def test_more_tasks_than_cpus_share_in_turn() -> None:
    assert lists(place(PLAIN, "0-1", 5, text="threads")) == ["0", "1", "0", "1", "0"]


def test_tasks_get_smaller_before_they_share() -> None:
    assert lists(place(PLAIN, "0-5", 3, 4, "threads")) == ["0-1", "2-3", "4-5"]


def test_rule_says_which_one_was_used() -> None:
    assert place(SMT, "0-15", 8).rule == "bound to cores: 8 tasks of 1 CPU for 8 cores"
    assert place(SMT, "0-15", 8).unit is Unit.CORES
    assert place(SMT, "0-15", 3).unit is Unit.AUTO
    assert "whole allocation" in place(SMT, "0-15", 3).rule
    assert place(SMT, "0-15", 1, text="threads").rule == "bound to threads, as asked"


@pytest.mark.parametrize(("ntasks", "cpus"), [(0, 1), (1, 0)])
def test_request_for_nothing_cannot_be_made(ntasks: int, cpus: int) -> None:
    with pytest.raises(ValueError, match="below 1"):
        Request(ntasks, cpus)


@st.composite
def steps(draw: st.DrawFn) -> tuple[Machine, int, Request]:
    machine = draw(st.sampled_from(MACHINES))
    width = topology_of(machine).width
    allocation = draw(st.integers(1, (1 << width) - 1))
    unit = draw(st.sampled_from((Unit.AUTO, Unit.THREADS, Unit.CORES, Unit.SOCKETS)))
    cpus = draw(st.integers(1, min(8, allocation.bit_count())))
    return machine, allocation, Request(draw(st.integers(1, 40)), cpus, CpuBind(unit))


@given(steps())
@settings(max_examples=300, deadline=None)
def test_bound_tasks_have_cpus_and_only_allocated_ones(step: tuple[Machine, int, Request]) -> None:
    machine, allocation, request = step
    placement = bind(topology_of(machine), allocation, request)
    assert len(placement.masks) == request.ntasks
    for mask in placement.masks:
        assert mask
        assert not mask & ~allocation
    assert bind(topology_of(machine), allocation, request) == placement


@given(steps())
@settings(max_examples=300, deadline=None)
def test_thread_is_given_once_and_in_the_number_asked_unless_oversubscribed(
    step: tuple[Machine, int, Request],
) -> None:
    machine, allocation, request = step
    topology = topology_of(machine)
    request = Request(request.ntasks, request.cpus_per_task, CpuBind(Unit.THREADS))
    masks = bind(topology, allocation, request).masks
    if request.ntasks * request.cpus_per_task > allocation.bit_count():
        return
    assert all(mask.bit_count() == request.cpus_per_task for mask in masks)
    assert sum(mask.bit_count() for mask in masks) == mask_of_all(masks).bit_count()


def mask_of_all(masks: tuple[int, ...]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


@given(steps())
@settings(max_examples=200, deadline=None)
def test_masks_are_whole_units_of_the_allocation(step: tuple[Machine, int, Request]) -> None:
    machine, allocation, request = step
    topology = topology_of(machine)
    placement = bind(topology, allocation, request)
    parts = {
        Unit.CORES: [core.mask for core in topology.cores],
        Unit.SOCKETS: [socket.mask for socket in topology.sockets],
    }.get(placement.unit, [])
    for mask in placement.masks:
        assert all(mask & part in (0, allocation & part) for part in parts)


@given(st.sampled_from(MACHINES), st.integers(1, 40))
def test_tasks_no_more_than_whole_cores_have_one_each(machine: Machine, ntasks: int) -> None:
    topology = topology_of(machine)
    ntasks = min(ntasks, len(topology.cores))
    masks = bind(topology, topology.usable, Request(ntasks, 1, CpuBind(Unit.CORES))).masks
    assert len(set(masks)) == ntasks
