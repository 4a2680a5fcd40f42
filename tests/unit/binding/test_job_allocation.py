"""The nodes and cores of a job where no measurement tells: busy machines, cores for the system, unlike nodes."""

from __future__ import annotations

import pytest

from nodectl.model.cpu_list import cpus_of, format_cpulist, mask_of_list
from nodectl.placement.binding.job import specialised
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.options import request_of
from nodectl.placement.binding.request import Settings
from nodectl.placement.machine.spec import from_spec
from nodectl.selection.planning import allocate

TWO = from_spec("2s:4c:2t:2n")
SMALL = from_spec("1s:2c:2t")


def held(
    *words: str, machines: object = (TWO,), busy: tuple[str, ...] = (), settings: Settings | None = None
) -> list[str]:
    given = {name: value or True for name, _, value in (word.partition("=") for word in words)}
    masks = [mask_of_list(text) if text else 0 for text in busy]
    job = allocate(machines, request_of(given, {}), masks, settings or Settings())  # type: ignore[arg-type]
    return [f"{grant.name}:{format_cpulist(cpus_of(grant.cpus))}" for grant in job.nodes]


def test_a_core_is_taken_where_one_of_its_threads_is() -> None:
    assert held("ntasks=4", busy=("1,8",)) == ["n1:2-3,10-11"]


def test_a_job_that_would_fit_on_the_idle_machine_is_told_that_it_is_busy() -> None:
    with pytest.raises(NoLayout, match="busy"):
        held("ntasks=4", busy=("0-13",))
    with pytest.raises(NoLayout, match="not available"):
        held("ntasks=17", busy=("0-13",))


def test_an_exclusive_job_has_every_core_of_a_node_that_nobody_is_on() -> None:
    assert held("ntasks=1", "exclusive") == ["n1:0-15"]
    assert held("ntasks=1", "exclusive", machines=(TWO, TWO), busy=("0", "")) == ["n2:0-15"]
    with pytest.raises(NoLayout, match="busy"):
        held("ntasks=1", "exclusive", busy=("0",))


def test_block_takes_the_fullest_socket_that_still_has_room() -> None:
    assert held("ntasks=4", "distribution=block:block", busy=("8-11",)) == ["n1:12-15"]
    assert held("ntasks=6", "distribution=block:block", busy=("8-11",)) == ["n1:0-5"]


def test_block_takes_one_board_rather_than_parts_of_two() -> None:
    boards = from_spec("4s:2c:2t:4n:2b")
    assert held("ntasks=8", "distribution=block:block", machines=(boards,), busy=("8-9",)) == ["n1:0-7"]


def test_cores_for_the_system_are_the_highest_of_each_socket_in_turn_and_belong_to_no_job() -> None:
    settings = Settings(core_spec_count=3)
    assert format_cpulist(cpus_of(specialised(TWO, settings))) == "6-7,12-15"
    assert held("ntasks=1", "exclusive", settings=settings) == ["n1:0-5,8-11"]
    assert held("ntasks=1", "exclusive", settings=Settings(cpu_spec_list=0b10)) == ["n1:2-15"]


def test_nodes_asked_for_are_in_the_job_and_nodes_excluded_are_not() -> None:
    assert held("ntasks=2", "nodelist=n3,n2", machines=(TWO,) * 3) == ["n2:0-1", "n3:0-1"]
    assert held("ntasks=2", "exclude=n1", machines=(TWO,) * 3) == ["n2:0-1"]
    with pytest.raises(NoLayout, match="Invalid node name specified: n9"):
        held("ntasks=2", "nodelist=n9")


def test_a_job_is_put_on_the_nodes_that_hold_it() -> None:
    assert held("ntasks=16", machines=(SMALL, TWO)) == ["n1:0-3", "n2:0-5,8-13"]
    assert held("ntasks=16", "nodes=1", machines=(SMALL, TWO)) == ["n2:0-15"]


def test_of_a_range_of_nodes_the_most_unless_the_fewest_are_asked_for() -> None:
    assert len(held("ntasks=4", "nodes=2-4", machines=(TWO,) * 5)) == 4
    assert len(held("ntasks=4", "nodes=2-4", "use_min_nodes", machines=(TWO,) * 5)) == 2
    assert len(held("ntasks=4", "nodes=2-4", machines=(TWO,) * 3)) == 3


def test_a_limit_of_tasks_on_a_node_asks_for_nodes_also_where_tasks_share_cpus() -> None:
    assert len(held("ntasks=6", "ntasks_per_node=2", "overcommit", machines=(TWO,) * 4)) == 3


def test_steps_inherit_by_the_variables_that_a_job_has() -> None:
    job = allocate((TWO,), request_of({"ntasks": 4, "cpus_per_task": 2, "distribution": "plane=2"}, {}))
    asked = request_of({}, job.environment)
    assert (asked.ntasks, asked.cpus_per_task, asked.nodes) == (4, None, (1, 1))
    assert asked.distribution is not None
    assert asked.distribution.plane == 2
