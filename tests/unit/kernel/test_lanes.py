"""Commands that C runs one after the other, in lanes that share this process's memory until the programs begin."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alone import alone
from nodectl.kernel import _kernel, operations

SOON, LONG = 0.01, 60.0


class Play:
    """Lanes without a cgroup, a pipe for reports, and commands that write to a file."""

    def __init__(self, place: Path, count: int) -> None:
        self.out = place / "out"
        self.reports, self.report = os.pipe2(os.O_CLOEXEC)
        self.progress = memoryview(bytearray(2 * count))
        self.lanes = [self._lane(slot) for slot in range(count)]
        self.pids = [0] * count
        self.is_called = False

    def _lane(self, slot: int) -> object:
        launch = [
            operations.environment({"COMMON": "1", "SLURM_TASK_PID": ""}),
            *self.streams("/dev/null"),
            operations.close_others((self.report,)),
            operations.argv(["unused"]),
            operations.row(1, 0, ""),
            operations.execute(["/unused"], is_path=True, what="", behind=""),
        ]
        return _kernel.lane(launch, (self.report, -1, slot, "", self.progress, slot, 1), -1, "")

    @staticmethod
    def streams(out: str) -> list[tuple[int, int, int, bytes, bytes]]:
        return [
            operations.stream(number, -1, path, shared=True, what="open: ", behind="")
            for number, path in enumerate(("/dev/null", out, "/dev/null"))
        ]

    def command(self, *argv: str, out: str = "", **variables: str) -> list[tuple[int, int, int, bytes, bytes]]:
        program = operations.execute([argv[0]], is_path=True, what="execute: ", behind="")
        words = operations.environment(variables), operations.argv(argv)
        return [*self.streams(out or str(self.out)), *words, program]

    def shell(self, script: str, **variables: str) -> list[tuple[int, int, int, bytes, bytes]]:
        return self.command("/bin/sh", "-c", script, **variables)

    def run(self, *commands: Any, patience: float = LONG, pause: float = LONG, few: int = -1) -> tuple[list[Any], int]:
        lanes = list(zip(self.lanes, self.pids, strict=True))
        rows, error, self.is_called = _kernel.run_lanes(lanes, list(commands), [self.reports], patience, pause, few)
        for row in rows:
            self.pids[row[0]] = row[1] if len(row) == 3 else 0
        return rows, error

    def ended_early(self, *commands: Any) -> tuple[list[tuple[int, bool]], bytes]:
        """Runs the first command, which reports why it ends, and returns the ends and the report."""
        rows, _ = self.run(*commands)
        said = os.read(self.reports, 4096)
        if self.pids[0]:  # the report came before the end
            more, _ = self.run(*commands[1:])
            rows += more
        return ends(rows), said

    def close(self) -> None:
        os.close(self.reports)
        os.close(self.report)


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    one = Play(tmp_path, 1)
    yield one
    one.close()


def ends(rows: list[Any]) -> list[tuple[int, bool]]:
    return [(os.waitstatus_to_exitcode(row[1]), row[-1]) for row in rows if len(row) > 3]


@alone
def test_commands_of_a_lane_run_in_order_and_each_has_its_own_words(play: Play) -> None:
    script = 'echo "$0 $COMMON $OWN $SLURM_TASK_PID $$ ${OTHER-none}"; exit $0'
    commands = [play.command("/bin/sh", "-c", script, str(number), OWN=f"o{number}") for number in (0, 3, 4)]
    commands.append(play.command("/bin/sh", "-c", script, "0", OTHER="x"))
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    rows, error = play.run(*commands)
    assert error == 0
    assert ends(rows) == [(0, True), (3, True), (4, True), (0, True)]
    assert [len(row) for row in rows] == [3, 10] * 4
    pids = [row[1] for row in rows if len(row) == 3]
    said = [f"{number} 1 {own} {pid} {pid} {other}" for number, own, other, pid in zip(
        (0, 3, 4, 0), ("o0", "o3", "o4", ""), ("none", "none", "none", "x"), pids, strict=True
    )]  # fmt: skip
    assert play.out.read_text().splitlines() == said
    times = [row[2] for row in rows]
    assert times == sorted(times)
    assert before <= times[0]
    assert times[-1] <= time.clock_gettime(time.CLOCK_BOOTTIME)


@alone
def test_figures_of_a_command_are_its_own(play: Play) -> None:
    burn = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
    rows, _ = play.run(play.shell(burn), play.shell("head -c 100000 /dev/zero"), play.shell(":"))
    first, second, third = (row for row in rows if len(row) > 3)
    assert first[3] + first[4] > third[3] + third[4] >= 0
    assert second[7] >= 100_000 > third[7]
    assert min(row[5] for row in (first, second, third)) > 0


@alone
def test_lanes_run_beside_each_other(tmp_path: Path) -> None:
    play = Play(tmp_path, 2)
    os.mkfifo(tmp_path / "pipe")
    try:
        rows, error = play.run(play.shell(f"echo > {tmp_path}/pipe"), play.shell(f"read x < {tmp_path}/pipe"))
        assert (error, ends(rows)) == (0, [(0, True)] * 2)
        assert play.pids == [0, 0]
    finally:
        play.close()


@alone
def test_an_end_by_a_signal_is_the_callers_and_its_lane_takes_no_further_command(play: Play) -> None:
    rows, error = play.run(play.shell("kill -9 $$"), play.shell(":"))
    assert (error, ends(rows)) == (0, [(-signal.SIGKILL, False)])
    assert [len(row) for row in rows] == [3, 10]


@alone
def test_a_program_that_is_missing_is_reported_before_the_next_command(play: Play) -> None:
    assert play.ended_early(play.command("/nowhere/x"), play.shell(":")) == (
        [(2, False)], b'{"task":0,"failed":"execute: No such file or directory"}\0'
    )  # fmt: skip
    assert ends(play.run(play.shell(":"))[0]) == [(0, True)]


@alone
def test_a_stream_that_cannot_be_opened_is_reported(play: Play) -> None:
    ended, said = play.ended_early(play.command("/bin/true", out="/nowhere/out"), play.shell(":"))
    assert ended == [(1, False)]
    assert b"open: No such file" in said


@alone
def test_commands_inherit_no_descriptor(play: Play) -> None:
    rows, _ = play.run(play.shell("ls /proc/self/fd"))
    assert ends(rows) == [(0, True)]
    assert play.out.read_text().split() == ["0", "1", "2", "3"]  # the last is of ls itself


@alone
def test_the_caller_goes_on_when_a_descriptor_has_something(play: Play) -> None:
    os.write(play.report, b"x")
    rows, error = play.run(play.shell("sleep 60"), play.shell(":"))
    assert (error, [len(row) for row in rows], play.is_called) == (0, [3], True)
    os.kill(play.pids[0], signal.SIGTERM)
    assert os.read(play.reports, 10) == b"x"
    assert ends(play.run()[0]) == [(-signal.SIGTERM, False)]


@alone
def test_the_caller_goes_on_soon_after_the_first_begin(play: Play) -> None:
    rows, error = play.run(play.shell("sleep 60"), pause=SOON)
    assert (error, [len(row) for row in rows], play.is_called) == (0, [3], False)
    assert (play.run(play.shell(":"), patience=SOON), play.is_called) == (([], 0), True)
    os.kill(play.pids[0], signal.SIGTERM)
    assert ends(play.run()[0]) == [(-signal.SIGTERM, False)]


@alone
def test_a_child_of_another_kind_is_the_callers(play: Play) -> None:
    with subprocess.Popen(["/bin/true"]) as other:
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert (play.run(play.shell(":")), play.is_called) == (([], 0), True)
        assert other.wait() == 0
    assert ends(play.run(play.shell(":"))[0]) == [(0, True)]


@alone
def test_a_command_that_is_none_begins_nothing_and_loses_no_row(play: Play) -> None:
    wrong = [operations.umask(0)]
    rows, error = play.run(play.shell("exit 3"), wrong, play.shell(":"))
    assert error != 0
    assert ends(rows) == [(3, True)]
    rows, error = play.run(play.shell(":"), [])
    assert (error != 0, ends(rows)) == (True, [(0, True)])
    assert ends(play.run(play.shell(":"))[0]) == [(0, True)]


@alone
def test_few_waiting_commands_send_the_caller_for_more(play: Play) -> None:
    rows, _ = play.run(*[play.shell(":")] * 4, few=2)
    assert [len(row) for row in rows] == [3, 10, 3]  # it has begun one of three when it looks
    assert ends(play.run()[0]) == [(0, True)]


@alone
def test_a_lane_needs_a_launch_with_words() -> None:
    with pytest.raises(ValueError, match="no launch of a command"):
        _kernel.lane([operations.umask(0)], (-1, -1, 0, "", memoryview(bytearray(4)), 0, 1), -1, "")
    with pytest.raises(ValueError, match="Capsule"):
        _kernel.run_lanes([("x", 0)], [], [], 0.0, 0.0, 0)


@alone
def test_memory_and_descriptors_of_a_lane_go_with_it(tmp_path: Path) -> None:
    fds = len(os.listdir("/proc/self/fd"))
    maps = Path("/proc/self/maps").read_text().count("---p")
    play = Play(tmp_path, 3)
    assert Path("/proc/self/maps").read_text().count("---p") > maps
    play.close()
    play.lanes.clear()
    assert len(os.listdir("/proc/self/fd")) == fds
    assert Path("/proc/self/maps").read_text().count("---p") == maps
