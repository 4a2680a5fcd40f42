"""This node's configuration as the rules read it, and what a step of `nodectl run` gets on it."""

from __future__ import annotations

import pytest

from nodectl.placement.binding import node
from nodectl.placement.binding.job import check_node
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.options import request_of
from nodectl.placement.machine.spec import from_spec
from nodectl.service.config_file.reader import build

MACHINE = from_spec("2s:2c:2t:2n:i")  # cores 0-3 are CPUs (0,4) (1,5) (2,6) (3,7)
ALL = 0xFF


def masks(config: dict[str, object], **given: object) -> list[int]:
    settings = node.settings_of(build(config), MACHINE)
    layout = node.lay_out(MACHINE, node.whole(MACHINE, settings), request_of(given, {}), settings, "bed")
    return [task.mask for task in layout.tasks]


def test_cpus_kept_for_the_system_are_no_jobs() -> None:
    def whole(**config: object) -> int:
        return node.whole(MACHINE, node.settings_of(build(config), MACHINE))

    assert whole() == ALL
    assert whole(core_spec_count=1) == ALL & ~0x88
    assert whole(cpu_spec_list="0") == ALL & ~0x11  # abstract numbers, whole cores
    assert whole(cpu_spec_list="2-3,4096") == ALL & ~0x22


def test_the_configuration_decides_how_sockets_are_filled() -> None:
    block: dict[str, object] = {"select_type_parameters": ["CR_Core_Memory", "CR_CORE_DEFAULT_DIST_BLOCK"]}
    assert masks({}, ntasks=2, cpu_bind="cores") == [0x11, 0x44]
    assert masks(block, ntasks=2, cpu_bind="cores") == [0x11, 0x22]


def test_more_tasks_than_cpus_come_in_groups_that_fit() -> None:
    settings = node.settings_of(build({}), MACHINE)
    request = request_of({"ntasks": 10, "cpu_bind": "threads"}, {})
    layout = node.lay_out(MACHINE, ALL, request, settings, "bed")
    given = [task.mask for task in layout.tasks]
    assert given[8:] == given[:2]
    assert sorted(given[:8]) == [1 << cpu for cpu in range(8)]
    assert [task.task for task in layout.tasks] == [task.local for task in layout.tasks] == list(range(10))
    listed = ",".join(f"0x{mask:02X}" for mask in given)
    assert layout.environment["SLURM_CPU_BIND"] == f"quiet,mask_cpu:{listed}"
    assert layout.environment["SLURM_NTASKS"] == layout.environment["SLURM_TASKS_PER_NODE"] == "10"


def test_more_tasks_than_cpus_share_them_all_or_take_a_list_in_turn() -> None:
    assert masks({}, ntasks=9) == [ALL] * 9
    assert masks({}, ntasks=9, cpu_bind="map_cpu:3,1") == [8, 2, 8, 2, 8, 2, 8, 2, 8]


def test_variables_say_what_the_user_asked_for_and_nothing_else() -> None:
    def told(**given: object) -> dict[str, str]:
        settings = node.settings_of(build({}), MACHINE)
        return node.lay_out(MACHINE, ALL, request_of(given, {}), settings, "bed").environment

    names = {"SLURM_OVERCOMMIT", "SLURM_NTASKS_PER_NODE"}
    assert not names & told(ntasks=2).keys()
    assert not names & told(ntasks=9).keys()  # share CPUs unasked
    assert told(ntasks=2, overcommit=True)["SLURM_OVERCOMMIT"] == "1"
    assert told(ntasks=9, overcommit=True)["SLURM_OVERCOMMIT"] == "1"
    assert told(ntasks=2, ntasks_per_node="2")["SLURM_NTASKS_PER_NODE"] == "2"


def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(NoLayout, match="allocated CPUs are: 0xFF"):
        masks({}, ntasks=1, cpu_bind="map_cpu:8")
    with pytest.raises(NoLayout, match="asked for 2"):
        masks({}, ntasks=2, nodes="2")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"mincpus": 9}, "configuration is not available"),
        ({"mincpus": 99999}, "configuration is not available"),
        ({"sockets_per_node": 3}, "configuration is not available"),
        ({"cores_per_socket": 3}, "configuration is not available"),
        ({"extra_node_info": "2:3"}, "configuration is not available"),
        ({"exclude": "nosuch"}, "Invalid node name specified: nosuch"),
        ({"exclude": "bed,nosuch"}, "Invalid node name specified: nosuch"),
        ({"exclude": "bed"}, "configuration is not available"),
        ({"nodelist": "nosuch"}, "Invalid node name specified: nosuch"),
        ({"nodelist": "bed", "exclude": "bed"}, "configuration is not available"),
    ],
)
def test_a_node_that_is_not_there_is_no_jobs(given: dict[str, object], reason: str) -> None:
    settings = node.settings_of(build({}), MACHINE)
    with pytest.raises(NoLayout, match=reason):
        check_node(MACHINE, request_of(given, {}), settings, "bed")


@pytest.mark.parametrize(
    "given",
    [
        {"mincpus": 8, "ntasks": 100, "sockets_per_node": 2, "cores_per_socket": 2},
        {"extra_node_info": "*:*:*"},
        {"hint": "compute_bound"},
        {"hint": "memory_bound", "nodelist": "bed"},
        {"threads_per_core": 1, "mincpus": 8},
    ],
)
def test_what_a_node_has_may_be_asked_for(given: dict[str, object]) -> None:
    check_node(MACHINE, request_of(given, {}), node.settings_of(build({}), MACHINE), "bed")


def test_configured_boards_hold_sockets_in_equal_numbers() -> None:
    four = from_spec("4s:2c:1t")
    assert [board.mask for board in node.with_boards(four, 2).boards] == [0x0F, 0xF0]
    assert node.with_boards(four, 3) == node.with_boards(four, 0) == four
