"""A workload: the jobs that people submit over time, and what happens to nodes meanwhile. Values only.

It comes from a file (`workload_file.py`) or is made up (`generator.py`). Times are seconds after its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping

from nodectl.model.value_class import dataclass, field

LONGEST_TIME = 2**31  # seconds; nobody's clock or limit is beyond it
MOST_JOBS = 5_000_000


class BadWorkload(Exception):
    """A workload that cannot be played. `str()` is one line; with file and line number where there is one."""


@dataclass(frozen=True, slots=True)
class WorkJob:
    """One submission. `number` is what dependencies of the workload call it; an array has many tasks below one number.

    `runs`: how long its program runs if nobody ends it, for task n of an array the n-th of them, in a circle. `limit`
    is what its user says, 0 for nothing. `nodes`: how many, 0 for as many as it takes. `memory` is MiB on each node,
    `mem_per_cpu` MiB for each CPU. `after`: the number of a job whose end this one's user waits for, `think` seconds
    more, before submitting it. `no_kill`: when a node of several goes down, it goes on without it.
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
        """The CPUs that it asks for, of an array each task."""
        return self.tasks * self.cpus_per_task

    def run_of(self, task: int | None) -> float:
        """How long it runs, or this task of it."""
        return self.runs[(task or 0) % len(self.runs)]


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """What happens to a node. `state`: drain, resume, or down, which ends its jobs."""

    time: float
    node: str
    state: str


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in the order of their submission. `about`: facts of the file's head; `notes`: what was left out of it."""

    name: str
    jobs: tuple[WorkJob, ...]
    events: tuple[NodeEvent, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def in_order(
    name: str, jobs: list[WorkJob], events: list[NodeEvent], about: Mapping[str, str], notes: list[str]
) -> Workload:
    """The workload of these jobs; those submitted at one time stay in the order in which they are told."""
    jobs.sort(key=lambda job: job.submit)
    events.sort(key=lambda event: event.time)
    return Workload(name, tuple(jobs), tuple(events), dict(about), tuple(notes))
