"""Limits of running steps that are changed: who may, what is written, what tells of it, what is refused."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vm import service
from vm.service import CGROUPS, SLICE, STEPS_GROUP, UNIT, Sleeper, wait_until
from vm.test_limits import BOMB, MIB, configure, read
from vm.test_shares import disks, numbers

HOLD = "x = bytearray(b'x') * (120 << 20)"
# Anonymous memory in huge pages (MAP_PRIVATE, MAP_HUGETLB), touched page by page.
TWO_HUGE_PAGES = """
import mmap
pages = mmap.mmap(-1, 4 << 20, 0x40002)
pages[0] = 1
print("one", flush=True)
pages[2 << 20] = 1
print("two", flush=True)
"""
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
    assert "no step" in update(step, "--mem=100M", user="bob")
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


@pytest.mark.all
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


def test_processes_that_a_step_may_have_are_fewer_from_then_on() -> None:
    client, job = started("python3", "-c", f"{TELL}; input()\n{BOMB}")
    group = CGROUPS / STEPS_GROUP[1:] / f"job_{job}"
    assert service.nodectl("update", "--pids-max=30", str(job), user="alice") == ""
    assert [read(group, "pids.max"), read(group / "step_0/user", "pids.max")] == ["94", "30"]
    refused = service.run("nodectl", "update", "--pids-max=31", str(job), user="alice")
    assert "pids.max = 31: only an admin may exceed pids.max = 30" in refused.stderr
    status, out, told = go_on(client)
    made, why = out.split(maxsplit=1)
    assert (status, why) == (0, "Resource temporarily unavailable\n")
    assert 20 <= int(made) < 30
    assert "reached its limit of 30 processes and threads" in told
    assert service.record(job)["limits"]["pids.max"] == "30"


@pytest.fixture
def huge_pages() -> Iterator[None]:
    """Of 2 MiB, counted in cgroups: a controller of which systemd does not know, and which it leaves alone."""
    pages = Path("/proc/sys/vm/nr_hugepages")
    steps = CGROUPS / STEPS_GROUP[1:]
    above = (CGROUPS, CGROUPS / SLICE[1:], steps.parent, steps)
    pages.write_text("8")
    for group in above[:2]:
        (group / "cgroup.subtree_control").write_text("+hugetlb")
    try:
        yield
    finally:
        service.assert_clean()
        for group in reversed(above):
            (group / "cgroup.subtree_control").write_text("-hugetlb")
        pages.write_text("0")


@pytest.mark.all
@pytest.mark.usefixtures("huge_pages")
def test_huge_pages_that_a_step_may_have_are_fewer_from_then_on() -> None:
    configure(hugetlb_max="2MB:8M")
    client, job = started("python3", "-c", f"{TELL}; input()\n{TWO_HUGE_PAGES}")
    group = CGROUPS / STEPS_GROUP[1:] / f"job_{job}"
    assert read(group / "step_0/user", "hugetlb.2MB.max") == str(8 * MIB)
    assert service.nodectl("update", "--hugetlb-max=2MB:2M", str(job), user="alice") == ""
    assert [read(one, "hugetlb.2MB.max") for one in (group, group / "step_0/user")] == [str(2 * MIB)] * 2
    for words, reason in (
        ("--hugetlb-max=2MB:4M", "only an admin may exceed hugetlb.2MB.max = 2097152"),
        ("--hugetlb-max=1GB:0", "--hugetlb-max: not enforced: hugetlb_max of the configuration does not name this"),
    ):
        assert reason in service.run("nodectl", "update", words, str(job), user="alice").stderr
    assert "pages of 2MB 2.0 MiB" in service.nodectl("show", str(job))
    status, out, _ = go_on(client)
    assert (status, out) == (128 + signal.SIGBUS, "one\n")
    assert service.nodectl("run", "python3", "-c", TWO_HUGE_PAGES, user="alice") == "one\ntwo\n"
    assert (
        service.run("nodectl", "run", "--hugetlb-max=2MB:0", "python3", "-c", TWO_HUGE_PAGES, user="alice").stdout == ""
    )


@pytest.mark.all
def test_step_whose_container_is_being_made_begins_with_its_new_limits() -> None:
    """Between the birth of its job's cgroup and that of its own."""
    script, go = Path("/etc/nodectl/wait"), Path("/run/nodectl-test-go")
    script.write_text(f"#!/bin/sh\nuntil [ -e {go} ]; do sleep 0.1; done\n")
    script.chmod(0o755)
    try:
        configure(
            job_container_type="job_container/namespace", container_init_script=str(script), container_script_timeout=0
        )
        client = service.start("--mem=300M", "sh", "-c", "echo on; read line", user="alice", stdin=subprocess.PIPE)
        wait_until(lambda: bool(service.running_steps()), "the step is there")
        (job,) = service.running_steps()
        user = CGROUPS / STEPS_GROUP[1:] / f"job_{job}/step_0/user"
        assert not user.exists()
        words = ("--mem=200M", "--pids-max=30", "--cpu-max=50%")
        assert service.nodectl("update", *words, str(job), user="alice") == ""
        assert "200 MiB" in service.run("nodectl", "update", "--mem=201M", str(job), user="alice").stderr
        assert not user.exists()
        go.touch()
        assert client.stdout is not None
        assert client.stdout.readline() == "on\n"
        for group in (user, user.parent.parent):
            assert [read(group, "memory.max"), read(group, "memory.high")] == [str(200 * MIB)] * 2
        assert [read(user, "pids.max"), read(user, "cpu.max")] == ["30", "50000 100000"]
        assert go_on(client)[0] == 0
        assert service.record(job)["memory"] == 200
    finally:
        go.touch()
        script.unlink()
        service.assert_clean()
        go.unlink()
