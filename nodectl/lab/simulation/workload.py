"""A workload: the jobs submitted by users over time, and the events of nodes meanwhile. Values only.

It is read from a file (`workload_file.py`) or generated (`generator.py`). Times are seconds after its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LONGEST_TIME = 2**31  # seconds; no clock or limit goes beyond it
MOST_JOBS = 5_000_000


class BadWorkload(Exception):
    """An unplayable workload. `str()` is a single line, with file and line number if known."""


@dataclass(frozen=True, slots=True)
class WorkJob:
    """A submission. `number` is the job's id for dependencies in the workload; all tasks of an array share a number.

    `runs`: the run time of the program if nothing ends it; for task n of an array the n-th of them, in a circle.
    `limit` is the user's time limit, 0 for none. `nodes`: how many, 0 for as many as it takes. `memory` is MiB on each
    node, `mem_per_cpu` MiB for each CPU. `after`: the number of a job for whose end the user waits, and `think` seconds
    more, before submitting this job. `no_kill`: when one of several nodes goes down, the job goes on without it.
    """

    number: int
    submit: float
    runs: tuple[float, ...]
    limit: int = 0
    user: str = "root"
    uid: int = 0
    name: str = ""
    tasks: int = 1
    cpus_per_task: int = 1
    nodes: int = 0
    memory: int = 0
    mem_per_cpu: int = 0
    gres: tuple[tuple[str, int], ...] = ()
    exclusive: bool = False
    oversubscribe: bool = False
    contiguous: bool = False
    qos: str = "normal"
    nice: int = 0
    priority: int = 0
    dependency: str = ""
    array: str = ""
    array_limit: int = 0
    begin: float = 0.0
    deadline: float = 0.0
    requeue: bool = True
    no_kill: bool = False
    exit_code: int = 0
    after: int = 0
    think: float = 0.0

    @property
    def cpus(self) -> int:
        """The requested CPUs, of an array for each task."""
        return self.tasks * self.cpus_per_task

    def run_of(self, task: int | None) -> float:
        """Return the run time of the job, or of this task."""
        return self.runs[(task or 0) % len(self.runs)]


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An event of a node. `state`: drain, resume, or down, which ends the node's jobs."""

    time: float
    node: str
    state: str


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in the order of submission. `about`: facts of the file's head; `notes`: omissions of the reader."""

    name: str
    jobs: tuple[WorkJob, ...]
    events: tuple[NodeEvent, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def in_order(
    name: str, jobs: list[WorkJob], events: list[NodeEvent], about: Mapping[str, str], notes: list[str]
) -> Workload:
    """Make a workload in order of time; jobs submitted at the same time keep the given order."""
    jobs.sort(key=lambda job: job.submit)
    events.sort(key=lambda event: event.time)
    return Workload(name, tuple(jobs), tuple(events), dict(about), tuple(notes))
