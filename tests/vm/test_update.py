"""Limits of running steps that are changed: who may, what is written, what tells of it, what is refused."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from vm import service
from vm.service import UNIT, Sleeper
from vm.test_limits import MIB, read
from vm.test_shares import disks, numbers

HOLD = "x = bytearray(b'x') * (120 << 20)"
TELL = "import os; print(os.environ['SLURM_JOB_ID'], flush=True)"


def update(step: Sleeper, *words: str, user: str = "") -> str:
    """What is complained of; "" when it was done."""
    done = service.run("nodectl", "update", *words, str(step.job), user=user)
    assert (done.returncode == 0) == (not done.stderr), done
    return done.stderr


def shown(step: Sleeper) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(service.nodectl("show", "--json", str(step.job)))
    return found


def memory(step: Sleeper) -> list[int]:
    return [int(read(group, f"memory.{name}")) // MIB
            for group in (step.group.parent, step.group / "user") for name in ("max", "high")]  # fmt: skip


def test_owner_lowers_and_only_an_admin_raises_and_the_record_tells() -> None:
    step = Sleeper("alice", 3, "--mem=300M", "--cpu-max=150%")
    assert update(step, "--mem=200M", "--cpu-max=50%", "--cpu-weight=20", user="alice") == ""
    user = step.group / "user"
    assert memory(step) == [200] * 4
    assert [read(user, "cpu.max"), read(user, "cpu.weight")] == ["50000 100000", "20"]
    assert read(step.group.parent, "cpu.max") == "60000 100000"
    for words, reason in (
        ("--mem=201M", "mem: only an admin may exceed the 200 MiB"),
        ("--mem=0", "mem: only an admin may exceed the 200 MiB"),
        ("--cpu-max=51%", "cpu.max = 51%: only an admin may exceed cpu.max = 50%"),
        ("--cpu-max=max", "cpu.max = max: only an admin may exceed cpu.max = 50%"),
        ("--cpu-weight=21", "cpu.weight = 21: only an admin may exceed cpu.weight = 20"),
    ):
        assert reason in update(step, words, user="alice")
    assert "belongs to alice" in update(step, "--mem=100M", user="bob")
    assert update(step, "--mem=250M", "--cpu-max=max") == ""
    assert memory(step) == [250] * 4
    assert read(user, "cpu.max") == "max 100000"
    assert (shown(step)["memory"], shown(step)["limits"]["memory.max"]) == (250, str(250 * MIB))
    assert step.let_go()[0] == 3
    record = service.record(step.job)
    assert (record["memory"], record["limits"]["cpu.weight"]) == (250, "20")
    assert "memory 250.0 MiB" in service.nodectl("show", str(step.job))


def test_limit_of_a_disk_comes_and_goes() -> None:
    step = Sleeper("alice")
    disk = disks()[-1]
    assert update(step, f"--io-max={disk}:rbps=1M", user="alice") == ""
    assert read(step.group / "user", "io.max") == f"{numbers(disk)} rbps=1048576 wbps=max riops=max wiops=max"
    assert update(step, f"--io-max={disk}:rbps=max") == ""
    assert read(step.group / "user", "io.max") == ""
    assert step.let_go()[0] == 0


def test_new_limits_survive_the_daemon() -> None:
    step = Sleeper("alice", 0, "--mem=300M")
    assert update(step, "--mem=200M", user="alice") == ""
    service.systemctl("restart", UNIT)
    assert memory(step) == [200] * 4
    assert shown(step)["memory"] == 200
    assert "only an admin may exceed the 200 MiB" in update(step, "--mem=250M", user="alice")
    assert update(step, "--mem=150M", user="alice") == ""
    assert memory(step) == [150] * 4
    assert step.let_go()[0] == 0
    assert service.record(step.job)["memory"] == 150


def started(*words: str) -> tuple[subprocess.Popen[str], int]:
    """A step of alice's that reads a line, and its job."""
    client = service.start(*words, user="alice", stdin=subprocess.PIPE)
    assert client.stdout is not None
    return client, int(client.stdout.readline())


def go_on(client: subprocess.Popen[str]) -> tuple[int, str, str]:
    assert client.stdin is not None
    client.stdin.write("go\n")
    client.stdin.flush()
    return service.finished(client)


def test_memory_in_use_is_not_taken_away() -> None:
    client, job = started("--mem=300M", "python3", "-c", f"{HOLD}; {TELL}; input()")
    refused = service.run("nodectl", "update", "--mem=100M", str(job), user="alice")
    assert refused.returncode == 1
    assert "MiB of memory, which cannot be lowered to 100 MiB; its limits are as they were" in refused.stderr
    record = json.loads(service.nodectl("show", "--json", str(job)))
    assert record["limits"]["memory.max"] == str(300 * MIB)
    service.nodectl("update", "--mem=200M", str(job), user="alice")
    assert go_on(client)[0] == 0


def test_step_runs_out_of_memory_at_its_new_limit() -> None:
    client, job = started("--mem=300M", "python3", "-c", f"{TELL}; input(); {HOLD}")
    service.nodectl("update", "--mem=64M", str(job), user="alice")
    status, _, told = go_on(client)
    assert status == 1
    assert "(python3) at the limit of 64 MiB" in told
