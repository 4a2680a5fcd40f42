"""What is left when everything of the service is killed at once: records, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.launch.container import LOCK
from vm import service
from vm.service import CGROUPS, Sleeper, wait_until
from vm.test_reset import CONTAINERS

pytestmark = pytest.mark.all

SERVICE = 'job_container_type = "job_container/namespace"\n'
SLICE = CGROUPS / service.SLICE[1:]


def processes(group: Path) -> set[int]:
    return {int(pid) for path in group.rglob("cgroup.procs") for pid in path.read_text().split()}


@pytest.fixture
def steps() -> list[Sleeper]:
    """Of two users, in containers; one has two tasks, one is suspended, one has a first process of its own."""
    begun = [Sleeper("alice"), Sleeper("bob", 0, "-n2", "--mem=300M"), Sleeper("alice", 0, "--container-ns=pid,net")]
    service.nodectl("suspend", str(begun[0].job))
    assert all((CONTAINERS / str(step.job)).is_dir() for step in begun)
    return begun


def assert_only_records_are_left(steps: list[Sleeper], pids: set[int]) -> None:
    for step in steps:
        service.finished(step.client)
    wait_until(service.is_active, "systemd has started another")
    for step in steps:
        found = service.record(step.job)
        assert (found["state"], found["exit_status"]) == ("NODE_FAIL", 1)
    service.assert_clean()
    wait_until(lambda: {path.name for path in CONTAINERS.iterdir()} <= {LOCK}, "no container is left")
    assert str(CONTAINERS) not in Path("/proc/self/mountinfo").read_text()
    service.assert_gone(*pids)
    assert service.nodectl("run", "echo", "served", user="alice") == "served\n"


def test_kill_of_all_that_is_the_services_own_leaves_only_records(steps: list[Sleeper]) -> None:
    own = {service.main_pid(), service.forkserver(), *(step.runner() for step in steps)}
    tasks = {pid for step in steps for pid in processes(step.group)}
    service.kill(*own)
    assert_only_records_are_left(steps, own | tasks)


def test_kill_of_every_process_with_the_users_own_leaves_only_records(steps: list[Sleeper]) -> None:
    pids = processes(SLICE)
    (SLICE / "cgroup.kill").write_text("1")
    assert_only_records_are_left(steps, pids)
