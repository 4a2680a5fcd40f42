"""What a step is confined to where cgroup2 has the controllers: memory, processes, CPUs, at job and step level."""

from __future__ import annotations

from pathlib import Path

import pytest

from vm import service
from vm.service import CGROUPS, STEPS_GROUP, STEPS_UNIT, UNIT, Sleeper, wait_until

CONTROLLERS = {"cpuset", "memory", "pids", "cpu", "io"}
MIB = 1 << 20
# As many processes as it may have, told in one line.
BOMB = """
import os, time
made = 0
while True:
    try:
        if os.fork() == 0:
            time.sleep(100)
    except OSError as error:
        print(made, error.strerror, flush=True)
        os._exit(0)
    made += 1
"""


def configure(**values: object) -> None:
    """The service with these keys, until the test is over."""
    lines = (f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}" for name, value in values.items())
    service.write_config("\n".join(lines) + "\n")
    service.systemctl("restart", UNIT)


def read(group: Path, name: str) -> str:
    return (group / name).read_text().strip()


def used(group: Path) -> int:
    return int(read(group, "memory.current"))


def test_controllers_reach_the_tasks_and_the_daemon_is_none_of_them() -> None:
    step = Sleeper("alice", 0, "-n2")
    base = CGROUPS / STEPS_GROUP[1:]
    for group in (base.parent, base, step.group.parent, step.group, step.group / "user"):
        assert set(read(group, "cgroup.subtree_control").split()) == CONTROLLERS
        assert read(group, "cgroup.procs") == ""
    assert read(step.group / "user/task_1", "memory.events").startswith("low 0")
    assert read(CGROUPS / service.GROUP[1:], "cgroup.subtree_control") == ""
    assert step.let_go()[0] == 0


@service.configured("warm_runners = 0")  # its runner is forked for it alone, and charged to its job
def test_memory_asked_for_is_the_limit_of_job_and_step() -> None:
    step = Sleeper("alice", 0, "-n2", "--mem=300M")
    for group in (step.group.parent, step.group / "user"):
        assert [read(group, f"memory.{name}") for name in ("max", "high", "swap.max")] == [str(300 * MIB)] * 2 + ["max"]
    assert read(step.group / "stepd", "memory.max") == "max"  # the step runner is charged to the job, not to the step
    stepd = step.group / "stepd"
    assert used(stepd) > MIB
    # Read one after the other while the task's commands come and go.
    wait_until(lambda: used(step.group.parent) >= used(step.group / "user") + used(stepd) - MIB, "the job is charged")
    assert read(step.group / "user", "memory.oom.group") == "0"
    assert step.let_go()[0] == 0


@service.configured(
    'constrain_swap_space = "yes"',
    "allowed_ram_space = 50",
    "allowed_swap_space = 20",
    'task_plugin_param = "OOMKillStep"',
)
def test_swap_space_and_shares_of_memory_are_as_configured() -> None:
    step = Sleeper("alice", 0, "--mem=300M")
    user = step.group / "user"
    assert [read(user, f"memory.{name}") for name in ("max", "swap.max")] == [str(150 * MIB), str(60 * MIB)]
    assert read(user, "memory.oom.group") == "1"
    assert step.let_go()[0] == 0


def test_constraints_that_are_insisted_upon_can_be_kept_here() -> None:
    keys = ("cores", "ram_space", "swap_space", "processes", "cpu_time", "io", "devices")
    began = service.since()
    configure(**{f"constrain_{key}": "yes" for key in keys})
    assert service.nodectl("run", "--mem=64M", "echo", "served", user="alice") == "served\n"
    assert "not enforced" not in service.logged(began)


@pytest.mark.parametrize("verbs", [pytest.param(("restart",), marks=pytest.mark.all), ("stop", "start")])
def test_limits_outlive_the_daemon_and_hold_for_the_next_one(verbs: tuple[str, ...]) -> None:
    step = Sleeper("alice", 3, "--mem=300M")
    for verb in verbs:
        service.systemctl(verb, UNIT)
    assert read(step.group / "user", "memory.max") == str(300 * MIB)
    after = Sleeper("bob", 0, "--mem=200M")
    assert read(after.group / "user", "memory.max") == str(200 * MIB)
    assert [step.let_go()[0], after.let_go()[0]] == [3, 0]


@service.configured("max_processes_per_step = 40")
def test_fork_bomb_ends_at_its_limit_and_others_are_served() -> None:
    done = service.run("nodectl", "run", "python3", "-c", BOMB, user="alice")
    assert done.returncode == 0, done
    made, why = done.stdout.split(maxsplit=1)
    assert 30 <= int(made) < 40
    assert why == "Resource temporarily unavailable\n"
    assert service.nodectl("run", "echo", "served", user="bob") == "served\n"


def test_task_cannot_leave_its_cpus() -> None:
    script = "import os; os.sched_setaffinity(0, range(os.cpu_count())); print(len(os.sched_getaffinity(0)))"
    confined = service.nodectl("run", "--exact", "-c2", "python3", "-c", script, user="alice")
    assert int(confined) == 2
    configure(constrain_cores="no")
    assert int(service.nodectl("run", "--exact", "-c2", "python3", "-c", script, user="alice")) > 2


def test_steps_end_with_their_unit_and_the_next_are_served() -> None:
    step = Sleeper("alice")
    service.systemctl("restart", STEPS_UNIT)
    assert service.finished(step.client)[0] != 0
    wait_until(service.is_active, "the service is there")
    assert service.nodectl("run", "--mem=64M", "echo", "served", user="alice") == "served\n"


def test_steps_go_on_when_what_holds_their_cgroup_is_killed() -> None:
    step = Sleeper("alice", 4)
    (anchor,) = read((CGROUPS / STEPS_GROUP[1:]).parent / "anchor", "cgroup.procs").split()
    service.kill(int(anchor))
    assert step.let_go()[:2] == (4, "ran\n")
    wait_until(lambda: service.shown("MainPID", STEPS_UNIT) not in {"0", anchor}, "the unit is started anew")
    after = Sleeper("alice", 0, "--mem=300M")
    assert read(after.group / "user", "memory.max") == str(300 * MIB)
    assert after.let_go()[0] == 0


@pytest.mark.all
def test_an_epilog_is_not_held_to_what_its_user_asked_the_job_to_be_held_to() -> None:
    seen = Path("/run/nodectl-epilog")
    epilog = Path("/etc/nodectl/epilog")
    epilog.parent.mkdir(parents=True, exist_ok=True)
    limits = "memory.max memory.high pids.max cpu.max cpu.weight"
    group = "/sys/fs/cgroup$(sed -n 's/^0::\\(.*\\)\\/epilog$/\\1/p' /proc/self/cgroup)"
    epilog.write_text(f'#!/bin/sh\ncd "{group}" && cat {limits} > {seen}.new && mv {seen}.new {seen}\n')
    epilog.chmod(0o755)
    configure(epilog=str(epilog))
    try:
        # What lies in this memory stays charged to the job when its processes have gone.
        left = "/dev/shm/left-by-a-job"
        asked = ("--mem=64M", "--cpu-max=50", "--cpu-weight=1", "--pids-max=10")
        service.nodectl("run", *asked, "sh", "-c", f"head -c 50M /dev/zero > {left}; echo $SLURM_JOB_ID", user="alice")
        wait_until(seen.exists, "the epilog has run")
        assert seen.read_text().splitlines() == ["max", "max", "max", "max 100000", "100"]
    finally:
        Path(left).unlink(missing_ok=True)
        seen.unlink(missing_ok=True)
