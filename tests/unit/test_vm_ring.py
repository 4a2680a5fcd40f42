"""The host's side of the vm ring: words for topologies, disks in the cache, reports; no machine is booted."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from debian import cache
from rootful.node import wait_until
from vm.host import nodes, report
from vm.host.debugger import Debugger
from vm.host.image import Image
from vm.host.qemu import Machine, Topology, run

ROOT = Path(__file__).resolve().parents[2]
IMAGE = Image(Path("/image/disk"), Path("/image/kernel"), Path("/image/initrd"))


def words_after(words: list[str], option: str) -> list[str]:
    return [value for name, value in pairwise(words) if name == option]


@pytest.mark.parametrize(("text", "cpus"), [("2s4c2t2n", 16), ("1s6c1t1n", 6), ("1s1c1t1n", 1), ("4s2c2t4n", 16)])
def test_topology_is_read_and_told_in_the_same_words(text: str, cpus: int) -> None:
    topology = Topology.parse(text)
    assert (str(topology), topology.cpus) == (text, cpus)


@pytest.mark.parametrize("text", ["", "2s4c2t", "2s4c2t0n", "s4c2t2n", "2s4c2t2n ", "2:4:2:2", "1s6c1t4n"])
def test_topology_that_cannot_be_built_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"topology|divide"):
        Topology.parse(text)


def test_machine_is_built_with_the_nodes_of_its_topology() -> None:
    words = Machine(IMAGE, Topology.parse("2s4c2t2n"), 1024).boot("kvm", disks=("file=/in",), console="/console")
    assert words_after(words, "-smp") == ["16,sockets=2,cores=4,threads=2"]
    assert words_after(words, "-object") == [f"memory-backend-ram,id=ram{node},size=512M" for node in (0, 1)]
    nodes = ["node,nodeid=0,memdev=ram0,cpus=0-7", "node,nodeid=1,memdev=ram1,cpus=8-15", "dist,src=0,dst=1,val=21"]
    assert words_after(words, "-numa") == nodes
    disks = words_after(words, "-drive")
    assert disks == ["file=/image/disk,snapshot=on,cache=unsafe,format=raw,if=virtio", "file=/in,format=raw,if=virtio"]


def test_machine_ends_where_it_resets_itself_and_its_disk_may_be_kept() -> None:
    words = Machine(IMAGE, Topology.parse("1s1c1t1n"), 512).boot("kvm", console="/console", line="/line", kept="/own")
    assert words_after(words, "-action") == ["reboot=shutdown"]
    assert words_after(words, "-serial") == ["chardev:console", "chardev:line"]
    assert words_after(words, "-drive") == ["file=/own,cache=unsafe,format=raw,if=virtio"]


def test_machines_with_a_slurm_are_wired_to_each_other_and_to_nothing_else() -> None:
    ends = {number: words_after(nodes.wires(number, Path("/ring")), "-netdev") for number in nodes.NUMBERS}
    wired = "stream,id={0},server={1},addr.type=unix,addr.path=/ring/wire{2}"
    first = [word for word in ends[1] if not word.startswith("hubport,")]
    assert first == [wired.format("wire2", "on", 2), wired.format("wire3", "on", 3)]
    assert [ends[2], ends[3]] == [[wired.format("here", "off", number)] for number in (2, 3)]


def test_machine_that_is_not_done_in_time_is_ended() -> None:
    assert run(["sleep", "1000"], 0.1).wait(timeout=30) == 124


def test_machine_ends_with_who_runs_it() -> None:
    script = (
        "from vm.host.qemu import run; import os; said, here = os.pipe()\n"
        "run(['sh', '-c', f'echo $$ >/proc/{os.getpid()}/fd/{here}; exec sleep 1000'], 1000)\n"
        "print(os.read(said, 100).decode(), flush=True); os._exit(0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    wait_until(lambda: not words_of(int(done.stdout)), "it has ended")


def words_of(pid: int) -> str:
    """A process's command, "" when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def fill(directory: Path) -> None:
    (directory / "disk").write_text("whole")


def test_disk_is_made_once_and_found_again(tmp_path: Path) -> None:
    for make in (fill, None):
        with cache.kept(tmp_path, "vm-1", make) as made:  # type: ignore[arg-type]  # None is not called
            assert (made / "disk").read_text() == "whole"


def test_disk_that_was_not_finished_is_never_used(tmp_path: Path) -> None:
    def half(directory: Path) -> None:
        (directory / "disk").write_text("half")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"), cache.kept(tmp_path, "vm-1", half):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["vm.lock"]
    (tmp_path / "making-killed").mkdir()
    with cache.kept(tmp_path, "vm-1", fill) as made:
        assert (made / "disk").read_text() == "whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["vm-1", "vm.lock"]


@pytest.mark.parametrize("harm", ["shorten", "remove", "forget"])
def test_disk_that_was_damaged_is_made_anew(tmp_path: Path, harm: str) -> None:
    with cache.kept(tmp_path, "vm-1", fill) as made:
        pass
    if harm == "shorten":
        os.truncate(made / "disk", 1)
    else:
        (made / ("disk" if harm == "remove" else "whole.json")).unlink()
    with cache.kept(tmp_path, "vm-1", fill) as made:
        assert (made / "disk").read_text() == "whole"


def test_disks_of_others_are_forgotten_in_the_end_but_not_while_they_are_used(tmp_path: Path) -> None:
    with cache.kept(tmp_path, "vm-0", fill):
        for number in range(1, 7):
            with cache.kept(tmp_path, f"vm-{number}", fill) as made:
                os.utime(made, (number, number))
                os.utime(tmp_path / "vm-0", (0, 0))
        assert sorted(path.name for path in tmp_path.glob("vm-*")) == [f"vm-{number}" for number in (0, 3, 4, 5, 6)]
    with cache.kept(tmp_path, "vm-6", fill):
        assert sorted(path.name for path in tmp_path.glob("vm-*")) == [f"vm-{number}" for number in (3, 4, 5, 6)]


def _use(directory: Path, log: Path) -> None:
    def slowly(made: Path) -> None:
        with log.open("a") as file:
            file.write("made\n")
        fill(made)

    with cache.kept(directory, "vm-1", slowly) as made, log.open("a") as file:
        file.write((made / "disk").read_text() + "\n")


def test_two_runs_at_one_time_make_one_disk(tmp_path: Path) -> None:
    log = tmp_path / "log"
    runs = [multiprocessing.Process(target=_use, args=(tmp_path / "cache", log)) for _ in range(4)]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    assert sorted(log.read_text().split()) == ["made"] + ["whole"] * 4


@pytest.fixture
def rows() -> list[report.Row]:
    return [
        report.Row.of("tests/vm/test_service.py::test_reload_keeps_the_daemon", "passed", 2.5),
        report.Row.of("tests/vm/test_service.py::test_restart_harms_nothing[3]", "failed", 1, "no\nnot at all"),
        report.Row.of("tests/vm/test_topology.py::test_memory_is_near", "skipped", 0, "one node"),
        report.Row.of("tests/vm/nodes/test_cgroup.py::test_cleans_up", "error", 0, "left"),
    ]


def test_report_tells_what_each_test_proved_or_why_not(rows: list[report.Row]) -> None:
    assert report.as_text(rows).splitlines() == [
        "proved      2.5 s  service: reload keeps the daemon",
        "failed      1.0 s  service: restart harms nothing[3]",
        "                  no",
        "skipped     0.0 s  topology: memory is near",
        "                  one node",
        "error       0.0 s  cgroup: cleans up",
        "                  left",
    ]
    told = json.loads(report.as_json(rows, {"topology": "2s4c2t2n"}))
    assert told["topology"] == "2s4c2t2n"
    assert told["counts"] == {"proved": 1, "failed": 1, "error": 1, "skipped": 1}
    assert [test["why"] for test in told["tests"]] == ["", "no\nnot at all", "one node", "left"]


def test_last_line_is_in_pytests_form(rows: list[report.Row]) -> None:
    assert report.last_line(report.count(rows), 61.5) == "===== 1 failed, 1 passed, 1 skipped, 1 errors in 61.50s ====="
    assert report.last_line(report.count([]), 0.25) == "===== no tests ran in 0.25s ====="


def test_misspelt_selection_is_told_before_a_machine_is_booted() -> None:
    ring = [sys.executable, "-P", str(ROOT / "tests/vm/host/ring.py")]
    nothing = subprocess.run([*ring, "-k", "no_such_test"], capture_output=True, text=True, check=False, timeout=120)
    assert (nothing.returncode, nothing.stdout.split("=====")[1][:14]) == (5, " no tests ran ")
    wrong = subprocess.run([*ring, "tests/vm/none.py"], capture_output=True, text=True, check=False, timeout=120)
    assert wrong.returncode == 1
    assert "\nERROR vm: the tests cannot be collected" in wrong.stdout
    assert "tests/vm/none.py" in wrong.stdout
    assert wrong.stdout.splitlines()[-1].startswith("===== 1 errors in ")


def packet(words: str) -> bytes:
    return f"${words}#{sum(words.encode()) % 256:02x}".encode()


def test_each_cpu_of_a_machine_that_stands_still_gets_its_own_instruction_written_back() -> None:
    first, second = (bytes(16 * 8) + address.to_bytes(8, "little") + bytes(64) for address in (0xFFFF_8000, 0x1234))
    answers = [packet("T02thread:01;") + packet("m01,02")[:4], packet("m01,02")[4:] + packet("l"), packet("OK"),
               packet(first.hex()), packet("90"), packet("OK"), packet("OK"), packet(second.hex()), packet("E14"),
               packet("OK")]  # fmt: skip
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"".join(answers))
        machine = Debugger(ours)
        machine.translate_again()
        machine.leave()
        said = theirs.recv(65536).replace(b"+", b"")
    words = ["qfThreadInfo", "qsThreadInfo", "Hg01", "g", "mffff8000,1", "Mffff8000,1:90", "Hg02", "g", "m1234,1", "D"]
    assert said == b"".join(map(packet, words))
