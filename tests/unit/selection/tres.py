"""A table of described nodes under select/cons_tres, for tests: jobs begin and end as the daemon lets them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bitarray import bitarray

from nodectl.model.cpu_list import cpus_of, format_cpulist
from nodectl.model.states import COMPLETING, RUNNING, SUSPENDED
from nodectl.placement.binding.options import request_of
from nodectl.placement.binding.request import Settings
from nodectl.placement.machine.declared_devices import Device
from nodectl.placement.machine.spec import from_spec
from nodectl.selection.answers import Choice, Refusal
from nodectl.selection.host import Selection
from nodectl.selection.loading import caller_of, load_plugin
from nodectl.selection.modes import SELECT_MODE_RUN_NOW
from nodectl.selection.records import JobDetails, JobRecord, NodeRecord, NodeTable
from nodectl.selection.slurmctld import Parameters

NO_STATE = "/nonexistent"


def parameters(*words: str, sharing: str = "no", count: int = 1, def_mem_per_cpu: int = 0) -> Parameters:
    """SelectTypeParameters and OverSubscribe; cores and memory where no words are given."""
    given = tuple(word.lower() for word in words) or ("cr_core_memory",)
    return Parameters(
        Settings(select_type_parameters=given), sharing, count, any("memory" in word for word in given), def_mem_per_cpu
    )


def node(
    name: str, spec: str, memory: int = 0, gpus: str = "", *, shards: int = 0, gpu_memory: int = 0,
    one_user: bool = False, **more: Any,
) -> NodeRecord:  # fmt: skip
    """`gpus`: for each the number of the socket that it is near, as "0011". `shards` and `gpu_memory` of each."""
    machine = from_spec(spec)
    devices = tuple(
        Device(
            "gpu",
            number,
            cores=tuple(core.number for core in machine.sockets[int(socket)].cores),
            shards=shards,
            memory=gpu_memory,
            one_user=one_user,
        )
        for number, socket in enumerate(gpus)
    )
    return NodeRecord(name, machine, memory, devices=devices, **more)


def nodes(count: int, spec: str, memory: int = 0, gpus: str = "", **more: Any) -> NodeTable:
    one = node("n1", spec, memory, gpus, **more)
    return NodeTable(replace(one, name=f"n{number}") for number in range(1, count + 1))


class Bed:
    """One plugin over one table. `jobs`: those that hold something."""

    def __init__(self, table: NodeTable, given: Parameters | None = None) -> None:
        self.table = table
        caller = caller_of(0)
        self.plugin = load_plugin("select/cons_tres", caller=caller)
        self.said: list[str] = []
        self.selection = Selection(self.plugin, table, caller, parameters=given or parameters(), say=self.said.append)
        self.selection.start(NO_STATE)
        self.jobs: list[JobRecord] = []
        self._number = 0

    @property
    def state(self) -> Any:
        return self.plugin.module._Plugin.state

    def job(self, *words: str, **details: Any) -> JobRecord:
        """A job of srun's options by their names, as "ntasks=4", and of fields of its details or its record."""
        layout = {name: value or "1" for name, _, value in (word.partition("=") for word in words)}
        request = request_of(layout, {})
        self._number += 1
        record = {name: details.pop(name) for name in ("time_limit", "start_time", "user_id") if name in details}
        least, most = request.nodes or (1, 0)
        asked: dict[str, Any] = {
            "num_tasks": request.ntasks or 1, "cpus_per_task": request.cpus_per_task or 1, "min_nodes": least,
            "max_nodes": most, "overcommit": request.overcommit, "req_nodes": request.nodelist,
            "exc_nodes": request.exclude, "layout": layout,
        }  # fmt: skip
        return JobRecord(self._number, details=JobDetails(**(asked | details)), **record)

    def test(self, job: JobRecord, mode: int = SELECT_MODE_RUN_NOW, **more: Any) -> Choice | Refusal:
        found = self.selection.job_test(job, mode, **more)
        assert not self.said
        return found

    def start(self, job: JobRecord, now: float = 0.0) -> bool:
        """False where it does not fit now."""
        if isinstance(self.test(job, now=now), Refusal):
            return False
        why = self.selection.job_begin(job)
        assert not why
        job.job_state, job.start_time = RUNNING, now
        self.jobs.append(job)
        return True

    def end(self, job: JobRecord) -> None:
        job.job_state = COMPLETING
        assert not self.selection.job_fini(job)
        self.selection.released(job)
        self.jobs.remove(job)

    def suspend(self, job: JobRecord) -> None:
        assert not self.selection.job_suspend(job, True)
        job.job_state = SUSPENDED

    def resume(self, job: JobRecord) -> bool:
        if self.selection.job_resume(job, True):
            return False
        job.job_state = RUNNING
        return True

    def cpus(self, job: JobRecord) -> str:
        """What it holds, as "n1:0-3 n2:0"."""
        held = job.job_resrcs
        assert held is not None
        return " ".join(
            f"{one.name}:{format_cpulist(cpus_of(self.table.cpu_mask(one, held.core_bitmap)))}"
            for one in self.table
            if held.node_bitmap[one.index]
        )

    def held(self, *words: str, **details: Any) -> str:
        """What a job that starts now holds, "" where it does not fit."""
        job = self.job(*words, **details)
        return self.cpus(job) if self.start(job) else ""

    def snapshot(self) -> list[object]:
        """What of every node is taken."""
        return [(use.alone, use.levels, use.memory, use.gres) for use in self.state.uses]

    def cores(self, masks: dict[int, int]) -> bitarray:
        return self.table.core_bitmap(masks)
