"""nodectl doctor about room: memory, disks, and who holds the service's place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodectl.cli.checks import room
from nodectl.cli.checks.check import OK, WARN
from nodectl.service.config_file import reader

MIB = 1 << 20
HOLD = """
import sys
file = open(sys.argv[1])
open("/proc/self/comm", "w").write(sys.argv[2])
print("ready", flush=True)
sys.stdin.read()
"""


def test_every_check_has_something_to_say_here(tmp_path: Path) -> None:
    keys = {"runtime_dir": str(tmp_path / "run"), "state_dir": str(tmp_path / "state")}
    found = list(room.all_checks(reader.build(keys)))
    assert [check.what for check in found] == ["memory", "runtime_dir", "state_dir"]
    assert all("MiB" in check.detail for check in found)


@pytest.mark.parametrize(("available", "level"), [(600, OK), (40, WARN)])
def test_little_memory_is_told(available: int, level: str) -> None:
    check = room.memory(available * MIB, 1000 * MIB)
    assert (check.level, check.detail) == (level, f"{available} of 1000 MiB are available")


def test_a_history_that_goes_with_the_machine_is_told() -> None:
    check = room.disk("state_dir", "/dev/shm/there/is/no/such")
    assert (check.level, check.detail.endswith("(tmpfs)")) == (WARN, True), check
    assert room.disk("runtime_dir", "/dev/shm").level == OK


@pytest.mark.parametrize(("name", "level"), [("nodectl-fork", WARN), ("nodectl", OK)])
def test_a_forkserver_that_holds_the_lock_without_its_daemon_is_named(tmp_path: Path, name: str, level: str) -> None:
    path = tmp_path / "lock"
    path.touch()
    command = [sys.executable, "-IS", "-c", HOLD, str(path), name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        (check,) = room.lock(str(path))
        holder.communicate()
    assert (check.level, f"{path} is held by {name} ({holder.pid})" in check.detail) == (level, True), check
    assert check.advice == (f"end process {holder.pid}" if level == WARN else "")
    assert list(room.lock(os.fspath(path))) == []
