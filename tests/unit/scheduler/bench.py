"""A queue over a described machine with a real select plugin, and the few words that its tests need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any

from nodectl.lab.simulation.described import nodes_of
from nodectl.model.states import RUNNING
from nodectl.placement.binding.request import Settings
from nodectl.scheduler.decisions import Decision, Start
from nodectl.scheduler.policy import Policy, UserLimits, qos_lines
from nodectl.scheduler.scheduler import Scheduler
from nodectl.selection.host import Selection
from nodectl.selection.loading import caller_of, load_plugin
from nodectl.selection.records import BATCH, JobDetails, JobRecord
from nodectl.selection.slurmctld import Parameters

NOW = 1_000_000.0
PLAIN = Policy(priority_weight_fairshare=0, max_wait=0)


def selection_of(nodes: str = "1s:8c:1t,mem=8G,gpu=4", plugin: str = "select/cons_tres", **given: Any) -> Selection:
    caller = caller_of(0)
    parameters = replace(Parameters(Settings()), **given)
    selection = Selection(load_plugin(plugin, (), caller), nodes_of(nodes), caller, parameters=parameters)
    selection.start("/nonexistent")
    return selection


class Bench:
    """`at` is the time; `started` the jobs of all Start decisions, in order."""

    def __init__(self, policy: Policy = PLAIN, nodes: str = "1s:8c:1t,mem=8G,gpu=4", **given: Any) -> None:
        self.at = NOW
        self.selection = given.pop("selection", None) or selection_of(nodes, **given)
        self.numbers = count(1)
        self.ended: dict[tuple[int, int | None], str] = {}
        self.scheduler = Scheduler(
            self.selection, policy, new_id=lambda: next(self.numbers), outcome=lambda *key: self.ended.get(key)
        )
        self.decided: list[Decision] = []

    def job(self, cpus: int = 1, *, user: int = 1000, limit: int = 3600, **fields: Any) -> JobRecord:
        details = {name: fields.pop(name) for name in list(fields) if name in JobDetails.__dataclass_fields__}
        layout = {"ntasks": str(cpus)}
        if "gres" in details:
            layout["gres"] = ",".join(f"{name}:{number}" for name, number in details["gres"].items())
        return JobRecord(
            next(self.numbers), user, user, user_name=f"u{user}" if user else "root", time_limit=limit,
            held_by=fields.pop("held_by", BATCH),
            details=JobDetails(num_tasks=cpus, min_cpus=cpus, layout=layout, **details), **fields,
        )  # fmt: skip

    def submit(self, cpus: int = 1, **fields: Any) -> JobRecord:
        job = self.job(cpus, **fields)
        self.scheduler.submit(job, self.at)
        return job

    def look(self, later: float = 0.0) -> list[JobRecord]:
        """What starts now, or then."""
        self.at += later
        decided = [one for one in self.scheduler.schedule(self.at) if one is not None]
        self.decided += decided
        return [one.job for one in decided if isinstance(one, Start)]

    def run(self, cpus: int = 1, **fields: Any) -> JobRecord:
        """A job that runs."""
        job = self.submit(cpus, **fields)
        assert job in self.look()
        return job

    def end(self, job: JobRecord, state: str = "COMPLETED", code: int = 0) -> None:
        self.scheduler.ended(job, state, code, self.at)

    def reason(self, job: JobRecord) -> str:
        return self.scheduler.explain(job, self.at).reason

    def running(self) -> set[int]:
        return {job.job_id for job in self.scheduler.jobs.values() if job.job_state == RUNNING}


def numbers(jobs: Iterable[JobRecord]) -> list[int]:
    return [job.job_id for job in jobs]


def policy(*lines: str, **values: Any) -> Policy:
    limits = UserLimits(
        **{name: values.pop(name) for name in ("jobs", "submitted", "cpus", "memory", "devices") if name in values}
    )
    return replace(PLAIN, qos=qos_lines(lines), limits=limits, **values)
