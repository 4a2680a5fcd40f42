"""The rows of accounting: a row for each job and for each step, made of the service's answers (`usage.py`).

A job of which only steps are known, as of one that began before jobs were recorded, is made of its first step. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodectl.model.states import IN_QUEUE
from nodectl.model.step_number import BATCH, EXTERN, step_word

_SIGNALLED = 128
_WORDED = (BATCH, EXTERN)
_FIRST = (*_WORDED, 0)  # the step that holds its job


@dataclass(slots=True)
class Used:
    """The use of a job or a step. Seconds; bytes, None where unknown.

    `max_` and `min_` fields: the value of a task, and the task's number.
    """

    user: float = 0.0
    system: float = 0.0
    min_cpu: tuple[float, int] | None = None
    max_rss: tuple[int, int] | None = None
    ave_rss: int | None = None
    peak_memory: int | None = None
    peak_processes: int | None = None
    read: int | None = None
    written: int | None = None
    max_read: tuple[int, int] | None = None
    max_written: tuple[int, int] | None = None
    disk_read: int | None = None
    disk_written: int | None = None
    energy: float | None = None
    pressure: dict[str, list[float]] = field(default_factory=dict)

    @property
    def cpu(self) -> float:
        """User and system CPU seconds."""
        return self.user + self.system


@dataclass(slots=True)
class Row:
    """A job (`step` is None) or a step.

    Times in seconds since the epoch, 0 for none. `clock_set`: the seconds by which the clock was set forward between
    start and end; `moved`: the part by which `started` was corrected already. `memory`: the requested MiB.
    """

    job: int
    step: int | None
    name: str
    user: str
    uid: int
    gid: int
    state: str
    submitted: float
    array_job: int = 0
    array_task: int | None = None
    array_tasks: str = ""
    eligible: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    suspended: float = 0.0
    clock_set: float = 0.0
    moved: float = 0.0
    time_limit: int = 0
    cpus: int = 0
    asked_cpus: int = 0
    ntasks: int = 0
    memory: int = 0
    nodes: str = ""
    gres: tuple[str, ...] = ()
    exit: tuple[int, int] = (0, 0)
    derived: int = 0
    reason: str = ""
    command: str = ""
    cwd: str = ""
    partition: str = ""
    qos: str = ""
    priority: int = 0
    comment: str = ""
    account: str = ""
    reservation: str = ""
    restarts: int = 0
    secure: str = ""
    used: Used = field(default_factory=Used)

    @property
    def job_name(self) -> str:
        """The job's id: 7, 7_3 for a task of an array, 7_[0-9] for an array's waiting tasks."""
        if self.array_task is not None:
            return f"{self.array_job}_{self.array_task}"
        return f"{self.array_job or self.job}_[{self.array_tasks}]" if self.array_tasks else str(self.job)

    @property
    def id(self) -> str:
        """The id of the job or step as sacct prints it: 7, 7.batch, 7.0."""
        return self.job_name if self.step is None else f"{self.job_name}.{step_word(self.step)}"

    @property
    def raw_id(self) -> str:
        """The same id with the job's own number."""
        return str(self.job) if self.step is None else f"{self.job}.{step_word(self.step)}"

    def elapsed(self, now: float) -> float:
        """Return the seconds from start to end, or to now, without suspended seconds.

        Changes of the clock between start and end are taken out.
        """
        if not self.started:
            return 0.0
        return max(0.0, (self.ended or now) - self.started - self.suspended - self.clock_set)

    def waited(self, now: float) -> float:
        """Return the seconds from becoming eligible to the start, or to now."""
        begun = self.started or self.ended or now
        return max(0.0, begun - (self.eligible or self.submitted))


def rows_of(
    jobs: Iterable[Mapping[str, Any]], steps: Iterable[Mapping[str, Any]], *, every_run: bool = False
) -> list[tuple[Row, list[Row]]]:
    """Return all jobs with steps, in the order of job numbers.

    Of a job that was started several times only the last run is returned, unless `every_run`.
    """
    known: dict[tuple[int, int, int], Row] = {}  # a step that ends during the query is listed twice
    for step in steps:
        row = step_row(step)
        which = (row.job, row.restarts, int(step["step"]))
        if row.ended or which not in known:
            known[which] = row
    by_run: dict[tuple[int, int], list[Row]] = {}
    for row in known.values():
        by_run.setdefault((row.job, row.restarts), []).append(row)
    runs: dict[tuple[int, int], Row] = {}
    for job in jobs:
        row = job_row(job)
        runs[row.job, row.restarts] = row
    for key, of_run in by_run.items():
        of_run.sort(key=_place)
        if key not in runs:
            runs[key] = _job_of_steps(of_run)
    for key, of_run in by_run.items():
        _complete(runs[key], of_run)
    last = dict(sorted(runs))  # of each job
    return [
        (runs[key], by_run.get(key, []))
        for key in sorted(runs, key=_order(runs))
        if every_run or last[key[0]] == key[1]
    ]


def _order(runs: Mapping[tuple[int, int], Row]) -> Any:
    """Return a sort key by which tasks of an array stand where the array does."""
    return lambda key: (runs[key].array_job or key[0], runs[key].array_task or 0, *key)


def _place(row: Row) -> int:
    """Return the step's place in the order: batch and extern come first."""
    return -1 if row.step in _WORDED else row.step or 0


def step_row(step: Mapping[str, Any]) -> Row:
    """Make the row of a step."""
    values = step.get("used") or {}
    return Row(
        job=step["job"],
        step=step["step"],
        name=step_word(step["step"]) if step["step"] in _WORDED else step["name"],
        user=step["user"],
        uid=step["uid"],
        gid=step.get("gid", 0),
        state=step["state"],
        submitted=step["submitted"],
        eligible=step["submitted"],
        started=step.get("started") or (0.0 if step.get("ended") else step["submitted"]),
        ended=step.get("ended") or 0.0,
        suspended=step.get("suspended_seconds") or 0.0,
        clock_set=step.get("clock_set", 0.0),
        cpus=step["cpus"],
        asked_cpus=step["cpus"],
        ntasks=step["ntasks"],
        memory=step.get("memory", 0),
        nodes=step.get("node", ""),
        exit=_pair(step.get("exit")) or (0, 0),
        derived=(step.get("exit") or (0, 0))[0],
        reason=step.get("reason", ""),
        command=step.get("command", ""),
        cwd=step.get("cwd", ""),
        restarts=step.get("restart", 0),
        secure=step.get("secure", ""),
        used=Used(
            user=values.get("user", 0.0),
            system=values.get("system", 0.0),
            min_cpu=_pair(values.get("min_cpu")),
            max_rss=_pair(values.get("max_rss")),
            ave_rss=values.get("ave_rss"),
            peak_memory=step.get("peak_memory"),
            peak_processes=step.get("peak_processes"),
            read=values.get("read"),
            written=values.get("written"),
            max_read=_pair(values.get("max_read")),
            max_written=_pair(values.get("max_written")),
            disk_read=step.get("read_bytes"),
            disk_written=step.get("written_bytes"),
            energy=step.get("energy"),
            pressure=step.get("pressure") or {},
        ),
    )


def job_row(job: Mapping[str, Any]) -> Row:
    """Make the row of a job, without the use by the steps."""
    details = job.get("details") or {}
    asked = max(details.get("min_cpus", 1), details.get("num_tasks", 1) * details.get("cpus_per_task", 1))
    return Row(
        job=job["job_id"],
        step=None,
        name=job.get("name", ""),
        user=job.get("user_name", ""),
        uid=job.get("user_id", 0),
        gid=job.get("group_id", 0),
        state=job.get("job_state", ""),
        submitted=job.get("submit_time", 0.0),
        array_job=job.get("array_job_id", 0),
        array_task=job.get("array_task_id"),
        array_tasks=job.get("array_tasks", ""),
        eligible=job.get("eligible_time", 0.0),
        started=job.get("start_time", 0.0),
        ended=0.0 if job.get("job_state") in IN_QUEUE else job.get("end_time", 0.0),  # until when it may run
        suspended=job.get("suspended_seconds", 0.0),
        moved=job.get("clock_set", 0.0),
        time_limit=job.get("time_limit", 0),
        cpus=job.get("cpus", 0),
        asked_cpus=asked,
        ntasks=details.get("num_tasks", 1),
        memory=details.get("pn_min_memory", 0) or details.get("mem_per_cpu", 0) * asked,
        nodes=job.get("nodes", ""),
        gres=tuple(job.get("gres", ())),
        exit=_of_status(job.get("exit_code", 0)),
        reason=job.get("state_reason", ""),
        command=job.get("command", ""),
        cwd=details.get("work_dir", ""),
        partition=job.get("partition", ""),
        qos=job.get("qos", ""),
        priority=job.get("priority", 0),
        comment=job.get("comment", ""),
        account=job.get("account", ""),
        reservation=details.get("reservation", ""),
        restarts=job.get("restart_cnt", 0),
    )


def _of_status(status: int) -> tuple[int, int]:
    """Return exit code and signal of a shell's exit status."""
    return (0, status - _SIGNALLED) if status > _SIGNALLED else (status, 0)


def _pair(value: Sequence[Any] | None) -> Any:
    return None if value is None else (value[0], value[1])


def _job_of_steps(steps: Sequence[Row]) -> Row:
    """Make the row of a job without a record from the job's steps."""
    first = next((step for number in _FIRST for step in steps if step.step == number), steps[0])
    running = [step for step in steps if not step.ended]
    return Row(
        job=first.job,
        step=None,
        name=first.name,
        user=first.user,
        uid=first.uid,
        gid=first.gid,
        state=running[0].state if running else first.state,
        submitted=min(step.submitted for step in steps),
        eligible=min(step.submitted for step in steps),
        started=min((step.started for step in steps if step.started), default=0.0),
        ended=0.0 if running else max(step.ended for step in steps),
        suspended=first.suspended,
        clock_set=first.clock_set,
        cpus=first.cpus,
        asked_cpus=first.asked_cpus,
        ntasks=first.ntasks,
        memory=first.memory,
        nodes=first.nodes,
        exit=first.exit,
        reason=first.reason,
        command=first.command,
        cwd=first.cwd,
        restarts=first.restarts,
        secure=first.secure,
    )


def _complete(job: Row, steps: Sequence[Row]) -> None:
    """Add up the steps' use in the job, and copy the job's fields into the steps."""
    holding = [step for step in steps if step.step in _FIRST and step.ended]
    if holding and job.ended:
        job.exit = holding[0].exit
        job.clock_set = holding[0].clock_set - job.moved
    job.derived = max((step.exit[0] for step in steps), default=0)
    for step in steps:
        step.array_job, step.array_task = job.array_job, job.array_task
        step.partition, step.qos, step.account = job.partition, job.qos, job.account
    job.used = total([step.used for step in steps])


def total(parts: Sequence[Used]) -> Used:
    """Return the use of several steps together: sums; for peaks and for a task's extreme the maximum or minimum."""

    def summed(name: str) -> Any:
        known = [value for part in parts if (value := getattr(part, name)) is not None]
        return sum(known) if known else None

    def chosen(name: str, choose: Any) -> Any:
        known = [value for part in parts if (value := getattr(part, name)) is not None]
        return choose(known) if known else None

    resources = dict.fromkeys(resource for part in parts for resource in part.pressure)
    return Used(
        user=summed("user") or 0.0,
        system=summed("system") or 0.0,
        min_cpu=chosen("min_cpu", min),
        max_rss=chosen("max_rss", max),
        ave_rss=chosen("ave_rss", max),
        peak_memory=chosen("peak_memory", max),
        peak_processes=chosen("peak_processes", max),
        read=summed("read"),
        written=summed("written"),
        max_read=chosen("max_read", max),
        max_written=chosen("max_written", max),
        disk_read=summed("disk_read"),
        disk_written=summed("disk_written"),
        energy=summed("energy"),
        pressure={name: _added([part.pressure[name] for part in parts if name in part.pressure]) for name in resources},
    )


def _added(pairs: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) for column in zip(*pairs, strict=False)]


def flat(jobs: Iterable[tuple[Row, Sequence[Row]]], *, only_jobs: bool = False) -> Iterator[Row]:
    """Yield the rows in the order of a listing."""
    for job, steps in jobs:
        yield job
        if not only_jobs:
            yield from steps
