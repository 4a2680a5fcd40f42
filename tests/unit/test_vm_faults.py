"""The vm ring when machines end before they should: whose fault it is, what stays proved, what runs again."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from vm import telling
from vm.host import qemu, ring, watch
from vm.host.lives import FAULTS, FIRST, LIVES, NODES, PACKAGE, QUEUE, RESET, Course, divided
from vm.host.records import Line, Records
from vm.host.watch import End, Fate, Watched, blame, end_of_itself, follow

ROOT = Path(__file__).resolve().parents[2]
BOOT = "SeaBIOS\nvm: 12.9 s: testing\ntests/vm/test_a.py::test_one PASSED\n"
PANIC = "[   61.5] Kernel panic - not syncing: stack-protector\n"
NMI = "[  300.1] Kernel panic - not syncing: NMI: Not continuing\n"
IDLE = "[  300.2] NMI backtrace for cpu 1\n[  300.2] RIP: 0010:default_idle+0x13/0x20\n"


def task(name: str, state: str, *trace: str) -> str:
    words = f"task:{name:<15} state:{state} stack:    0 pid:  812 ppid:     1 flags:0x00004002"
    return "".join(f"[  300.3] {line}\n" for line in (words, "Call Trace:", *(f" {call}+0x5/0x9" for call in trace)))


# --- whose fault it is -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "fate"),
    [
        (f"{BOOT}vm: 600 s: done\n[  601.0] reboot: Power down\n", Fate.OVER),
        (f"{BOOT}vm: 300 s: a reset in the middle of what now begins\n[  320.6] sysrq: Resetting\n", Fate.OVER),
        (f"{BOOT}{PANIC}", Fate.GUEST),
        (f"{BOOT}vm: 300 s: a reset in the middle of what now begins\n{PANIC}", Fate.GUEST),
        (BOOT, Fate.GUEST),
        ("SeaBIOS\nBooting from ROM..", Fate.UNKNOWN),
    ],
)
def test_machine_that_ends_of_itself_was_told_to_or_died(said: str, fate: Fate) -> None:
    assert end_of_itself(said).fate is fate


def test_kernel_that_complains_and_goes_on_is_told() -> None:
    end = end_of_itself(f"{BOOT}[   61.5] BUG: kernel NULL pointer dereference\nvm: 600 s: done\n")
    assert (end.fate, end.why) == (Fate.OVER, "its kernel complained: BUG: kernel NULL pointer dereference")


def test_what_a_test_prints_of_a_panic_is_none() -> None:
    assert watch.complaint("E   assert 'Kernel panic' in 'BUG: soft lockup'\n") == ""


@pytest.mark.parametrize("is_alive", [False, True])
@pytest.mark.parametrize(
    ("words", "fate"),
    [
        ("", Fate.EMULATOR),
        (f"{NMI}{IDLE}[  300.2]  asm_exc_int3+0x35/0x40\n", Fate.EMULATOR),
        (NMI + task("python3", "D", "cgroup_lock_and_drain_offline"), Fate.GUEST),
        (f"{NMI}[  300.2]  native_queued_spin_lock_slowpath+0x1a/0x1f0\n", Fate.GUEST),
    ],
)
def test_silent_machine_is_judged_by_what_its_kernel_answers(words: str, fate: Fate, *, is_alive: bool) -> None:
    assert blame(words, BOOT + words, is_alive=is_alive).fate is fate


@pytest.mark.parametrize(("is_alive", "fate"), [(False, Fate.UNKNOWN), (True, Fate.GUEST)])
def test_machine_whose_programs_run_is_not_the_emulators_fault(*, is_alive: bool, fate: Fate) -> None:
    waits_for_disk = task("jbd2/vda-8", "D", "io_schedule") + task("bash", "S", "do_wait")
    assert blame(NMI + IDLE + waits_for_disk, BOOT, is_alive=is_alive).fate is fate


def test_task_that_hangs_is_named_and_who_waits_for_a_disk_is_not() -> None:
    words = NMI + task("jbd2/vda-8", "D", "io_schedule") + task("stepd 7.0", "D", "mutex_lock") + task("sh", "S")
    assert blame(words, BOOT, is_alive=False).why == "hangs in the kernel: stepd 7.0"


# --- machines that are followed --------------------------------------------------------------


@contextmanager
def followed(script: str, tmp_path: Path, records: Records) -> Iterator[Watched]:
    """A shell in the place of QEMU, with its console and its serial line."""
    console, line = tmp_path / "console", tmp_path / "line"
    console.touch()
    heard = Line(line, records)
    words = ["sh", "-c", script.format(console=console, line=line)]
    with console.open() as lines:
        running = qemu.run(words, 100, tmp_path / "log")
        try:
            yield Watched(running, tmp_path / "log", lines, heard, tmp_path / "gdb")
        finally:
            qemu.end(running)
            heard.close()


def test_qemu_that_is_killed_is_the_emulators_fault_and_what_was_told_is_known(tmp_path: Path) -> None:
    records = Records()
    told = [{"begun": "a::one"}, {"ended": "a::one", "result": "passed", "seconds": 1}, {"begun": "a::two"}]
    script = "".join(f"echo '{json.dumps(one)}' >>{{line}}; ".replace('{"', '{{"').replace("}'", "}}'") for one in told)
    with followed(f'{script}printf \'{{{{"ended": "a::t\' >>{{line}}; kill -KILL $$', tmp_path, records) as machine:
        end = follow([machine])
    assert (end.fate, end.why) == (Fate.EMULATOR, "qemu ended with SIGKILL")
    assert (list(records.rows), records.running) == (["a::one"], "a::two")


def test_qemu_that_cannot_begin_tells_why(tmp_path: Path) -> None:
    said = "echo qemu: warning: TCG knows no such feature >&2; echo no such device >&2"
    with followed(f"{said}; exit 1", tmp_path, Records()) as machine:
        end = follow([machine])
    assert (end.fate, end.why) == (Fate.EMULATOR, "qemu ended with 1 no such device")


def test_machine_without_a_sign_of_life_whose_qemu_does_not_answer_is_the_emulators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LIFELESS", 0.5)
    with followed("echo vm: testing >>{console}; exec sleep 100", tmp_path, Records()) as machine:
        end = follow([machine])
    assert (end.fate, end.why, end.said) == (Fate.EMULATOR, "qemu does not answer", "vm: testing\n")


def test_machine_that_tells_that_it_lives_is_left_to_its_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LIFELESS", 0.5)
    lives = "for turn in 1 2 3 4 5 6 7 8; do echo '{{\"alive\": 1}}' >>{line}; sleep 0.2; done"
    with followed(f"{lives}; echo 'vm: 2 s: done' >>{{console}}", tmp_path, Records()) as machine:
        assert follow([machine]).fate is Fate.OVER


def test_stopped_qemu_is_ended(tmp_path: Path) -> None:
    with followed("kill -STOP $$", tmp_path, Records()) as machine:
        pass
    assert machine.process.returncode is not None


# --- what stays proved, and what runs again --------------------------------------------------


def course(**tests: list[str]) -> Course:
    return Course({life: tests.get(life, []) for life in LIVES})


def proved(course: Course, *tests: str, running: str = "") -> None:
    for test in tests:
        course.records.read(json.dumps({"ended": test, "result": "passed", "seconds": 1}))
    if running:
        course.records.read(json.dumps({"begun": running}))


def test_what_was_proved_stays_so_and_the_test_that_was_running_runs_again() -> None:
    ring = course(first=["a", "b", "c"], reset=["d"])
    ring.begin(LIVES)
    proved(ring, "a", running="b")
    ring.take(End(Fate.EMULATOR, "qemu does not answer"), 0)
    left = ring.begin(LIVES)
    assert (left[FIRST], left[RESET]) == (["b", "c"], ["d"])
    proved(ring, "b", "c", "d")
    ring.take(End(Fate.OVER), 0)
    assert ([row.result for row in ring.rows], ring.errors, ring.is_spoilt) == (["proved"] * 4, [], False)


def test_tests_that_go_on_where_others_ended_all_run_again_and_a_failure_is_not_forgotten() -> None:
    ring = course(queue=["a", "b", "c"])
    proved(ring, "a")
    ring.records.read(json.dumps({"ended": "b", "result": "failed", "seconds": 1, "why": "no"}))
    ring.take(End(Fate.EMULATOR, "qemu does not answer"), 0)
    assert ring.begin(LIVES)[QUEUE] == ["a", "b", "c"]
    assert [row.test for row in ring.rows] == ["b"]
    proved(ring, "a", "b", "c")
    assert [row.result for row in ring.rows] == ["proved", "failed", "proved"]


def test_kernel_that_dies_is_a_result_of_the_test_that_was_running_and_the_others_go_on() -> None:
    ring = course(first=["a", "b"])
    proved(ring, running="a")
    ring.take(End(Fate.GUEST, "its kernel died: Kernel panic", f"{BOOT}{PANIC}"), 0)
    assert ring.begin(LIVES)[FIRST] == ["b"]
    (row,) = ring.rows
    assert (row.test, row.result, row.why) == ("a", "error", "its kernel died: Kernel panic")
    assert PANIC in row.said


def test_kernel_that_dies_between_tests_is_an_error() -> None:
    ring = course(first=["a"])
    ring.take(End(Fate.GUEST, "its kernel died"), 0)
    assert ring.errors == ["its kernel died (while no test ran)"]


def test_test_in_which_machines_stand_still_twice_is_to_blame() -> None:
    ring = course(first=["a", "b"])
    for test in ("a", "b"):
        proved(ring, running=test)
        ring.take(End(Fate.UNKNOWN, "stands still"), 0)
        assert ring.begin(LIVES)[FIRST] == ["a", "b"]
    proved(ring, running="a")
    ring.take(End(Fate.UNKNOWN, "stands still"), 0)
    assert [(row.test, row.result) for row in ring.rows] == [("a", "error")]


def test_third_fault_spoils_the_ring_and_what_was_proved_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    spoilt = course(first=["a", "b"])
    proved(spoilt, "a")
    for turn in range(FAULTS):
        assert spoilt.may_go_on, turn
        spoilt.take(End(Fate.EMULATOR, "qemu does not answer"), 0)
    assert not spoilt.may_go_on
    assert ring._conclude(spoilt, 61.5) == ring.MACHINE == 3
    said = capsys.readouterr().out
    assert "MACHINE vm: 1 tests have no result: qemu does not answer" in said
    assert said.splitlines()[-1] == "===== 1 passed in 61.50s ====="


def test_spoilt_ring_with_a_failure_has_failed() -> None:
    counts = {"proved": 5, "failed": 1, "error": 0, "skipped": 0}
    assert ring.status(counts, is_spoilt=True) == 1
    assert ring.status({**counts, "failed": 0}, is_spoilt=True) == 3
    assert ring.status({**counts, "failed": 0}, is_spoilt=False) == 0


def test_seconds_of_lives_are_what_each_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", iter(range(100, 1000, 50)).__next__)
    ring = course(first=["a"], reset=["b"])
    for life in (FIRST, RESET):
        ring.records.read(json.dumps({"over": life}))
    ring.take(End(Fate.OVER), 80)
    assert ring.seconds == {FIRST: 70, RESET: 50}


def test_lives_without_time_in_the_gate_need_to_be_asked_for() -> None:
    marks = {
        "a": ["vm"],
        "b": ["all", "vm"],
        "c": ["reset", "vm"],
        "d": ["queue", "reset"],
        "e": ["deb"],
        "f": ["nodes"],
    }
    assert divided(marks, all_of_them=False) == {FIRST: ["a"], RESET: ["c"], QUEUE: [], PACKAGE: [], NODES: []}
    everything = divided(marks, all_of_them=True)
    assert everything == {FIRST: ["a", "b"], RESET: ["c"], QUEUE: ["d"], PACKAGE: ["e"], NODES: ["f"]}


# --- what is told in the machine -------------------------------------------------------------

TESTS = """
import pytest
@pytest.fixture
def bad():
    yield
    assert not "clean"
def test_one(): pass
def test_two(): assert 1 == 2
def test_three(bad): pass
@pytest.mark.skip(reason="not here")
def test_four(): pass
def test_five(): raise SystemExit("is not asked for")
"""


@pytest.fixture
def told(tmp_path: Path) -> list[dict[str, Any]]:
    """Records of four tests of a module; another one, which cannot be read, is not asked for."""
    (tmp_path / "test_a.py").write_text(TESTS)
    (tmp_path / "test_b.py").write_text("raise SystemExit('is not to be read')\n")
    only = tmp_path / "first.tests"
    only.write_text("".join(f"test_a.py::test_{name}\n" for name in ("one", "two", "three", "four")))
    host, machine = pty.openpty()
    environment = {**os.environ, telling.LINE: os.ttyname(machine), telling.ONLY: str(only),
                   "PYTHONPATH": str(ROOT / "tests"), "COLUMNS": "200"}  # fmt: skip
    words = ["-q", "-p", "vm.telling", "-p", "no:cacheprovider", "-c", "/dev/null"]
    command = [sys.executable, "-P", "-m", "pytest", *words, "--rootdir", str(tmp_path), str(tmp_path)]
    with ThreadPoolExecutor() as threads, os.fdopen(host, encoding="utf-8") as lines:
        heard = threads.submit(lambda: list(iter(lines.readline, "over\n")))
        try:
            done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=False, timeout=60)
        finally:
            os.write(machine, b"over\n")
            os.close(machine)
        return [json.loads(line) for line in heard.result()] or pytest.fail(done.stdout.decode())


def test_each_result_is_told_when_its_test_ends(told: list[dict[str, Any]]) -> None:
    names = [
        (kind, record[kind].partition("_a.py::test_")[2])
        for record in told
        for kind in record
        if kind in {"begun", "ended"}
    ]
    assert names == [(kind, name) for name in ("one", "two", "three", "four") for kind in ("begun", "ended")]
    ended = [record for record in told if "ended" in record]
    assert [record["result"] for record in ended] == ["passed", "failed", "error", "skipped"]
    assert [record["why"].partition("\n")[0] for record in ended] == [
        "", "assert 1 == 2", "AssertionError: assert not 'clean'", "not here",
    ]  # fmt: skip
    assert "def test_two" in ended[1]["said"]
