"""The controllers of cgroup v2, enforced by the kernel where steps live."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from vm import service
from vm.memory_eater import BECOMES_THE_EATER, Eater, state
from vm.service import CGROUPS, STEPS_GROUP, STEPS_UNIT, UNIT, Sleeper, wait_until

BOMB = "x = bytearray(b'x') * (1 << 29)"
# Forks until it may not, and tells how often it could.
FORKS = """
import os, signal
children = []
try:
    while len(children) < 1000:
        if (pid := os.fork()) == 0:
            signal.pause()
        children.append(pid)
except BlockingIOError:
    print(len(children))
for pid in children:
    os.kill(pid, 9)
"""
ESCAPE = """
import os
wanted = set(range(os.sysconf("SC_NPROCESSORS_CONF")))
os.sched_setaffinity(0, wanted)
print(*sorted(os.sched_getaffinity(0)))
"""


def words(path: Path) -> set[str]:
    return set(path.read_text().split())


def test_controllers_reach_the_tasks_of_every_step() -> None:
    step = Sleeper("alice")
    for directory in (CGROUPS / STEPS_GROUP[1:], step.group.parent, step.group):
        assert words(directory / "cgroup.subtree_control") >= {"cpuset", "memory", "pids"}, directory
    assert step.let_go() == (0, "ran\n", "")


def test_step_beyond_its_memory_is_killed_and_neither_service_nor_other_steps() -> None:
    other, daemon = Sleeper("bob"), service.main_pid()
    bombed = service.run("nodectl", "run", "--mem=64M", "python3", "-c", BOMB, user="alice")
    assert bombed.returncode != 0
    assert service.main_pid() == daemon
    assert service.is_active(STEPS_UNIT)
    assert other.let_go() == (0, "ran\n", "")


def test_limits_of_the_unit_of_steps_are_limits_of_all_steps_together() -> None:
    other = Sleeper("bob")
    shell = other.task()
    service.kill(shell, number=signal.SIGSTOP)  # see memory_eater.py
    wait_until(lambda: all(state(pid) in "TZ" for pid in service.processes(other.group / "user")), "bob's step rests")
    service.limit_steps("MemoryMax=256M")
    try:
        eater = Eater("sh", "-c", BECOMES_THE_EATER)
        eater.eat()
        assert service.finished(eater.client)[0] != 0
    finally:
        service.limit_steps("MemoryMax=infinity")
    service.kill(shell, number=signal.SIGCONT)
    assert other.let_go() == (0, "ran\n", "")


@pytest.mark.all
def test_step_cannot_have_more_processes_than_it_may() -> None:
    service.write_config("max_processes_per_step = 40\n")
    service.systemctl("restart", UNIT)
    done = service.run("nodectl", "run", "python3", "-c", FORKS, user="alice")
    assert 20 < int(done.stdout) < 40
    assert ": reached its limit of 40 processes and threads: " in done.stderr


@pytest.mark.all
def test_task_cannot_leave_the_cpus_of_its_step() -> None:
    service.write_config('cpu_spec_list = "0"\n')
    service.systemctl("restart", UNIT)
    found = service.nodectl("run", "python3", "-c", ESCAPE, user="alice").split()
    assert found
    assert "0" not in found


def test_restart_is_possible_while_controllers_are_enabled_below() -> None:
    step = Sleeper("alice")
    service.systemctl("restart", UNIT)
    assert step.task()
    assert step.let_go() == (0, "ran\n", "")
