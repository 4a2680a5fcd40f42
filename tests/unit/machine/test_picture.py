from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from nodectl.client.render import machine_svg, machine_text
from nodectl.client.render.machine_groups import Box, tree
from nodectl.client.render.occupants import Occupation, job_record, occupation
from nodectl.model.cpu_list import mask_of
from nodectl.placement.machine.pci import PciDevice
from nodectl.placement.machine.spec import from_spec
from nodectl.placement.machine.topology import CoreKind, NumaNode, Topology
from unit.machines import Machine, topology_of

SPACE = "{http://www.w3.org/2000/svg}"
MACHINES = [
    Machine("1s:4c:1t", nodes_per_socket=0, caches=False),
    Machine("2s:4c:2t", "last"),
    Machine("2s:32c:2t", "last", nodes_per_socket=2, l3_per_socket=8),
    Machine("1s:128c:1t"),
    Machine("8s:8c:2t", offline=(3, 90)),
]
LARGE = Machine("4s:128c:2t", "last", nodes_per_socket=4, l3_per_socket=16)
SHOWN = pytest.mark.parametrize("machine", [*MACHINES, LARGE], ids=lambda machine: machine.shape)


def record(job: int, cpus: set[int], *tasks: set[int], step: int = 0, name: str = "solver") -> Mapping[str, Any]:
    return {
        "job": job,
        "step": step,
        "user": "alice",
        "name": name,
        "ntasks": len(tasks),
        "cpus": f"{mask_of(cpus):x}",
        "tasks": [{"task": task, "cpus": f"{mask_of(mask):x}" if mask else ""} for task, mask in enumerate(tasks)],
    }


def outline(group: Box) -> list[Any]:
    """Titles of groups and numbers of cores, in the order and depth in which they stand."""
    return [group.title, *map(outline, group.inside), *(core.number for core in group.cores)]


def page_of(document: str) -> ElementTree.Element:
    return ElementTree.fromstring(document)  # noqa: S314  # our own


def test_groups_stand_in_what_holds_all_of_their_cpus() -> None:
    assert outline(tree(from_spec("2s:2c:2n")))[1:] == [
        ["socket 0", ["NUMA node 0", ["L3", 0, 1]]],
        ["socket 1", ["NUMA node 1", ["L3", 2, 3]]],
    ]
    boards = [["board 0", ["socket 0", ["L3", 0, 1]]], ["board 1", ["socket 1", ["L3", 2, 3]]]]
    assert outline(tree(from_spec("2s:2c:2b")))[1:] == [["NUMA node 0", *boards]]
    nodes = [["NUMA node 0", 0, 1], ["NUMA node 1", 2, 3]]
    assert outline(tree(from_spec("1s:4c:2n")))[1:] == [["socket 0", ["L3", *nodes]]]


def test_group_across_the_border_of_another_is_cut() -> None:
    machine = replace(from_spec("1s:4c"), nodes=(NumaNode(0, 0b0001, 0), NumaNode(1, 0b1110, 0)))
    machine = replace(machine, caches=tuple(replace(cache, mask=0b0011) for cache in machine.caches))
    parts = [["L3", ["NUMA node 0", 0]], ["NUMA node 1", ["L3", 1], 2, 3]]
    assert outline(tree(machine))[1:] == [["socket 0", *parts]]


def labels(occupied: Occupation, topology: Topology) -> list[str]:
    return [occupied.label(cpu) for cpu in topology.machine_of]


def test_cpus_say_their_job_and_the_task_that_is_pinned_there() -> None:
    occupied = occupation(
        [
            record(7, {0, 1, 2}, {0}, {0, 1}),
            record(9, {3, 4}, {3, 4}, {3, 4}),
            record(10, {5}, {5}),
            record(11, {6, 7}, set()),
            record(12, {7}, set()),
        ]
    )
    assert labels(occupied, from_spec("9c")) == ["A0+", "A1", "A", "B", "B", "C0", "D", "#", ""]


def test_cpu_of_several_jobs_shows_the_one_that_is_pinned_there() -> None:
    occupied = occupation([record(7, {0, 1, 2}, {0}, {2}), record(9, {0, 1, 2}, {1}, {2})])
    assert labels(occupied, from_spec("3c")) == ["A0", "B0", "#"]


def test_steps_of_one_job_have_its_letter() -> None:
    occupied = occupation([record(7, {0, 1}, {1}, step=1), record(7, {0, 1}, {0}, step=0)])
    assert labels(occupied, from_spec("2c")) == ["A0", "A0"]
    assert [step.number for step in occupied.jobs[0].steps] == [0, 1]


def test_jobs_beyond_the_letters_are_still_told_apart_from_free_cpus() -> None:
    occupied = occupation([record(job, {job}, {job}) for job in range(60)])
    assert (occupied.key(51), occupied.key(52), occupied.key(60)) == ("z", "#", "")
    assert len([line for line in machine_text.draw(from_spec("64c"), occupied) if ".0" in line]) == 60


def test_a_device_is_listed_with_the_jobs_that_hold_it_or_a_part_of_it() -> None:
    records = [
        {**record(7, {0}, {0}), "held": ["gpu:0", "gpu:1/shard:1"]},
        {**record(7, {0}, {0}, step=1), "held": ["gpu:0", "gpu:1/shard:1"]},
        {**record(8, {1}, {1}), "held": ["gpu:1/shard:2/mem:8192M"], "array_job": 8, "array_task": 3},
    ]
    occupied = occupation(records, ["gpu:0", "gpu:1/shard:4/mem:16384M", "gpu:2"])
    lines = machine_text.draw(from_spec("2c"), occupied)
    assert lines[-5:] == [
        "",
        "DEVICE                    HELD BY",
        "gpu:0                     job 7",
        "gpu:1/shard:4/mem:16384M  job 7 shard:1, job 8_3 shard:2/mem:8192M",
        "gpu:2                     -",
    ]
    texts = [text.text for text in page_of(machine_svg.draw(from_spec("2c"), occupied)).iter(f"{SPACE}text")]
    assert {"gpu:0: job 7", "gpu:2: -"} <= set(texts)


def test_all_holders_of_a_device_are_listed_however_many_there_are() -> None:
    records = [{**record(job, {0}, {0}), "held": ["gpu:0/shard:1"]} for job in range(10, 30)]
    lines = machine_text.draw(from_spec("2c"), occupation(records, ["gpu:0/shard:20"]), width=80)
    told = " ".join(lines[lines.index("DEVICE          HELD BY") :])
    assert all(f"job {job} shard:1" in told for job in range(10, 30))


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.shape)
@pytest.mark.parametrize("width", [80, 120])
def test_every_cpu_is_drawn_once_within_the_width(machine: Machine, width: int) -> None:
    topology = topology_of(machine)
    lines = machine_text.draw(topology, Occupation(), width=width)
    assert max(map(len, lines)) <= width
    drawn = [int(number) for cell in re.findall(r"\[([0-9 ]+)\]", "\n".join(lines)) for number in cell.split()]
    assert sorted(drawn) == sorted(topology.machine_of)


def test_large_machine_is_a_map_that_fits_a_screen() -> None:
    topology = topology_of(LARGE)
    lines = machine_text.draw(topology, occupation([record(1, {0, 512, 1}, {0, 512, 1})]), width=100)
    assert max(map(len, lines)) <= 100
    assert len(lines) < 80
    maps = re.findall(r"([0-9,-]+) \[([A.]+)\]", "\n".join(lines))
    assert sum(len(cores) for _, cores in maps) == 512
    assert ("0-7,512-519", "AA......") in maps


def test_whom_a_cpu_serves_stands_below_it() -> None:
    lines = machine_text.draw(from_spec("1s:2c:2t"), occupation([record(42, {0, 1, 2}, {0, 1}, {2})]))
    at = next(index for index, line in enumerate(lines) if "[ 0  1] [ 2  3]" in line)
    assert lines[at + 1][lines[at].index("[") :].split("│")[0].rstrip() == " A0 A0   A1"
    assert lines[-1].split() == ["A", "42.0", "alice", "solver", "2", "1-2", "CPUs", "a", "task", "0-2"]


def test_remarks_name_what_is_special() -> None:
    topology = topology_of(Machine("1s:2c:2t", offline=(1,)), frozenset({0, 2}))
    topology = replace(
        topology, isolated=0b0100, kinds=(CoreKind("performance", 0b0001), CoreKind("efficiency", 0b1100))
    )
    lines = machine_text.draw(topology, Occupation())
    assert any("[0 ] [2  3*]" in line for line in lines)
    assert lines[-5:] == [
        "not to be used from here: CPUs 3",
        "isolated: CPUs 2",
        "offline: CPUs 1",
        "performance cores: CPUs 0",
        "efficiency cores: CPUs 2-3",
    ]


def test_devices_stand_at_their_node() -> None:
    devices = [
        PciDevice("0000:01:00.0", "network", "8086", "1521", ("eth0",), 1, 0),
        PciDevice("0000:02:00.0", "display", "10de", "2330", (), -1, 0),
    ]
    lines = machine_text.draw(from_spec("2s:2c:2n"), Occupation(), devices)
    assert lines[1] == "display: 0000:02:00.0"
    assert [line.count("network: eth0") for line in lines if "network" in line] == [1]
    assert next(line for line in lines if "network" in line).index("network") > lines[2].index("socket 1")


def test_names_of_users_cannot_move_the_cursor_nor_break_the_svg() -> None:
    occupied = occupation([record(1, {0}, {0}, name="\x1b[2J<script>&")])
    assert "\x1b" not in "\n".join(machine_text.draw(from_spec("1c"), occupied))
    drawn = machine_svg.draw(from_spec("1c"), occupied)
    assert "\x1b" not in drawn
    assert any("<script>&" in (found.text or "") for found in page_of(drawn).iter(SPACE + "text"))


def placed(element: ElementTree.Element, x: float = 0, y: float = 0) -> list[tuple[str, float, float, float, float]]:
    """Every CPU of an SVG: its tool tip, and left, top, right and bottom of its box."""
    found = []
    match = re.fullmatch(r"translate\(([-0-9.]+),([-0-9.]+)\)", element.get("transform", ""))
    if match:
        x, y = x + float(match[1]), y + float(match[2])
    tip = element.findtext(SPACE + "title")
    if tip is not None:
        box = element.find(SPACE + "rect")
        assert box is not None
        found.append((tip, x, y, x + float(box.get("width", "")), y + float(box.get("height", ""))))
    return found + [cpu for child in element for cpu in placed(child, x, y)]


@SHOWN
def test_svg_shows_every_cpu_once_none_upon_another_and_all_on_the_page(machine: Machine) -> None:
    topology = topology_of(machine)
    page = page_of(machine_svg.draw(topology, occupation([record(1, {0}, {0})])))
    cpus = placed(page)
    assert sorted(int(re.findall(r"\d+", tip)[0]) for tip, *_ in cpus) == sorted(topology.machine_of)
    assert max(right for *_, right, _ in cpus) < float(page.get("width", ""))
    assert max(bottom for *_, bottom in cpus) < float(page.get("height", ""))
    cpus.sort(key=lambda cpu: (cpu[2], cpu[1]))
    for (_, _, top, right, _), (_, left, other_top, _, _) in itertools.pairwise(cpus):
        assert other_top > top or left >= right


@SHOWN
def test_svg_is_neither_a_tower_nor_a_ribbon(machine: Machine) -> None:
    page = page_of(machine_svg.draw(topology_of(machine), Occupation()))
    assert 0.5 < float(page.get("width", "")) / float(page.get("height", "")) < 4


def test_svg_gives_each_job_its_colour_and_says_whose_it_is() -> None:
    occupied = occupation([record(42, {0, 1}, {0}, {1}), record(43, {2}, {2})])
    page = page_of(machine_svg.draw(from_spec("4c"), occupied))
    tips = [tip for tip, *_ in placed(page)]
    assert tips[1].endswith("job 42 of alice, task 1")
    assert tips[3].endswith("NUMA node 0")
    colours = [
        rect.get("fill") for group in page.iter(SPACE + "g") if group.find(SPACE + "title") is not None
        for rect in group.findall(SPACE + "rect")
    ]  # fmt: skip
    assert colours[0] == colours[1]
    assert len(set(colours)) == 3


def test_a_task_of_an_array_and_a_job_without_known_steps_have_the_names_that_their_users_know() -> None:
    topology = from_spec("1s:2c")
    job = {"job": 9, "user": "bob", "name": "", "tasks": 1, "cpu_list": "1"}
    records = [{**record(7, {0}, {0}), "array_job": 5, "array_task": 3}, job_record(job)]
    text = "\n".join(machine_text.draw(topology, occupation(records), width=80))
    assert "5_3.0" in text
    assert re.search(r"B +9 +bob +1 +1", text), "and nothing of its pinning, which is not known"
    assert "job 5_3.0, alice" in machine_svg.draw(topology, occupation(records))
    assert "job 9, bob, 1 task, CPU 1" in machine_svg.draw(topology, occupation(records))
