"""What a machine whose controllers belong to cgroup v1 says of constraints, and what of them does not need any."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import tree
from rootful.node import NOBODY, OTHER, Node, running, wait_until

# Those that a node of these tests can have: systemd does not hand all of the machine's down.
_CONTROLLERS = tree.Group(tree.find_mount() + cgroup_of()).core.controllers
UNLIMITED = "nodectl: warning: this machine does not limit {} of jobs; `nodectl doctor` says why\n"
_FIRST_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO
without_memory = pytest.mark.skipif("memory" in _CONTROLLERS, reason="this machine's cgroup2 has the memory controller")


@pytest.fixture(scope="module")
def with_shares() -> Iterator[Node]:
    with running(cpu_max=200) as started:
        yield started


@without_memory
@pytest.mark.parametrize(
    ("key", "controller"),
    [
        ("constrain_ram_space", "memory"),
        ("constrain_swap_space", "memory"),
        ("constrain_processes", "pids"),
        ("constrain_cpu_time", "cpu"),
        ("constrain_io", "io"),
    ],
)
def test_constraint_that_cannot_be_kept_is_refused_at_the_start(key: str, controller: str) -> None:
    node = Node(**{key: "yes"})
    try:
        started = subprocess.run(
            node.command("daemon"), capture_output=True, text=True, check=False, timeout=60, env=node.environment()
        )
        assert started.returncode == 1
        why = f"{key} = yes: {controller}: cgroup2 has no such controller here"
        line = f"nodectl daemon: {why} (`nodectl doctor` tells more; auto goes without)"
        assert started.stderr.splitlines()[-1] == line
        assert not tree.Group(node.base).exists()
    finally:
        node.close()


@without_memory
def test_what_is_not_enforced_is_said_once_at_the_start_and_to_who_asked() -> None:
    with running() as node:
        for _ in range(2):
            ended = node.run("--mem=64M", "true", user=NOBODY)
            assert ended.returncode == 0
            assert ended.stderr == UNLIMITED.format("memory")
        script = f"{shlex.join(node.command('run', '--mem=64M', 'true'))}\n" * 2
        said = node.scratch / "said"
        ended = node.nodectl(
            "submit", "--wait", "--mem=64M", f"--output={said}", user=NOBODY, stdin=f"#!/bin/sh\n{script}"
        )
        assert (ended.returncode, said.read_text()) == (0, UNLIMITED.format("memory"))
        ended = node.nodectl("alloc", "--mem=64M", "sh", "-c", script, user=NOBODY)
        assert (ended.returncode, ended.stderr.count(UNLIMITED.format("memory"))) == (0, 1), ended.stderr
        assert node.run("true", user=NOBODY).stderr == ""
        assert node.logged().count("constrain_ram_space: not enforced: memory: ") == 1
        assert "constrain_swap_space" not in node.logged()


@without_memory
def test_shares_that_are_not_enforced_are_told_to_who_asked_and_cannot_be_changed() -> None:
    with running(cpu_max=300, io_weight=50) as node:
        ended = node.run("--cpu-max=150%", "--cpu-weight=50", "true", user=NOBODY)
        assert ended.returncode == 0
        assert ended.stderr == UNLIMITED.format("CPU time")
        assert node.run("true", user=NOBODY).stderr == ""
        assert node.logged().count("cpu.max: not enforced: cpu: cgroup2 has no such controller here") == 1
        with node.popen("sh", "-c", "echo on; exec sleep 60", user=NOBODY) as step:
            assert step.stdout is not None
            assert step.stdout.readline() == "on\n"
            for option in ("--mem=64M", "--cpu-max=10%", "--pids-max=9", "--hugetlb-max=2MB:1G"):
                refused = node.nodectl("update", option, str(node.last_job()))
                assert refused.returncode == 1
                assert f" {option.partition('=')[0]}: not enforced: " in refused.stderr
            step.terminate()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--cpu-max=201%",), "--cpu-max: cpu.max = 201%: only root may exceed cpu.max = 200% of the configuration"),
        (("--cpu-max=max",), "--cpu-max: cpu.max = max: only root may exceed cpu.max = 200% of the configuration"),
        (("--cpu-max=0",), 'Invalid numeric value "0" for --cpu-max.'),
        (("--cpu-weight=101",), "cpu.weight = 101: only root may exceed cpu.weight = 100 of the configuration"),
        (("--cpu-weight=10001",), "--cpu-weight: 10001 is not from 1 to 10000"),
        (("--io-weight=200",), "io.weight = 200: only root may exceed io.weight = 100 of the configuration"),
        (("--io-max=/dev/no-such-disk:rbps=1M",), "--io-max: '/dev/no-such-disk': No such file or directory"),
        (("--io-max=/dev/null:rbps=1M",), "--io-max: '/dev/null' is no block device"),
        (("--io-max=/dev/fd/0:rbps=1M",), "--io-max: '/dev/fd/0': it leads out of /dev"),
        (("--io-max=/dev/../etc/passwd:rbps=1M",), "it leads out of /dev"),
        (("--io-max=/etc/passwd:rbps=1M",), "is neither a path below /dev nor MAJOR:MINOR"),
        (("--io-max=250:987654:rbps=1M",), "no block device has the numbers 250:987654"),
        (("--io-max=rbps=1M",), "is not DEVICE:FIGURE=NUMBER"),
        (("--io-max=7:0:speed=1M",), "'speed' is none of rbps, wbps, riops, wiops"),
        (("--io-max=7:0:rbps=fast",), "'fast' is neither a number from 1 nor max"),
        (("--io-max=7:0:wiops=99999999999T",), "is neither a number from 1 nor max"),
        (("--pids-max=0",), 'Invalid numeric value "0" for --pids-max.'),
        (("--hugetlb-max=2MB:lots",), "--hugetlb-max: '2MB:lots' is no size and its limit, as 2MB:1G"),
    ],
)
def test_share_that_makes_no_sense_or_is_too_much_is_refused(
    with_shares: Node, words: tuple[str, ...], reason: str
) -> None:
    refused = with_shares.run(*words, "true", user=NOBODY)
    assert refused.returncode == 1, refused
    (line,) = refused.stderr.splitlines()
    assert reason in line


def test_link_of_a_users_in_dev_shm_leads_nowhere(with_shares: Node) -> None:
    link = Path(f"/dev/shm/{with_shares.dir.name}")
    link.symlink_to("/dev/loop0")
    try:
        refused = with_shares.run(f"--io-max={link}:rbps=1M", "true", user=NOBODY)
        assert f"--io-max: '{link}': it leads out of /dev" in refused.stderr
    finally:
        link.unlink()


def test_update_of_what_cannot_be_updated_is_refused_in_one_line(with_shares: Node) -> None:
    assert with_shares.run("true", user=NOBODY).returncode == 0
    job = str(with_shares.last_job())
    for words, user, status, reason in (
        (("--mem=64M", job), NOBODY, 1, f"step {job}.0 has ended: COMPLETED"),
        (("--mem=64M", job), OTHER, 1, f"no step {job}.0 is running or in the history"),
        (("--mem=64M", "4000000000"), NOBODY, 1, "no step 4000000000.0 is running or in the history"),
        ((job,), NOBODY, 2, "nothing to change: give one of --time, "),
        (("--cpu-max=fast", job), NOBODY, 2, 'Invalid numeric value "fast"'),
    ):
        refused = with_shares.nodectl("update", *words, user=user)
        assert refused.returncode == status
        assert reason in refused.stderr.splitlines()[0]


def test_constraint_that_nobody_wants_is_not_spoken_of() -> None:
    keys = ("cores", "ram_space", "processes", "cpu_time", "io")
    with running(**{f"constrain_{key}": "no" for key in keys}) as node:
        assert node.run("true").returncode == 0
        assert "not enforced" not in node.logged()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"io_max": ["/dev/null:rbps=1"]}, "io_max: '/dev/null' is no block device"),
        ({"hugetlb_max": ["2MB"]}, "hugetlb_max: '2MB' is no size and its limit, as 2MB:1G"),
        ({"hugetlb_max": ["3MB:1G"]}, "hugetlb_max: "),
        ({"allowed_devices": ["null"]}, "allowed_devices: has 'null'; allowed: paths and patterns below /dev"),
    ],
)
@without_memory
def test_configuration_that_makes_no_sense_here_is_refused_at_the_start(config: dict[str, object], reason: str) -> None:
    node = Node(**config)
    try:
        with pytest.raises(AssertionError, match=re.escape(reason)):
            node.start()
    finally:
        node.close()


@pytest.mark.skipif("hugetlb" not in _CONTROLLERS, reason="cgroup2 has no hugetlb controller here")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="huge pages have other sizes here")
def test_memory_in_huge_pages_is_limited_at_job_and_step_level() -> None:
    with running(hugetlb_max=["2MB:1G"]) as node, node.popen("sh", "-c", "echo on; exec sleep 60") as step:
        assert step.stdout is not None
        assert step.stdout.readline() == "on\n"
        (job,) = Path(node.base).glob("job_*")
        for group in (job, job / "step_0/user"):
            assert (group / "hugetlb.2MB.max").read_text() == f"{1 << 30}\n"
        step.terminate()


def test_constraint_needs_the_plugin_that_keeps_it() -> None:
    node = Node(task_plugin=["task/affinity"], constrain_ram_space="yes")
    try:
        with pytest.raises(AssertionError, match="constrain_ram_space = yes: task/cgroup is not in task_plugin"):
            node.start()
    finally:
        node.close()


def test_step_that_wants_more_memory_than_there_is_is_refused(node: Node) -> None:
    node.stop()
    node.configure(real_memory=1000)
    node.start()
    for words in (("--mem=2G",), ("--mem-per-cpu=501", "-n2")):
        refused = node.run(*words, "true")
        assert refused.returncode == 1
        assert "MiB are more than the 1000 MiB of this machine" in refused.stderr
    both = node.run("--mem=1", "--mem-per-cpu=1", "true")
    assert "mutually exclusive" in both.stderr


def test_tasks_find_the_memory_asked_for_in_their_environment(node: Node) -> None:
    shown = node.run("--mem=1G", "sh", "-c", "echo $SLURM_MEM_PER_NODE $SLURM_MEM_PER_CPU")
    assert shown.stdout == "1024\n"
    shown = node.run("--mem-per-cpu=8M", "sh", "-c", "echo $SLURM_MEM_PER_NODE $SLURM_MEM_PER_CPU")
    assert shown.stdout == "8\n"


def test_record_tells_what_step_and_tasks_waited_for(node: Node) -> None:
    assert node.run("-n2", "sleep", "1.1").returncode == 0  # of tasks that were there for less it does not tell
    record = node.record(node.last_job())
    tasks = record["tasks"]
    assert isinstance(tasks, list)
    for used in (record, *tasks):
        waited = used["pressure"]
        assert set(waited) == {"cpu", "memory", "io"}
        assert all(0 <= full <= some for some, full in waited.values())
    assert record["victims"] == []
    assert "waited for" in node.nodectl("show", str(node.last_job())).stdout


def test_task_that_is_killed_is_not_said_to_have_run_out_of_memory(node: Node) -> None:
    ended = node.run("sh", "-c", "kill -KILL $$")
    assert (ended.returncode, "emory" in ended.stderr) == (128 + 9, False)
    record = node.record(node.last_job())
    assert (record["state"], record["reason"]) == ("FAILED", "task 0 was ended by signal 9")


@pytest.fixture
def v1_limit() -> Iterator[Path]:
    """A cgroup of v1's memory controller with little memory, as a site may have around its services."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    mount = next((words[1] for words in mounts if words[2] == "cgroup" and "memory" in words[3].split(",")), "")
    if not mount or not os.access("/dev/kmsg", os.R_OK):
        pytest.skip("memory does not belong to cgroup v1 here, or the kernel's log cannot be read")
    if os.stat("/proc/self/ns/pid").st_ino != _FIRST_PID_NAMESPACE:
        pytest.skip("the kernel's log names processes by numbers of another PID namespace")
    group = Path(mount, f"nodectl-test-{os.getpid()}")
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text("200M")
        yield group
    finally:
        wait_until(tree.Group(str(group)).remove, f"{group} is empty")


@without_memory
def test_out_of_memory_under_a_limit_of_others_is_known_also_where_a_shell_hides_it(v1_limit: Path) -> None:
    eat = "python3 -c 'x = bytearray(10**9)'"
    with running() as node:
        assert node.daemon is not None
        pid = node.daemon.pid
        for process in (pid, *Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):  # forkserver
            with contextlib.suppress(ProcessLookupError):  # who has just ended
                (v1_limit / "cgroup.procs").write_text(str(process))
        # The shell collects its program only then: the kernel tells the cgroup of a process until it is collected.
        hidden = f"{eat} & read go; wait; echo hidden; exit 0"
        for script, out in ((f"exec {eat}", ""), (hidden, "hidden\n")):
            told = node.scratch / "told"
            with told.open("w") as stderr:
                client = node.popen("sh", "-c", script, user=NOBODY, stdin=subprocess.PIPE, stderr=stderr)
            try:
                wait_until(lambda told=told: ": out of memory: " in told.read_text(), "the step is told")
            finally:
                stdout, _ = client.communicate("go\n", timeout=60)
            errors = told.read_text()
            assert (client.returncode, stdout) == (1, out), errors
            # The shell has a word of its own for it.
            line, task = (line for line in errors.splitlines() if line.startswith("nodectl: error: "))
            assert re.search(r": out of memory: task 0: killed process \d+ \(python3\)$", line)
            assert task.endswith(": task 0: Out Of Memory")
            record = node.record(node.last_job())
            assert record["state"] == "OUT_OF_MEMORY"
            assert str(record["reason"]) in line
