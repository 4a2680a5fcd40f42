"""How often the service is asked, and what becomes of its answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.client.command import Failed
from nodectl.client.session import Session
from nodectl.launch.cgroup.usage import UsageReader
from nodectl.view.live.watcher import Watcher

STEP: dict[str, Any] = {
    "job": 7, "step": 0, "restart": 0, "name": "so\x1b[31m", "user": "alice", "node": "n1", "command": ["a", "b c"],
    "ntasks": 1, "cpus": "3", "state": "RUNNING", "submitted": 1.0, "started": 2.0, "cgroup": "/g/job_7/step_0",
}  # fmt: skip
JOB: dict[str, Any] = {
    "job": 8, "id": "8", "name": "next", "user": "bob", "state": "PENDING", "reason": "Resources",
    "words": "none is free", "tasks": 2, "cpus": 2, "cpu_list": "", "gres": "", "used": 0.0, "command": ["c"],
}  # fmt: skip


class Service:
    """Answers as a session does, and counts."""

    def __init__(self, steps: list[dict[str, Any]], jobs: list[dict[str, Any]]) -> None:
        self.steps, self.jobs = steps, jobs
        self.asked: list[str] = []
        self.clock = 100.0
        self.costs = self.costs_of_usage = 0.0
        self.pinned = True
        self.fails = False
        self.used: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = [{"name": "n1", "state": "IDLE", "reason": ""}]

    rows: Any = Session.rows

    def call(self, method: str, fds: Sequence[int] = (), **parameters: int) -> Any:
        assert not fds
        self.asked.append(method)
        self.clock += self.costs
        if self.fails:
            raise Failed("no service at /run/x")
        if method == "Nodes":
            return {"nodes": self.nodes}
        if method == "Hello":
            return {"node": "n1"}
        if method == "Usage":
            self.clock += self.costs_of_usage
            return {"steps": self.used}
        if method == "Show":
            tasks = [{"task": 0, "cpus": "1"}] if self.pinned else [{"task": 0, "pid": 5}]
            return {"record": {**STEP, "job": parameters["job"], "tasks": tasks}}
        found = self.steps if method == "List" else self.jobs
        part = found[parameters.get("skip", 0) :][:2]
        return {"steps": part, "jobs": part, "more": parameters.get("skip", 0) + 2 < len(found)}

    def close(self) -> None:
        pass


@pytest.fixture
def service() -> Service:
    return Service([STEP], [JOB])


def watching(service: Service, mount: str = "/nowhere") -> Watcher:
    session: Any = service
    return Watcher(lambda: session, UsageReader(mount), lambda: service.clock)


def test_a_look_is_three_calls_and_a_new_step_one_more(service: Service) -> None:
    watch = watching(service)
    for _ in range(10):
        service.clock += 1
        watch.look()
    assert service.asked == ["List", "Queue", "Nodes", "Show", *["List", "Queue", "Nodes"] * 9]


def test_the_machine_has_its_name_also_where_nothing_runs() -> None:
    service = Service([], [])
    watch = watching(service)
    for _ in range(2):
        service.clock += 1
        assert watch.look().node == "n1"
    assert service.asked == ["List", "Queue", "Nodes", "Hello", "List", "Queue", "Nodes"]


def test_a_row_has_the_command_as_it_was_typed_and_how_far_a_bulk_is() -> None:
    bulk = {**STEP, "commands": {"done": 3, "failed": 1, "total": 6}}
    job = {**JOB, "command": ["wrap", "make -j4"]}
    rows = watching(Service([bulk], [job])).look().rows
    assert [(row.reason, row.command) for row in rows] == [
        ("3 of 6 done, 1 failed", "a 'b c'"), ("Resources: none is free", "make -j4"),
    ]  # fmt: skip


def test_a_look_says_that_the_machine_is_drained_and_why(service: Service) -> None:
    watch = watching(service)
    assert watch.look().away == ""
    service.nodes = [{"name": "n1", "state": "DRAINING", "reason": "new\x1b disk"}]
    assert watch.look(at_once=True).away == "DRAINING: new\\x1b disk"
    service.nodes.append({"name": "n2", "state": "DOWN", "reason": ""})
    assert watch.look(at_once=True).away == "n1 DRAINING: new\\x1b disk; n2 DOWN"


def test_a_row_has_the_limit_of_memory_in_bytes_and_the_picture_the_name_of_a_task_of_an_array() -> None:
    step = {**STEP, "memory": 2048, "array_job": 5, "array_task": 3}
    job = {**JOB, "job": 7, "id": "5_3", "state": "RUNNING", "array_job": 5, "array_task": 3}
    theirs = {**JOB, "state": "RUNNING", "cpu_list": "1", "array_job": 8, "array_task": 0}
    view = watching(Service([step], [job, theirs])).look()
    assert view.rows[0].memory_limit == 2 << 30
    assert [one.name for one in view.occupation.jobs] == ["5_3", "8_0"]


def test_a_job_that_two_replies_tell_of_stands_there_once() -> None:
    jobs = [{**JOB, "id": name} for name in ("8", "9", "9", "10")]
    assert [row.name for row in watching(Service([], jobs)).look().rows] == ["8", "9", "10"]


def test_a_step_whose_tasks_are_not_known_is_not_asked_about_for_ever(service: Service) -> None:
    service.pinned = False
    watch = watching(service)
    for _ in range(20):
        service.clock += 1
        watch.look()
    assert service.asked.count("Show") == 5


def test_a_service_that_answers_slowly_is_asked_less_often(service: Service) -> None:
    service.costs = 0.015  # a long queue
    watch = watching(service)
    begin = service.clock
    while service.clock < begin + 100:
        service.clock += 1
        assert watch.look().waiting == 1
    assert len(service.asked) * service.costs <= 0.012 * 100
    asked = len(service.asked)
    watch.look(at_once=True)
    assert len(service.asked) == asked + 3


def test_long_lists_come_in_several_replies(service: Service) -> None:
    service.jobs = [{**JOB, "job": number, "id": str(number)} for number in range(8, 13)]
    assert [row.name for row in watching(service).look().rows] == ["7.0", "8", "9", "10", "11", "12"]


def test_what_was_there_stays_when_the_service_does_not_answer(service: Service) -> None:
    watch = watching(service)
    rows = watch.look().rows
    service.fails = True
    service.clock += 10
    view = watch.look()
    assert (view.problem, view.rows) == ("no service at /run/x", rows)
    service.fails = False
    assert not watch.look().problem


def test_a_row_has_rates_between_looks_and_no_control_characters(service: Service, tmp_path: Path) -> None:
    group = tmp_path / "g/job_7/step_0/user"
    group.mkdir(parents=True)
    (group / "memory.current").write_text("1048576\n")
    (group / "cpu.pressure").write_text("some avg10=7.50 avg60=1.00 avg300=0.00 total=5\n")
    watch = watching(service, str(tmp_path))
    for spent, read in ((1_000_000, 0), (4_000_000, 4096)):
        service.clock += 2
        (group / "cpu.stat").write_text(f"usage_usec {spent}\nuser_usec 5\n")
        (group / "io.stat").write_text(f"8:0 rbytes={read} wbytes=0 rios=1\n8:16 rbytes=0 wbytes=10 rios=1\n")
        row, waiting = watch.look().rows
    assert (row.cpu, row.read, row.written, row.memory) == (1.5, 2048.0, 0.0, 1 << 20)
    assert (row.pressure, row.title, row.command) == ({"cpu": 7.5}, "so\\x1b[31m", "a 'b c'")
    assert (waiting.waits, waiting.reason, waiting.cpu) == (True, "Resources: none is free", None)


def test_other_users_jobs_are_in_the_picture_though_their_steps_are_not_told(service: Service) -> None:
    service.jobs.append({**JOB, "job": 9, "id": "9", "state": "RUNNING", "cpu_list": "2-3", "user": "carol"})
    view = watching(service).look()
    assert [view.occupation.label(cpu) for cpu in range(4)] == ["A0", "A", "B", "B"]
    assert [(row.name, row.key, row.is_step) for row in view.rows] == [
        ("7.0", "A", True), ("8", "", False), ("9", "B", False),
    ]  # fmt: skip


def test_what_a_step_without_a_cgroup_uses_the_service_tells_and_of_others_their_cgroup(
    service: Service, tmp_path: Path
) -> None:
    group = tmp_path / "g/job_7/step_0/user"
    group.mkdir(parents=True)
    (group / "memory.current").write_text("1048576\n")
    service.steps = [STEP, {**STEP, "job": 8, "cgroup": ""}]
    told: dict[str, Any] = {"cpu_seconds": 1.0, "memory": 5, "read": None, "written": None, "pressure": {}}
    service.used = [{"job": job, "step": 0, **told} for job in (7, 8)]
    watch = watching(service, str(tmp_path))
    rows = watch.look().rows
    assert [row.memory for row in rows if row.is_step] == [1 << 20, 5]
    service.steps = [STEP]
    watch.look(at_once=True)
    assert service.asked.count("Usage") == 1


def test_the_time_in_which_the_service_looks_at_processes_counts_as_its_work(service: Service) -> None:
    service.steps = [{**STEP, "cgroup": ""}]
    service.costs_of_usage = 0.04
    watch = watching(service)
    begin = service.clock
    while service.clock < begin + 100:
        service.clock += 1
        watch.look()
    assert 0 < service.asked.count("Usage") * service.costs_of_usage <= 0.012 * 100


def test_what_steps_of_several_nodes_use_their_cluster_tells(service: Service) -> None:
    """Rates are those between two answers, also where it is looked more often than asked."""
    service.steps = [{**STEP, "nodes": [], "cgroup": ""}]
    watch = watching(service)
    for seconds in (10.0, 16.0):
        service.clock += 2
        told = {"cpu_seconds": seconds, "memory": 5, "read": None, "written": 0, "pressure": {"io": 1.5}}
        service.used = [{"job": 7, "step": 0, **told}]
        watch.look(at_once=True)
    watch._due = service.clock + 10
    service.clock += 1
    row = watch.look().rows[0]
    assert (row.cpu, row.memory, row.read, row.written, row.pressure) == (3.0, 5, None, 0.0, {"io": 1.5})
