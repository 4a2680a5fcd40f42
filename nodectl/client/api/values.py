"""The service's answers as values. Times are seconds since the epoch, amounts of memory MiB.

Each value has a `record`, the whole answer of the service; the other fields keep their names.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodectl.model.states import IN_QUEUE
from nodectl.model.step_number import step_word

Record = Mapping[str, Any]


@dataclass(frozen=True)
class TaskResult:
    """The end of a task. `exit_code` is negative for a signal, as in subprocess."""

    task: int
    exit_code: int
    cpus: str
    user_seconds: float
    system_seconds: float
    max_rss_kib: int
    record: Record = field(repr=False)


@dataclass(frozen=True)
class StepInfo:
    """A step, running or ended. `cpus` is a hexadecimal mask in the kernel's notation."""

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
    """The result of an ended step.

    `exit_status` is the exit status `nodectl run` would have; `stdout` and `stderr` are set where captured; `messages`
    are lines of nodectl and its plugins.
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
    """A job, waiting, running or ended. `id` is the job's name, such as 7 or 7_3; `words` say why the job waits."""

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
        """Whether the job has ended for good."""
        return self.state not in IN_QUEUE


@dataclass(frozen=True)
class TraceCall:
    """A call of a launch: start `t` (nanoseconds of the machine's clock), length `us` (microseconds), process."""

    t: int
    us: int
    call: str
    process: str
    pid: int
    task: int | None
    record: Record = field(repr=False)


def step_info(record: Record) -> StepInfo:
    """Build a StepInfo from a record of List or Show."""
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
    """Build a JobInfo from a record of Queue or ShowJob."""
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
    """Build a Result from the record of a step's last event, or of Wait."""
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
    """Build a TraceCall from a record of Trace."""
    return TraceCall(
        t=record["t"],
        us=record["us"],
        call=record["call"],
        process=record["process"],
        pid=record["pid"],
        task=record["task"],
        record=record,
    )
