from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nodectl.model.cpu_list import cpus_of, format_cpulist
from nodectl.placement.machine.sockets import socket_as
from nodectl.placement.machine.spec import from_lscpu, from_spec
from nodectl.placement.machine.topology import Topology
from unit.machines import Machine, topology_of


def lists(masks: list[int]) -> list[str]:
    return [format_cpulist(cpus_of(mask)) for mask in masks]


def sizeless(topology: Topology) -> Topology:
    """What a spec can say of a machine that was read."""
    return replace(
        topology,
        nodes=tuple(replace(node, memory=0) for node in topology.nodes),
        caches=tuple(replace(cache, size=0) for cache in topology.caches),
    )


@pytest.mark.parametrize(
    ("spec", "machine"),
    [
        ("2s:4c:2t:2n", Machine("2s:4c:2t")),
        ("2s:4c:2t:2n:i", Machine("2s:4c:2t", "last")),
        ("4c", Machine("1s:4c:1t")),
        ("4d:2T:2S:8C:4N:I", Machine("2s:8c:2t", "last", nodes_per_socket=2, l3_per_socket=4)),
        ("8s:64c:4t:8n", Machine("8s:64c:4t")),
    ],
)
def test_spec_gives_the_machine_that_the_kernel_would_show(spec: str, machine: Machine) -> None:
    assert from_spec(spec) == sizeless(topology_of(machine))


@pytest.mark.parametrize(("spec", "nodes"), [("2s:2c", ["0-3"]), ("4s:1c:2n", ["0-1", "2-3"])])
def test_node_over_several_sockets_can_be_asked_for(spec: str, nodes: list[str]) -> None:
    assert lists([node.mask for node in from_spec(spec).nodes]) == nodes


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "i",
        "2s",
        "0c",
        "4c:4c",
        "4x",
        "2s:4c:",
        "-1c",
        "4c:i:2t",
        "²c",
        "3c:2d",
        "2s:4c:3n",
        "2s:3c:4n",
        "99s:99c",
        "2s:2c:4b",
    ],
)
def test_impossible_spec_is_refused_in_one_line(spec: str) -> None:
    with pytest.raises(ValueError, match=r"^machine ") as refusal:
        from_spec(spec)
    assert "\n" not in str(refusal.value)


def test_boards_share_the_sockets() -> None:
    boards = from_spec("4s:2c:2b").boards
    assert [(board.number, board.mask) for board in boards] == [(0, 0x0F), (1, 0xF0)]


def lscpu(*rows: tuple[object, ...], caches: str = "l1d:l1i:l2:l3") -> bytes:
    names = ("cpu", "node", "socket", "core", caches)
    return json.dumps({"cpus": [dict(zip(names, row, strict=True)) for row in rows]}).encode()


def test_lscpus_table_gives_numbering_nodes_and_caches() -> None:
    topology = from_lscpu(
        lscpu(
            (0, 0, 0, 0, "0:0:0:0"),
            (1, 0, 1, 1, "2:2:1:1"),
            (2, 0, 0, 0, "1:1:0:0"),
            (3, 0, 1, 1, "3:3:1:1"),
        )
    )
    assert topology.machine_of == (0, 2, 1, 3)
    assert [core.number for core in topology.cores] == [0, 1]
    assert lists([node.mask for node in topology.nodes]) == ["0-3"]
    assert lists([cache.mask for cache in topology.caches if cache.level > 1]) == ["0,2", "1,3", "0,2", "1,3"]
    assert [cache.level for cache in topology.caches] == [3, 3, 2, 2] + 8 * [1]


def test_offline_cpus_and_text_of_old_releases_are_read() -> None:
    topology = from_lscpu(
        lscpu(
            ("0", "0", "0", "0", "0:0:0"),
            ("1", None, None, None, "-"),
            ("2", "-", "0", "1", "1:1:1"),
            caches="L1d:L1i:L2",
        )
    )
    assert (topology.online, topology.offline) == (0b101, 0b010)
    assert topology.nodes[0].mask == 0b101
    assert {cache.level for cache in topology.caches} == {1, 2}


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff", b"[]", b"{}", b'{"cpus": []}', b'{"cpus": [1]}', b'{"cpus": [{"node": 0}]}',
        lscpu((0, 0, 0, 0, "")) [:-2] + b', {"cpu": 0}]}', lscpu((-1, 0, 0, 0, "")), lscpu((0, 0, "x", 0, "")),
        lscpu((0, 0, 0, None, "")), b'{"cpus": [{"cpu": 99999999}]}',
    ],
)  # fmt: skip
def test_nonsense_for_lscpus_table_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^lscpu") as refusal:
        from_lscpu(data)
    assert "\n" not in str(refusal.value)


def test_each_large_cache_or_node_can_count_as_a_socket() -> None:
    machine = from_spec("2s:4c:2t:2n:2d:i")
    assert lists([socket.mask for socket in socket_as(machine, "l3").sockets]) == [
        "0-1,8-9",
        "2-3,10-11",
        "4-5,12-13",
        "6-7,14-15",
    ]
    assert socket_as(machine, "l3").machine_of == machine.machine_of
    assert [core.number for core in socket_as(machine, "l3").cores] == list(range(8))
    assert socket_as(machine, "numa") == machine
    assert [socket.package for socket in socket_as(machine, "l3").sockets] == [0, 0, 1, 1]


def test_node_over_two_sockets_becomes_one_socket() -> None:
    (socket,) = socket_as(from_spec("2s:2c"), "numa").sockets
    assert [core.cpus for core in socket.cores] == [(0,), (1,), (2,), (3,)]


def test_cores_keep_their_order_in_a_node_over_sockets_that_are_numbered_alternately() -> None:
    rows = [(cpu, 0, cpu % 2, cpu, f"{cpu}:{cpu}:{cpu}:{cpu % 2}") for cpu in range(4)]
    machine = from_lscpu(lscpu(*rows))
    assert machine.machine_of == (0, 2, 1, 3)
    assert socket_as(machine, "numa").machine_of == (0, 2, 1, 3)


def test_machine_without_large_caches_keeps_its_sockets() -> None:
    machine = topology_of(Machine("2s:2c:1t", caches=False))
    assert socket_as(machine, "l3") == machine
