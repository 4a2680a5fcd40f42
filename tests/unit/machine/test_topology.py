from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.model.cpu_list import cpus_of, format_cpulist, mask_of, parse_cpulist
from nodectl.placement.machine.topology import read
from unit.machines import MIB, Machine, build, topology_of


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", set()),
        ("\n", set()),
        ("0", {0}),
        ("0-3,8\n", {0, 1, 2, 3, 8}),
        ("8,0-1", {0, 1, 8}),
        ("1-1", {1}),
    ],
)
def test_cpu_list_of_the_kernel_is_read(text: str, cpus: set[int]) -> None:
    assert parse_cpulist(text) == cpus


@pytest.mark.parametrize("text", ["a", "1-", "-1", "3-1", "1,,2", "0-999999999", "0x1", "²", "1 2"])
def test_nonsense_in_a_cpu_list_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^CPU list") as refusal:
        parse_cpulist(text)
    assert "\n" not in str(refusal.value)


@given(st.frozensets(st.integers(0, 300)))
def test_cpu_lists_and_masks_keep_every_set(cpus: frozenset[int]) -> None:
    assert parse_cpulist(format_cpulist(cpus)) == cpus
    assert frozenset(cpus_of(mask_of(cpus))) == cpus


def test_list_format_joins_runs() -> None:
    assert format_cpulist([8, 0, 2, 1, 3, 3]) == "0-3,8"


def test_adjacent_siblings_are_numbered_alike_in_both_ways() -> None:
    topology = topology_of(Machine("2s:4c:2t"))
    assert topology.machine_of == tuple(range(16))
    assert topology.abstract_of == tuple(range(16))
    assert [core.cpus for core in topology.sockets[1].cores] == [
        (8, 9), (10, 11), (12, 13), (14, 15)
    ]  # fmt: skip


def test_siblings_numbered_last_are_brought_together() -> None:
    topology = topology_of(Machine("2s:2c:2t", "last"))
    assert topology.machine_of == (0, 4, 1, 5, 2, 6, 3, 7)
    assert topology.abstract_of == (0, 2, 4, 6, 1, 3, 5, 7)
    assert [socket.mask for socket in topology.sockets] == [0x33, 0xCC]
    assert [core.number for core in topology.cores] == [0, 1, 2, 3]
    assert topology.to_machine(0b11) == 0x11


def test_files_of_old_kernels_give_the_same_machine() -> None:
    assert topology_of(Machine("2s:4c:2t", "last", old=True)) == topology_of(Machine("2s:4c:2t", "last"))


def test_ids_group_cpus_where_the_kernel_gives_no_lists(tmp_path: Path) -> None:
    build(tmp_path, Machine("2s:2c:2t", "last", old=True))
    for path in tmp_path.glob("sys/devices/system/cpu/cpu*/topology/*_siblings_list"):
        path.unlink()
    assert read(str(tmp_path)) == topology_of(Machine("2s:2c:2t", "last"))


def test_offline_cpus_are_known_but_have_no_place() -> None:
    topology = topology_of(Machine("2s:2c:2t", offline=(2, 3, 5)))
    assert topology.online == 0xFF & ~0b101100
    assert topology.offline == 0b101100
    assert topology.machine_of == (0, 1, 4, 6, 7)
    assert topology.abstract_of == (0, 1, -1, -1, 2, -1, 3, 4)
    assert [core.cpus for core in topology.cores] == [(0, 1), (4,), (6, 7)]
    assert topology.width == 8


def test_cpus_outside_of_the_callers_set_are_known_but_not_usable() -> None:
    topology = topology_of(Machine("2s:2c:2t"), frozenset({0, 1, 6, 99}))
    assert topology.usable == 0b0100_0011
    assert topology.online == 0xFF
    assert topology.machine_of == tuple(range(8))


def test_nodes_have_their_cpus_and_memory() -> None:
    nodes = topology_of(Machine("2s:4c:1t", nodes_per_socket=2, node_mib=512)).nodes
    assert [(node.number, node.mask) for node in nodes] == [
        (0, 0x03), (1, 0x0C), (2, 0x30), (3, 0xC0)
    ]  # fmt: skip
    assert {node.memory for node in nodes} == {512 * MIB}


def test_node_without_cpus_is_kept(tmp_path: Path) -> None:
    build(tmp_path, Machine("1s:2c:1t"))
    far = tmp_path / "sys/devices/system/node/node1"
    far.mkdir()
    (far / "cpulist").write_text("\n")
    assert [(node.mask, node.memory) for node in read(str(tmp_path)).nodes] == [
        (0b11, 1024 * MIB), (0, 0)
    ]  # fmt: skip


def test_machine_without_numa_is_one_node_with_all_memory() -> None:
    (node,) = topology_of(Machine("2s:2c:1t", nodes_per_socket=0)).nodes
    assert (node.number, node.mask, node.memory) == (0, 0b1111, 2048 * MIB)


def test_large_caches_are_groups_of_cpus() -> None:
    caches = topology_of(Machine("2s:4c:2t", "last", l3_per_socket=2)).caches
    assert [cache.mask for cache in caches] == [0x0303, 0x0C0C, 0x3030, 0xC0C0]
    assert {(cache.level, cache.kind, cache.size) for cache in caches} == {(3, "Unified", 32 * MIB)}


def test_small_caches_are_read_when_asked_for(tmp_path: Path) -> None:
    build(tmp_path, Machine("1s:2c:2t"))
    caches = read(str(tmp_path), every_cache=True).caches
    assert [(cache.level, cache.kind, cache.mask) for cache in caches] == [
        (3, "Unified", 0b1111),
        (2, "Unified", 0b0011),
        (2, "Unified", 0b1100),
        (1, "Data", 0b0011),
        (1, "Data", 0b1100),
        (1, "Instruction", 0b0011),
        (1, "Instruction", 0b1100),
    ]


@pytest.mark.parametrize("lacking", [{"caches": False}, {"l3_per_socket": 0}])
def test_machine_that_shows_no_large_cache_has_none(lacking: dict[str, bool]) -> None:
    assert topology_of(Machine("1s:2c:1t", **lacking)).caches == ()  # type: ignore[arg-type]  # fields of several types


def test_machine_without_topology_is_one_socket_of_single_cpus() -> None:
    topology = topology_of(Machine("2s:2c:2t", topology=False, caches=False))
    (socket,) = topology.sockets
    assert [core.cpus for core in socket.cores] == [(cpu,) for cpu in range(8)]
    assert socket.package == -1


def test_bare_container_is_what_the_caller_may_use(tmp_path: Path) -> None:
    topology = read(str(tmp_path), {3, 1})
    assert topology.machine_of == (1, 3)
    assert [node.memory for node in topology.nodes] == [0]


def test_machine_of_which_nothing_is_known_is_refused_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as refusal:
        read(str(tmp_path))
    assert refusal.value.errno == errno.ENOENT
    assert str(refusal.value.filename).startswith(str(tmp_path))


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text + "\n", encoding="ascii")


def test_cores_that_share_a_cache_are_neighbours_in_the_abstract_numbering(tmp_path: Path) -> None:
    # As Intel's sub-NUMA clusters number them: every other core belongs to the other half of the socket.
    build(tmp_path, Machine("1s:4c:1t", nodes_per_socket=2))
    write(tmp_path, "sys/devices/system/node/node0/cpulist", "0,2")
    write(tmp_path, "sys/devices/system/node/node1/cpulist", "1,3")
    topology = read(str(tmp_path))
    assert topology.machine_of == (0, 2, 1, 3)
    assert [core.number for core in topology.cores] == [0, 1, 2, 3]


def test_sockets_that_share_a_node_are_neighbours_in_the_abstract_numbering(tmp_path: Path) -> None:
    build(tmp_path, Machine("4s:1c:1t", nodes_per_socket=0))
    write(tmp_path, "sys/devices/system/node/node0/cpulist", "0,2")
    write(tmp_path, "sys/devices/system/node/node1/cpulist", "1,3")
    topology = read(str(tmp_path))
    assert topology.machine_of == (0, 2, 1, 3)
    assert [(socket.number, socket.package) for socket in topology.sockets] == [(0, 0), (1, 2), (2, 1), (3, 3)]


# What lstopo of hwloc 2.9.0 says of made-up trees (HWLOC_FSROOT): groups as CPU lists, and the order of the CPUs.
HWLOC = [json.loads(line) for line in Path(__file__).with_name("hwloc.jsonl").read_text(encoding="ascii").splitlines()]


@pytest.mark.parametrize("machine", HWLOC)
def test_cpus_are_in_hwlocs_order(machine: dict[str, str], tmp_path: Path) -> None:
    system = "sys/devices/system"
    for name, path in (
        ("packages", "topology/package_cpus_list"),
        ("cores", "topology/core_cpus_list"),
        ("l3", "cache/index0/shared_cpu_list"),
    ):
        for cpus in machine[name].split():
            for cpu in parse_cpulist(cpus):
                write(tmp_path, f"{system}/cpu/cpu{cpu}/{path}", cpus)
                write(tmp_path, f"{system}/cpu/cpu{cpu}/cache/index0/level", "3")
    for number, cpus in enumerate(machine["nodes"].split()):
        write(tmp_path, f"{system}/node/node{number}/cpulist", cpus)
    write(tmp_path, f"{system}/cpu/online", ",".join(machine["packages"].split()))
    assert " ".join(map(str, read(str(tmp_path)).machine_of)) == machine["order"]


def test_numbering_does_not_depend_on_which_caches_are_read(tmp_path: Path) -> None:
    build(tmp_path, Machine("2s:8c:2t", "last", l3_per_socket=2, nodes_per_socket=4))
    assert read(str(tmp_path)).machine_of == read(str(tmp_path), every_cache=True).machine_of


def test_own_cpus_and_nodes_are_what_the_process_may_use(tmp_path: Path) -> None:
    build(tmp_path, Machine("2s:4c:1t"))
    assert (read(str(tmp_path)).usable, read(str(tmp_path)).usable_nodes) == (0xFF, 0b11)
    write(tmp_path, "proc/self/status", "Name:\tcat\nCpus_allowed_list:\t4-6,99\nMems_allowed_list:\t1-3")
    assert (read(str(tmp_path)).usable, read(str(tmp_path)).usable_nodes) == (0x70, 0b10)
    assert read(str(tmp_path), {0}).usable == 0b1


def test_isolated_cpus_are_known_whoever_isolated_them(tmp_path: Path) -> None:
    build(tmp_path, Machine("1s:8c:1t"))
    assert read(str(tmp_path)).isolated == 0
    write(tmp_path, "sys/devices/system/cpu/isolated", "1-2")
    write(tmp_path, "sys/fs/cgroup/cpuset.cpus.isolated", "7,9")
    assert read(str(tmp_path)).isolated == 0b1000_0110


def test_kinds_of_cores_are_told_as_the_processor_tells_them(tmp_path: Path) -> None:
    build(tmp_path, Machine("1s:4c:2t"))
    assert read(str(tmp_path)).kinds == ()
    for cpu in range(8):
        write(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity", "446" if cpu < 4 else "1024")
    kinds = [(kind.name, kind.mask) for kind in read(str(tmp_path)).kinds]
    assert kinds == [("capacity 1024", 0xF0), ("capacity 446", 0x0F)]
    write(tmp_path, "sys/devices/cpu_core/cpus", "0-3")
    write(tmp_path, "sys/devices/cpu_atom/cpus", "4-7")
    kinds = [(kind.name, kind.mask) for kind in read(str(tmp_path)).kinds]
    assert kinds == [("performance", 0x0F), ("efficiency", 0xF0)]


def test_cores_of_equal_capacity_are_of_one_kind(tmp_path: Path) -> None:
    build(tmp_path, Machine("1s:2c:1t"))
    for cpu in range(2):
        write(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity", "1024")
    assert read(str(tmp_path)).kinds == ()


def test_books_are_boards(tmp_path: Path) -> None:
    build(tmp_path, Machine("4s:1c:1t"))
    assert [board.mask for board in read(str(tmp_path)).boards] == [0b1111]
    for cpu in range(4):
        write(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/topology/book_cpus_list", "0-1" if cpu < 2 else "2-3")
    assert [(board.number, board.mask) for board in read(str(tmp_path)).boards] == [(0, 0b0011), (1, 0b1100)]


def test_1024_cpus_have_their_places(tmp_path: Path) -> None:
    topology = read(str(build(tmp_path, Machine("4s:128c:2t", "last", l3_per_socket=16))))
    assert (len(topology.machine_of), len(topology.cores), len(topology.caches)) == (1024, 512, 64)
    assert topology.machine_of[:4] == (0, 512, 1, 513)


def test_the_machine_under_the_test_can_be_read() -> None:
    topology = read()
    assert sorted(topology.machine_of) == list(cpus_of(topology.online))
    assert topology.nodes[0].memory > 0
