"""What is found after the machine was reset while steps ran: `mid_step.py` began them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.bulk import joblog
from nodectl.launch.container import LOCK
from vm import mid_step, service
from vm.service import SOCKET_UNIT, STEPS_UNIT, UNIT, wait_until

pytestmark = pytest.mark.reset
CONTAINERS = Path("/var/lib/nodectl/containers")


@pytest.fixture(autouse=True)
def served() -> Iterator[None]:
    """In place of the others' fixture: the service is looked at as the boot has left it."""
    yield
    assert "Traceback" not in service.logged()


@pytest.fixture(scope="module")
def before() -> dict[str, Any]:
    """What was noted before the first step began."""
    found: dict[str, Any] = json.loads(mid_step.NOTES.read_text())
    assert found["boot"] != mid_step.boot(), "the machine was not reset"
    return found


def cut_off(before: dict[str, Any]) -> list[int]:
    return [before["last"] + number for number in range(1, 1 + len(mid_step.STEPS))]


def test_service_is_there_after_a_boot_without_being_asked(before: dict[str, Any]) -> None:
    assert before
    for unit in (SOCKET_UNIT, UNIT, STEPS_UNIT):
        assert service.is_active(unit), unit
    assert service.shown("NRestarts") == "0"


def test_steps_that_a_reset_cut_off_are_recorded_as_node_fail(before: dict[str, Any]) -> None:
    records = [json.loads(service.nodectl("show", "--json", f"{job}.0")) for job in cut_off(before)]
    assert [record["name"] for record in records] == ["plain", "tasks", "suspended"]
    assert [record["user"] for record in records] == [user.split()[0] for user in mid_step.STEPS]
    for record in records:
        assert (record["state"], record["exit_status"]) == ("NODE_FAIL", 1)
        assert record["reason"] == "the machine was reset, or switched off, while the step ran"
        assert record["submitted"] < record["ended"]


def test_users_are_told_of_their_own_steps_that_a_reset_cut_off(before: dict[str, Any]) -> None:
    first, of_bob, _ = cut_off(before)
    assert "NODE_FAIL" in service.nodectl("show", f"{of_bob}.0", user="bob")
    assert service.run("nodectl", "show", f"{first}.0", user="bob").returncode != 0


def test_record_of_a_step_that_had_ended_before_the_reset_is_kept(before: dict[str, Any]) -> None:
    assert service.record(before["last"])["state"] == "COMPLETED"


def test_nothing_of_a_step_is_left_by_a_reset(before: dict[str, Any]) -> None:
    assert before
    assert mid_step.CONTAINERS in service.CONFIG.read_text()  # so their directories lay on the disk
    assert service.running_steps() == []
    service.assert_clean()
    wait_until(lambda: {path.name for path in CONTAINERS.iterdir()} <= {LOCK}, "no container is left")
    assert str(CONTAINERS) not in Path("/proc/self/mountinfo").read_text()
    assert mid_step.noted() == 0


def test_job_ids_go_on_after_a_reset_and_steps_run(before: dict[str, Any]) -> None:
    job = int(service.nodectl("run", "sh", "-c", "echo $SLURM_JOB_ID", user="alice"))
    assert job > cut_off(before)[-1]
    assert service.record(job)["state"] == "COMPLETED"


def test_commands_that_are_known_to_have_ended_have_their_outputs_and_the_others_run_again(
    before: dict[str, Any],
) -> None:
    """The log may not be ahead of the outputs: nobody would miss what a power cut has taken."""
    assert before
    kept, numbers = mid_step.home() / "bulk/1", range(1, mid_step.COMMANDS + 1)
    known = joblog.read(str(mid_step.home() / "bulk.log"))
    ended = [number for number in numbers if known.has_ended(number)]
    assert 0 < len(ended) < mid_step.COMMANDS
    for number in ended:
        assert (kept / str(number) / "stdout").read_text() == f"output {number}\n"
        assert json.loads((kept / str(number) / "usage").read_text())["seq"] == number
    again = service.nodectl("bulk", *mid_step.bulk("--resume"), user="alice")
    left = {f"output {number}" for number in set(numbers) - set(ended)}
    assert set(again.splitlines()) == left
    assert all((kept / str(number) / "stdout").read_text() == f"output {number}\n" for number in numbers)
