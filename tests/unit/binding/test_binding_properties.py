"""What holds of every layout, on any machine up to 8 sockets of 64 cores of 4 threads, for any request."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nodectl.placement.binding.allocation import Allocation
from nodectl.placement.binding.layout import Layout
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.options import request_of
from nodectl.placement.binding.request import LayoutRequest, Settings
from nodectl.placement.binding.step import place
from nodectl.placement.machine.spec import from_spec
from nodectl.placement.machine.topology import Topology
from nodectl.selection.planning import allocate

SETTINGS = Settings()
EXAMPLES = 150


@functools.lru_cache(maxsize=32)
def machine_of(spec: str) -> Topology:
    return from_spec(spec)


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    sockets = draw(st.integers(1, 8))
    cores = draw(st.sampled_from((1, 2, 3, 4, 6, 8, 16, 24, 64)))
    threads = draw(st.integers(1, 4))
    nodes = draw(st.sampled_from((1, sockets)))
    last = draw(st.sampled_from(("", ":i")))
    return machine_of(f"{sockets}s:{cores}c:{threads}t:{nodes}n{last}")


@st.composite
def options(draw: st.DrawFn, cpus: int) -> dict[str, object]:
    """Options that srun takes together, mostly such as can be met."""
    given: dict[str, object] = {"ntasks": draw(st.integers(1, min(cpus, 300)))}
    maybe: dict[str, st.SearchStrategy[object]] = {
        "cpus_per_task": st.integers(1, 8),
        "distribution": st.sampled_from(("block", "cyclic", "block:block", "*:cyclic:block", "*:fcyclic", "plane=3")),
        "cpu_bind": st.sampled_from(("threads", "cores", "sockets", "ldoms", "none", "v,cores", "map_cpu:0,1", "rank")),
        "mem_bind": st.sampled_from(("local", "rank", "map_mem:0", "prefer,mask_mem:0x1")),
        "hint": st.sampled_from(("compute_bound", "memory_bound", "multithread", "nomultithread")),
        "threads_per_core": st.integers(1, 4),
        "ntasks_per_core": st.integers(1, 4),
        "ntasks_per_socket": st.integers(1, 16),
        "extra_node_info": st.sampled_from(("1", "2:2", "*:*:1", "1:2:2")),
        "exact": st.just(True),
        "overcommit": st.just(True),
        "exclusive": st.just(True),
        "overlap": st.just(True),
    }
    for name in draw(st.sets(st.sampled_from(sorted(maybe)), max_size=4)):
        given[name] = draw(maybe[name])
    return given


@st.composite
def held(draw: st.DrawFn, machine: Topology) -> int:
    """The mask of a job: some whole cores."""
    chosen = draw(st.sets(st.integers(0, len(machine.cores) - 1), min_size=1, max_size=64))
    return machine.online if draw(st.booleans()) else sum(machine.cores[core].mask for core in chosen)


@dataclass
class Laid:
    """A layout with what it was made of."""

    machine: Topology
    request: LayoutRequest
    cpus: int
    layout: Layout


def lay_out(machine: Topology, request: LayoutRequest, cpus: int) -> Laid:
    allocation = Allocation.of_masks((machine,), {0: cpus})
    return Laid(machine, request, cpus, place((machine,), allocation, request, SETTINGS))


@st.composite
def laid(draw: st.DrawFn) -> Laid:
    machine = draw(machines())
    cpus = draw(held(machine))
    try:
        return lay_out(machine, request_of(draw(options(cpus.bit_count())), {}), cpus)
    except NoLayout:
        assume(False)  # the layouts that there are
        raise


@settings(max_examples=EXAMPLES, deadline=None)
@given(laid())
def test_tasks_stay_inside_and_none_is_lost(one: Laid) -> None:
    (share,) = one.layout.nodes
    assert share.cpus
    assert share.cpus & ~one.cpus == 0
    assert [task.task for task in one.layout.tasks] == list(range(one.request.ntasks or 1))
    assert [task.local for task in one.layout.tasks] == list(range(share.ntasks))
    for task in one.layout.tasks:
        assert task.cpus
        assert task.cpus & ~share.cpus == 0
        assert task.mask in (0, task.cpus)
        assert task.mems
        assert task.why


@settings(max_examples=EXAMPLES, deadline=None)
@given(laid())
def test_the_same_question_has_the_same_answer(one: Laid) -> None:
    assert lay_out(one.machine, one.request, one.cpus).layout == one.layout


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_no_cpu_is_given_twice_to_tasks_bound_to_threads(data: st.DataObject) -> None:
    machine = data.draw(machines())
    cpus = data.draw(held(machine))
    size = data.draw(st.integers(1, min(8, cpus.bit_count())))
    ntasks = data.draw(st.integers(1, min(cpus.bit_count() // size, 300)))
    way = data.draw(st.sampled_from(("block:block", "block:cyclic", "cyclic:fcyclic")))
    given = {"ntasks": ntasks, "cpus_per_task": size, "cpu_bind": "threads", "distribution": way}
    taken = 0
    for task in lay_out(machine, request_of(given, {}), cpus).layout.tasks:
        assert task.mask.bit_count() == size
        assert task.mask & taken == 0
        taken |= task.mask


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_no_core_is_given_twice_to_tasks_bound_to_cores_that_suffice(data: st.DataObject) -> None:
    machine = data.draw(machines())
    cpus = data.draw(held(machine))
    cores = [core.mask for core in machine.cores if core.mask & cpus]
    ntasks = data.draw(st.integers(1, min(len(cores), 300)))
    layout = lay_out(machine, request_of({"ntasks": ntasks, "cpu_bind": "cores"}, {}), cpus).layout
    assert sorted(task.mask for task in layout.tasks) == sorted(set(cores) & {task.mask for task in layout.tasks})


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_a_job_gets_whole_cores_that_nobody_has_and_enough_of_them(data: st.DataObject) -> None:
    machine = data.draw(machines())
    busy = data.draw(st.just(0) | held(machine))
    request = request_of(data.draw(options(machine.online.bit_count())), {})
    try:
        allocation = allocate((machine,), request, (busy,), SETTINGS)
        layout = place((machine,), allocation, request, SETTINGS)
    except NoLayout:
        return
    mine = allocation.nodes[0].cpus
    assert mine
    assert mine & busy == 0
    assert all(core.mask & mine in (0, core.mask) for core in machine.cores)
    need = (request.ntasks or 1) * (request.cpus_per_task or 1)
    assert request.overcommit or mine.bit_count() >= need
    assert all(task.cpus & ~mine == 0 for task in layout.tasks)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_a_map_is_taken_as_it_is_or_refused(data: st.DataObject) -> None:
    machine = data.draw(machines())
    cpus = data.draw(held(machine))
    entries = data.draw(st.lists(st.integers(0, machine.online.bit_length()), min_size=1, max_size=6))
    given = {"ntasks": len(entries), "cpu_bind": "map_cpu:" + ",".join(map(str, entries)), "overcommit": True}
    request = request_of(given, {})
    if any(not cpus >> entry & 1 for entry in entries):
        with pytest.raises(NoLayout, match="allocated CPUs are: 0x"):
            lay_out(machine, request, cpus)
    else:
        layout = lay_out(machine, request, cpus).layout
        assert [task.mask for task in layout.tasks] == [1 << entry for entry in entries]
