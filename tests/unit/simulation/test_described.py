"""Nodes that are described: `--nodes SPEC`."""

from __future__ import annotations

import pytest

from nodectl.lab.simulation.described import nodes_of
from nodectl.lab.simulation.submission import machine_of, number_of_tasks


def test_groups_of_nodes_are_numbered_through() -> None:
    nodes = nodes_of("2*2s:4c:2t,mem=64G,gpu=4:a100;8c,mem=512M,feature=old+slow,weight=9;3*4c,name=fat")
    assert [node.name for node in nodes] == ["n1", "n2", "n3", "fat1", "fat2", "fat3"]
    assert [node.cpus for node in nodes] == [16, 16, 8, 4, 4, 4]
    assert [node.real_memory for node in nodes] == [65536, 65536, 512, 0, 0, 0]
    assert (nodes[2].features, nodes[2].weight) == (("old", "slow"), 9)
    assert [device.key for device in nodes[0].devices] == ["gpu:0", "gpu:1", "gpu:2", "gpu:3"]
    # Dealt over the sockets, as boards have them.
    assert [device.cores for device in nodes[0].devices] == [(0, 1, 2, 3)] * 2 + [(4, 5, 6, 7)] * 2
    assert nodes[0].devices[0].type == "a100"
    machine = machine_of(nodes)
    assert (machine.cpus, machine.node_cpus, machine.memory, machine.gres) == (52, 4, 0, ())


def test_a_node_may_have_devices_of_several_types() -> None:
    (node,) = nodes_of("8c,gpu=1:a,nic=1,gpu=2:b")
    assert [(device.key, device.type) for device in node.devices] == [
        ("gpu:0", "a"),
        ("nic:0", ""),
        ("gpu:1", "b"),
        ("gpu:2", "b"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "", ";;", "8", "0*8c", "x*8c", "999999*8c", "8c,mem", "8c,mem=0", "8c,mem=9999999999P", "8c,gpu=x", "8c,gpu=",
        "8c,gpu=2,gpu=2", "8c,name=a;8c,name=a", "8c,name=1", "8c,weight=x", "8c,gpu=99999",
        "8c,gpu=2:a,gpu=2:a", "200000*64s:64c:1t",
    ],
)  # fmt: skip
def test_a_bad_description_is_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        nodes_of(text)


@pytest.mark.parametrize(
    ("text", "tasks"), [("0-9", 10), ("3", 1), ("0-9:2,20", 6), ("5-4", 1), ("x", 1), ("1-5:0", 1)]
)
def test_tasks_of_an_array_are_counted(text: str, tasks: int) -> None:
    assert number_of_tasks(text) == tasks
