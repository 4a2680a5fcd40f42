from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from nodectl.cli import topo
from nodectl.client.command import GlobalOptions
from unit.machines import MIB, Machine, build


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    topo.add_arguments(parser)
    arguments = parser.parse_args(words)
    arguments.settings = GlobalOptions()
    return topo.main(arguments)


def test_picture_of_a_copied_tree_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(tmp_path, Machine("2s:2c:2t", "last"))
    assert run("--root", str(tmp_path)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "machine: 2 sockets, 4 cores, 8 CPUs, 2 NUMA nodes, 2 GiB",
        "caches: L3 32 MiB for 2 cores, L2 1 MiB a core, L1d 32 KiB a core, L1i 32 KiB a core",
        "┌─ socket 0 ─────────┐ ┌─ socket 1 ─────────┐",
        "│ NUMA node 0, 1 GiB │ │ NUMA node 1, 1 GiB │",
        "│   L3 32 MiB        │ │   L3 32 MiB        │",
        "│     [0 4] [1 5]    │ │     [2 6] [3 7]    │",
        "└────────────────────┘ └────────────────────┘",
        "[ ] is a core with its CPUs",
    ]


def test_machine_that_is_not_there_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--machine", "2s:4c:2t:2n") == 0
    by_spec = capsys.readouterr().out
    assert by_spec.startswith("machine: 2 sockets, 8 cores, 16 CPUs, 2 NUMA nodes\n")
    caches = "l1d:l1i:l2:l3"
    rows = [
        {"cpu": cpu, "node": cpu // 8, "socket": cpu // 8, "core": cpu // 2, caches: f"-:-:-:{cpu // 8}"}
        for cpu in range(16)
    ]
    (tmp_path / "table").write_text(json.dumps({"cpus": rows}))
    assert run("--machine", str(tmp_path / "table")) == 0
    assert capsys.readouterr().out == by_spec


def test_svg_goes_to_the_file_or_to_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--machine", "4c", "--svg", str(tmp_path / "machine.svg")) == 0
    assert capsys.readouterr().out == ""
    assert run("--machine", "4c", "--svg", "-") == 0
    assert capsys.readouterr().out == (tmp_path / "machine.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--machine", "4x"], "machine '4x': '4x' is no COUNT and s, c, t, n, d or b as in 2s:4c:2t:2n"),
        (["--machine", "/no/such/file"], "/no/such/file: No such file or directory"),
        (["--machine", "4c", "--svg", "/no/such/place"], "/no/such/place: No such file or directory"),
    ],
)
def test_what_cannot_be_read_or_written_is_one_line_and_a_failure(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"nodectl topo: {why}\n")


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
        "cpu": 2, "abstract": 1, "core": 0, "socket": 0, "board": 0, "node": 0, "usable": True
    }  # fmt: skip
    assert (machine["boards"], machine["jobs"], machine["devices"]) == ([{"board": 0, "cpus": "0-2"}], [], [])


def test_unreadable_machine_is_one_line_and_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--root", str(tmp_path)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("nodectl topo: ")
    assert captured.err.count("\n") == 1


def test_own_machine_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert capsys.readouterr().out.startswith("machine: ")
