"""Steps that stand still, and tasks that hang in the kernel, on a machine with a file system to freeze."""

from __future__ import annotations

import json
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from vm import service
from vm.service import Sleeper, wait_until
from vm.test_limits import read

_KIBIBYTES = 8192
_CACHED = 64  # MiB


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Path]:
    """A directory where who writes hangs in the kernel, until the test is over."""
    image, mounted = tmp_path / "image", tmp_path / "mounted"
    tmp_path.parent.chmod(0o755)
    tmp_path.parent.parent.chmod(0o755)
    tmp_path.chmod(0o755)
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(_KIBIBYTES << 10)
    for words in ("modprobe loop", f"mkfs.ext4 -q {image}", f"mount -o loop {image} {mounted}", f"chmod 777 {mounted}"):
        subprocess.run(words.split(), check=True)
    subprocess.run(["fsfreeze", "--freeze", mounted], check=True)
    try:
        yield mounted
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", mounted], check=False)
        subprocess.run(["umount", "--lazy", mounted], check=True)


def hangs(pid: int) -> bool:
    """On the frozen file system: a program that is being read from a disk hangs, too, but not for long."""
    return "percpu_rwsem" in Path(f"/proc/{pid}/wchan").read_text()


def stands_still(group: Path) -> bool:
    """Whether nothing runs there for a second. Who was about to end when it was frozen may take a moment of it."""
    before = read(group, "cpu.stat").splitlines()[0]
    assert service.run("sleep", "1").returncode == 0
    return read(group, "cpu.stat").splitlines()[0] == before


def test_suspended_step_uses_no_cpu_and_is_freed_to_end_well() -> None:
    step = Sleeper("alice", 5, "--mem=100M")
    service.nodectl("suspend", str(step.job), user="alice")
    assert "frozen 1" in read(step.group / "user", "cgroup.events")
    (shown,) = json.loads(service.nodectl("ps", "--json", user="alice"))["steps"]
    assert shown["state"] == "SUSPENDED"
    wait_until(lambda: stands_still(step.group / "user"), "nothing of it runs")
    service.nodectl("resume", str(step.job), user="alice")
    assert step.let_go()[:2] == (5, "ran\n")


def test_memory_of_a_suspended_job_is_given_to_others() -> None:
    ready = Path(pwd.getpwnam("alice").pw_dir) / "written"
    ready.unlink(missing_ok=True)
    script = f"dd if=/dev/zero of=cache bs=1M count={_CACHED} conv=fsync 2>/dev/null; touch written; exec sleep 600"
    service.nodectl("submit", "--output=/dev/null", f"--chdir={ready.parent}", "--wrap", script, user="alice")
    wait_until(ready.exists, "its file is in memory")
    job, _ = service.only_running()
    group = service.CGROUPS / service.STEPS_GROUP[1:] / f"job_{job}"
    before = int(read(group, "memory.current"))
    assert before > _CACHED << 20
    service.nodectl("suspend", str(job))
    wait_until(lambda: int(read(group, "memory.current")) < before - (_CACHED << 19), "half of it is free again")
    service.nodectl("cancel", str(job))
    wait_until(lambda: not group.exists(), "the job is over")


@pytest.mark.all
@service.configured("suspend_grace_time = 0")
def test_process_that_hangs_in_the_kernel_is_named_when_it_cannot_be_suspended(frozen: Path) -> None:
    client = service.start("touch", str(frozen / "file"), user="alice")
    job, task = service.only_running()
    wait_until(lambda: hangs(task), "it hangs")
    done = service.run("nodectl", "suspend", f"{job}.0")
    assert done.returncode == 1
    assert done.stderr.endswith(f"hanging in the kernel, not suspended: {task}\n")
    subprocess.run(["fsfreeze", "--unfreeze", frozen], check=True)
    service.nodectl("resume", f"{job}.0")
    assert service.finished(client)[0] == 0


@service.configured("unkillable_step_timeout = 2", "kill_wait = 1")
def test_task_that_does_not_die_is_given_up_in_time_and_told(frozen: Path) -> None:
    # What hangs would keep the client's own pipes open.
    client = service.start("-o", "none", "-e", "none", "touch", str(frozen / "file"), user="alice")
    job, task = service.only_running()
    wait_until(lambda: hangs(task), "it hangs")
    service.nodectl("signal", "-s", "KILL", str(job), user="alice")
    status, _, told = service.finished(client)
    assert status == 1
    assert f"task 0: process {task} does not die" in told
    record = service.record(job)
    assert record["state"] == "CANCELLED"
    assert f"processes [{task}] do not die" in record["unkillable"]
    assert service.nodectl("run", "echo", "served", user="alice") == "served\n"
    subprocess.run(["fsfreeze", "--unfreeze", frozen], check=True)
    service.assert_gone(task)
