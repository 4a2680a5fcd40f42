"""The jobs, steps and pinned tasks on each CPU, and the jobs that hold the node's devices.

Pure: made of the records that the service gives of running steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from nodectl.client.render.job_columns import name_of
from nodectl.model.cpu_list import cpus_of, format_cpulist, mask_of_list
from nodectl.model.device_part import device_of
from nodectl.model.states import COMPLETING, PENDING
from nodectl.model.step_number import FIRST

_KEYS = ascii_uppercase + ascii_lowercase
# For jobs beyond the letters, and for a CPU with more than one job.
MANY = "#"


@dataclass(frozen=True, slots=True)
class RunningStep:
    """A running step; `pins` has the CPU mask of each task by number, 0 for an unbound task."""

    number: int
    name: str
    ntasks: int
    pins: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Job:
    """A job: `key` is its letter in the picture, `name` the user's name for it, `mask` its CPUs, `devices` as held."""

    key: str
    number: int
    name: str
    user: str
    mask: int
    steps: tuple[RunningStep, ...]
    devices: tuple[str, ...] = ()


class Occupation:
    """The jobs of a machine, the label of each CPU, and the node's devices: `gpu:0`, `gpu:1/shard:4` with 4 shards."""

    def __init__(self, jobs: Sequence[Job] = (), devices: Sequence[str] = ()) -> None:
        self.jobs = tuple(jobs)
        self.devices = tuple(devices)
        # By CPU: the jobs that hold it, and of each of them the tasks that are pinned there.
        self._holders: dict[int, list[tuple[Job, list[int]]]] = {}
        for job in self.jobs:
            tasks: dict[int, list[int]] = {cpu: [] for cpu in cpus_of(job.mask)}
            for step in job.steps:
                for task, mask in pinned(job, step).items():
                    for cpu in cpus_of(mask):
                        tasks.setdefault(cpu, []).append(task)
            for cpu, pinned_here in tasks.items():
                self._holders.setdefault(cpu, []).append((job, pinned_here))

    def holder(self, cpu: int) -> Job | None:
        """Return the job on a CPU; None for a free CPU and for a CPU of several jobs.

        If several jobs share a CPU, the only job with tasks pinned there counts as its holder.
        """
        found = self._only(cpu)
        return found[0] if found else None

    def device_words(self) -> list[tuple[str, str]]:
        """Return each device, and which job holds it or which part of it: `job 7`, `job 7 shard:1`, `-` for none."""
        held: dict[str, list[str]] = {}
        for job in self.jobs:
            for key in job.devices:
                part = key.removeprefix(device_of(key)).lstrip("/")
                held.setdefault(device_of(key), []).append(f"job {job.name} {part}".rstrip())
        return [(device, ", ".join(held.get(device_of(device), "-"))) for device in self.devices]

    def label(self, cpu: int) -> str:
        """Return a CPU's label: `A` for a CPU of job A, `A3` if task 3 is pinned there, `A3+` for several tasks.

        `#` stands for several jobs; a free CPU has an empty label.
        """
        found = self._only(cpu)
        if found is None:
            return MANY if cpu in self._holders else ""
        job, tasks = found
        return job.key + (f"{min(tasks)}{'+' if len(tasks) > 1 else ''}" if tasks else "")

    def key(self, cpu: int) -> str:
        """Return a CPU's label as a single character: the job's letter, `#` for several jobs, "" for a free CPU."""
        return self.label(cpu)[:1]

    def _only(self, cpu: int) -> tuple[Job, list[int]] | None:
        holders = self._holders.get(cpu, [])
        if len(holders) > 1:
            holders = [holder for holder in holders if holder[1]]
        return holders[0] if len(holders) == 1 else None


def occupation(records: Iterable[Mapping[str, Any]], devices: Sequence[str] = ()) -> Occupation:
    """Make an Occupation of the service's records of running steps, and of the node's devices.

    Records have `job`, `step`, `user`, `name`, `ntasks`, `cpus`, of an array `array_job` and `array_task`, and, once
    the step has tasks, `tasks` with `task` and `cpus`; CPU masks are in hex. `held` has the devices that the job holds.
    """
    by_job: dict[int, list[Mapping[str, Any]]] = {}
    for record in records:
        by_job.setdefault(record["job"], []).append(record)
    jobs = []
    for index, number in enumerate(sorted(by_job)):
        rows = sorted(by_job[number], key=lambda row: int(row["step"]))
        mask = 0
        for row in rows:
            mask |= _mask(row["cpus"])
        steps = tuple(_step(row) for row in rows)
        key, name = _KEYS[index] if index < len(_KEYS) else MANY, name_of(rows[0])
        jobs.append(Job(key, number, name, str(rows[0]["user"]), mask, steps, tuple(rows[0].get("held") or ())))
    return Occupation(jobs, devices)


def jobs_without_steps(
    jobs: Iterable[Mapping[str, Any]], steps: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the rows of `Queue` for jobs that have no row among the steps: waiting jobs, and those of other users.

    In a cluster a waiting job may have the number of a running job.
    """
    seen = {step["job"] for step in steps}
    return [
        job for job in jobs
        if job["state"] != COMPLETING and (job["state"] == PENDING or job["job"] not in seen)
    ]  # fmt: skip


def job_record(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row of `Queue` as a record of a step, for `occupation`: of such a job, CPUs and devices are known."""
    known = {name: job.get(name) for name in ("job", "user", "name", "array_job", "array_task")}
    return {
        **known,
        "step": FIRST,
        "ntasks": job["tasks"],
        "cpus": f"{mask_of_list(job['cpu_list']):x}",
        "held": held(job),
    }


def held(job: Mapping[str, Any]) -> list[str]:
    """Return the devices that a job of `Queue` holds; none of a waiting job, whose row has what it asks for."""
    return str(job.get("gres") or "").split(",") if job.get("gres") and job["state"] != PENDING else []


def pinned(job: Job, step: RunningStep) -> dict[int, int]:
    """Return the masks of the bound tasks of a step, by number.

    If a step has several tasks, a task that may use all of the job's CPUs does not count as bound.
    """
    return {task: mask for task, mask in step.pins.items() if mask and (len(step.pins) == 1 or mask != job.mask)}


def pinned_words(job: Job, step: RunningStep) -> str:
    """Return the pinning of a step's tasks in a few words; none of a job whose steps are not known."""
    if step.number == FIRST:
        return ""
    tasks = pinned(job, step)
    if not tasks:
        return "not pinned"
    if len(tasks) == 1:
        ((task, mask),) = tasks.items()
        return "pinned" if mask == job.mask else f"task {task} on {cpus_words(mask)}"
    sizes = sorted({mask.bit_count() for mask in tasks.values()})
    return f"{'-'.join(str(size) for size in sizes[:: max(1, len(sizes) - 1)])} CPU{'s' if sizes != [1] else ''} a task"


def cpus_words(mask: int) -> str:
    """Return the CPUs of a mask in words: CPU 3, or CPUs 0-2,4."""
    return f"CPU{'' if mask.bit_count() == 1 else 's'} {format_cpulist(cpus_of(mask))}"


def _step(row: Mapping[str, Any]) -> RunningStep:
    pins = {int(task["task"]): _mask(task.get("cpus")) for task in row.get("tasks") or ()}
    return RunningStep(int(row["step"]), str(row["name"]), int(row["ntasks"]), pins)


def _mask(digits: str | None) -> int:
    return int(digits or "0", 16)
