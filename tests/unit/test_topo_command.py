from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from nodectl.cli import topo
from unit.machines import MIB, Machine, build, topology_of


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    topo.add_arguments(parser)
    return topo.main(parser.parse_args(words))


def test_picture_shows_sockets_nodes_caches_and_cores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(tmp_path, Machine("2s:2c:2t", "last"))
    assert run("--root", str(tmp_path)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "machine: 2 sockets, 4 cores, 8 CPUs, 2 NUMA nodes, 2 GiB",
        "caches: L2 1 MiB a core, L1d 32 KiB a core, L1i 32 KiB a core",
        "+- socket 0 ---------+",
        "| NUMA node 0, 1 GiB |",
        "|   L3 32 MiB        |",
        "|     [0 4] [1 5]    |",
        "+--------------------+",
        "+- socket 1 ---------+",
        "| NUMA node 1, 1 GiB |",
        "|   L3 32 MiB        |",
        "|     [2 6] [3 7]    |",
        "+--------------------+",
        "[ ] is a core with its CPUs",
    ]


@pytest.mark.parametrize(
    "machine",
    [
        Machine("1s:4c:1t", nodes_per_socket=0, caches=False),
        Machine("2s:32c:2t", "last", nodes_per_socket=2, l3_per_socket=8),
        Machine("1s:128c:1t"),
        Machine("8s:8c:2t", offline=(3, 90)),
    ],
)
def test_every_cpu_is_drawn_once_within_100_columns(machine: Machine) -> None:
    topology = topology_of(machine)
    lines = topo.draw(topology)
    assert max(map(len, lines)) <= 100
    cells = [line for line in lines if line.startswith("|") and "[" in line]
    drawn = [int(word) for line in cells for word in line.translate({91: 32, 93: 32, 124: 32}).split()]
    assert drawn == list(topology.machine_of)


def test_cpus_that_may_not_be_used_are_marked_and_offline_ones_named() -> None:
    lines = topo.draw(topology_of(Machine("1s:2c:2t", offline=(1,)), frozenset({0, 2})))
    assert any("[0 ] [2  3*]" in line for line in lines)
    assert lines[-2].endswith("* a CPU that may not be used from here: 3")
    assert lines[-1] == "offline: 1"


def test_json_holds_the_whole_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(tmp_path, Machine("1s:2c:2t", "last", offline=(3,)))
    assert run("--root", str(tmp_path), "--json") == 0
    machine = json.loads(capsys.readouterr().out)
    assert (machine["online"], machine["usable"], machine["offline"]) == ("0-2", "0-2", "3")
    assert machine["sockets"] == [
        {
            "socket": 0,
            "package": 0,
            "cpus": "0-2",
            "cores": [{"core": 0, "cpus": [0, 2]}, {"core": 1, "cpus": [1]}],
        }
    ]
    assert machine["nodes"] == [{"node": 0, "cpus": "0-2", "memory": 1024 * MIB}]
    assert machine["caches"][0] == {
        "level": 3, "type": "Unified", "size": 32 * MIB, "cpus": "0-2"
    }  # fmt: skip
    assert machine["cpus"][1] == {
        "cpu": 2, "abstract": 1, "core": 0, "socket": 0, "node": 0, "usable": True
    }  # fmt: skip


def test_unreadable_machine_is_one_line_and_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--root", str(tmp_path)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("nodectl topo: ")
    assert captured.err.count("\n") == 1


def test_own_machine_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert capsys.readouterr().out.startswith("machine: ")
