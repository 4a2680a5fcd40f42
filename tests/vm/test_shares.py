"""Shares of CPU time, of disks and of devices, where cgroup2 has the controllers: at job and step level."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from vm import service
from vm.service import Sleeper
from vm.test_limits import MIB, configure, read

# Until it has been kept waiting by the limit, which is the step's: that of the cgroup above its own.
COUNT = """
import os
with open("/proc/self/cgroup") as file:
    group = os.path.dirname(file.read().strip().removeprefix("0::"))
while True:
    with open(f"/sys/fs/cgroup{group}/cpu.stat") as file:
        if "throttled_usec 0" not in file.read().splitlines():
            break
    sum(range(100_000))
print(os.environ["SLURM_JOB_ID"])
"""


def disks(count: int = 1) -> list[Path]:
    """The machine's disks, at least so many, whatever their names are; else the test is skipped."""
    found = [
        Path("/dev", path.name)
        for path in sorted(Path("/sys/block").iterdir())
        if (path / "device").exists() and read(path, "removable") == "0"
    ]
    if len(found) < count:
        pytest.skip(f"needs {count} disks, here are {[str(path) for path in found]}")
    return found


@pytest.fixture
def disk() -> Path:
    """One that is written to by nobody else, where there is one."""
    return disks()[-1]


def numbers(disk: Path) -> str:
    number = disk.stat().st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


def test_shares_are_those_of_job_and_step(disk: Path) -> None:
    asked = ("--cpu-max=150%", "--cpu-weight=50", f"--io-max={disk}:rbps=1M,wiops=100", "--io-weight=10")
    step = Sleeper("alice", 0, *asked)
    for group, quota in ((step.group.parent, 160_000), (step.group / "user", 150_000)):
        assert read(group, "cpu.max") == f"{quota} 100000"
        assert read(group, "cpu.weight") == "50"
        assert read(group, "io.max") == f"{numbers(disk)} rbps=1048576 wbps=max riops=max wiops=100"
        assert read(group, "io.weight") == "default 10"
    assert step.let_go() == (0, "ran\n", "")


def test_what_nobody_asks_for_is_as_the_kernel_makes_it() -> None:
    step = Sleeper("alice")
    for group in (step.group.parent, step.group / "user"):
        assert [read(group, name) for name in ("cpu.max", "cpu.weight", "io.max")] == ["max 100000", "100", ""]
    assert step.let_go()[0] == 0


def test_configured_shares_are_for_all_and_only_root_exceeds_them(disk: Path) -> None:
    configure(cpu_max=100, cpu_weight=80, io_max=f"{disk}:rbps=2M,wbps=1M")
    step = Sleeper("alice", 0, f"--io-max={disk}:rbps=1M")
    user = step.group / "user"
    assert [read(user, "cpu.max"), read(user, "cpu.weight")] == ["100000 100000", "80"]
    assert read(user, "io.max") == f"{numbers(disk)} rbps=1048576 wbps=1048576 riops=max wiops=max"
    assert step.let_go()[0] == 0
    refused = service.run("nodectl", "run", f"--io-max={disk}:wbps=2M", "true", user="alice")
    assert refused.returncode == 1
    assert "only root may exceed io.max" in refused.stderr
    assert service.nodectl("run", f"--io-max={disk}:wbps=2M", "--cpu-max=max", "echo", "ran") == "ran\n"


def test_task_beyond_its_cpu_time_waits_and_the_record_tells() -> None:
    job = int(service.nodectl("run", "--cpu-max=20%", "python3", "-c", COUNT, user="alice"))
    assert service.record(job)["throttled_seconds"] > 0
    assert "over its CPU time" in service.nodectl("show", str(job))


def test_disk_is_read_no_faster_than_asked() -> None:
    first = disks()[0]  # of some size: the machine was started from it
    clock = "cut -d ' ' -f 1 /proc/uptime"
    script = (
        f"{clock}; dd if={first} of=/dev/null iflag=direct bs=64k count=64 status=none; {clock}; echo $SLURM_JOB_ID"
    )
    begin, end, job = service.nodectl("run", f"--io-max={first}:rbps=1M", "sh", "-c", script).split()
    assert float(end) - float(begin) > 2  # seconds: of 4 MiB no more than two can have come
    assert service.record(int(job))["read_bytes"] >= 4 * MIB


def test_what_is_no_disk_is_refused() -> None:
    for words, reason in (("/dev/no-disk:rbps=1M", "No such file"), ("/dev/tty:rbps=1M", "is no block device")):
        refused = service.run("nodectl", "run", f"--io-max={words}", "true", user="alice")
        assert refused.returncode == 1
        assert reason in refused.stderr


def test_devices_of_others_are_denied_under_systemd_too() -> None:
    places = [Path("/dev/nodectl-test1"), Path("/dev/nodectl-test2")]
    for place, disk in zip(places, disks(2)[-2:], strict=True):
        os.mknod(place, stat.S_IFBLK, disk.stat().st_rdev)
        place.chmod(0o666)
    try:
        configure(gres=f"Name=gpu File={places[0]}", constrain_devices="yes")
        look = f"(: <{places[0]}) 2>/dev/null && echo open || echo denied; (: <{places[1]}) && echo open"
        assert service.nodectl("run", "sh", "-c", look, user="alice") == "denied\nopen\n"
        assert service.nodectl("run", "--gpus=1", "sh", "-c", look, user="alice") == "open\nopen\n"
        client = service.start("sh", "-c", f"echo on; read line; {look}", user="alice", stdin=subprocess.PIPE)
        assert client.stdout is not None
        assert client.stdout.readline() == "on\n"
        service.systemctl("daemon-reload")  # systemd writes programs of its own anew
        assert client.communicate("go\n")[0] == "denied\nopen\n"
    finally:
        for place in places:
            place.unlink()
