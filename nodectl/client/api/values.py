"""What the service tells, as values. Times are seconds since the epoch, amounts of memory MiB.

Each has `record`, all that the service said; what stands beside it does not change its name.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodectl.model.step_number import step_word

Record = Mapping[str, Any]


@dataclass(frozen=True)
class TaskResult:
    """How one task ended. `exit_code` is negative for a signal, as in subprocess."""

    task: int
    exit_code: int
    cpus: str
    user_seconds: float
    system_seconds: float
    max_rss_kib: int
    record: Record = field(repr=False)


@dataclass(frozen=True)
class StepInfo:
    """A step, running or ended. `cpus` is a mask in hexadecimal, as the kernel writes them."""

    job: int
    step: int
    name: str  # the step's, as 7.0
    user: str
    uid: int
    state: str
    reason: str
    command: Sequence[str]
    ntasks: int
    cpus: str
    submitted: float
    started: float | None
    ended: float | None
    record: Record = field(repr=False)


@dataclass(frozen=True)
class Result:
    """What became of a step. `exit_status` is what `nodectl run` would exit with; `stdout` and `stderr` are there
    where they were captured; `messages` are lines of nodectl and its plugins.
    """

    job: int
    step: int
    name: str
    state: str
    reason: str
    exit_status: int
    tasks: Sequence[TaskResult]
    messages: Sequence[str] = ()
    stdout: bytes | None = None
    stderr: bytes | None = None
    record: Record = field(repr=False, default_factory=dict)

    @property
    def text(self) -> str:
        """The captured standard output as text."""
        return (self.stdout or b"").decode("utf-8", "replace")


@dataclass(frozen=True)
class JobInfo:
    """A job, waiting, running or ended. `id` is its name as people write it, as 7 or 7_3; `words` say why it waits."""

    job: int
    id: str
    name: str
    user: str
    uid: int
    state: str
    reason: str
    words: str
    cpus: int
    memory: int
    submit: float
    start: float | None
    end: float | None
    exit_code: int
    record: Record = field(repr=False)

    @property
    def is_over(self) -> bool:
        """Whether it has ended for good."""
        return self.state not in GOING


@dataclass(frozen=True)
class TraceCall:
    """One call of a launch: at `t` nanoseconds of the machine's clock, `us` microseconds long, by which process."""

    t: int
    us: int
    call: str
    process: str
    pid: int
    task: int | None
    record: Record = field(repr=False)


GOING = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING")


def step_info(record: Record) -> StepInfo:
    """From List and Show."""
    return StepInfo(
        job=record["job"],
        step=record["step"],
        name=f"{record['job']}.{step_word(record['step'])}",
        user=record["user"],
        uid=record["uid"],
        state=record["state"],
        reason=record["reason"],
        command=tuple(record["command"]),
        ntasks=record["ntasks"],
        cpus=record["cpus"],
        submitted=record["submitted"],
        started=record.get("started"),
        ended=record.get("ended"),
        record=record,
    )


def job_info(record: Record) -> JobInfo:
    """From Queue and ShowJob."""
    return JobInfo(
        job=record["job"],
        id=record["id"],
        name=record["name"],
        user=record["user"],
        uid=record["uid"],
        state=record["state"],
        reason=record["reason"],
        words=record["words"],
        cpus=record["cpus"],
        memory=record["memory"],
        submit=record["submit"],
        start=record["start"],
        end=record["end"],
        exit_code=record["exit_code"],
        record=record,
    )


def result(record: Record, messages: Sequence[str] = ()) -> Result:
    """From a step's last event, and Wait."""
    return Result(
        job=record["job"],
        step=record["step"],
        name=f"{record['job']}.{step_word(record['step'])}",
        state=record["state"],
        reason=record["reason"],
        exit_status=record["exit_status"],
        tasks=tuple(_task(task) for task in record.get("tasks", ())),
        messages=tuple(messages),
        record=record,
    )


def _task(record: Record) -> TaskResult:
    return TaskResult(
        task=record["task"],
        exit_code=os.waitstatus_to_exitcode(record["status"]),
        cpus=record["cpus"],
        user_seconds=record["user_seconds"],
        system_seconds=record["system_seconds"],
        max_rss_kib=record["max_rss_kib"],
        record=record,
    )


def trace_call(record: Record) -> TraceCall:
    """From Trace."""
    return TraceCall(
        t=record["t"],
        us=record["us"],
        call=record["call"],
        process=record["process"],
        pid=record["pid"],
        task=record["task"],
        record=record,
    )
