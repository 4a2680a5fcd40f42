"""The record of a play: the life of each job, for report, rules and picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodectl.model.states import PENDING


@dataclass(frozen=True, slots=True)
class Share:
    """A run's resources on a node: the numbers of the cores in the node's order, CPUs counted, MiB, keys of devices."""

    cores: tuple[int, ...]
    cpus: int
    memory: int = 0
    gres: tuple[str, ...] = ()


@dataclass(slots=True)
class Run:
    """A period in which a job held resources.

    `shares`: by number of the node; `pauses`: the suspensions (end -1 while suspended). `how`: the state at the end of
    the run, or PREEMPTED, "" while the job runs.
    """

    start: float
    shares: Mapping[int, Share]
    end: float = -1.0
    how: str = ""
    pauses: list[tuple[float, float]] = field(default_factory=list)

    @property
    def cpus(self) -> int:
        """The CPUs on all nodes."""
        return sum(share.cpus for share in self.shares.values())

    def seconds(self, until: float) -> float:
        """Return the seconds with CPUs, without the pauses."""
        end = self.end if self.end >= 0 else until
        return max(0.0, end - self.start - sum((up if up >= 0 else end) - down for down, up in self.pauses))


@dataclass(slots=True)
class Story:
    """A job, or a task of an array.

    `label`: 7, or 7_3; `ready`: the earliest possible start (begin time, dependencies); `state`: the end state, PENDING
    without an end.
    """

    job_id: int
    label: str
    user: str
    submit: float
    ready: float
    cpus: int
    limit: int = 0
    runs: list[Run] = field(default_factory=list)
    state: str = PENDING
    reason: str = ""
    end: float = -1.0

    @property
    def start(self) -> float:
        """The time of the last start, -1 without a start."""
        return self.runs[-1].start if self.runs else -1.0

    @property
    def wait(self) -> float:
        """The seconds from the earliest possible to the first start, -1 without a start."""
        return max(0.0, self.runs[0].start - self.ready) if self.runs else -1.0


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule: the time, the rule, the jobs involved, a description."""

    time: float
    rule: str
    jobs: tuple[int, ...]
    words: str


@dataclass(slots=True)
class Played:
    """The whole record of a play.

    `nodes`: names with the number of cores and CPUs each and MiB of memory. `real_seconds`: the real time of the play;
    `calls`: for each function of the plugin the number of calls, and their seconds in all.
    """

    plugin: str
    workload: str
    nodes: tuple[tuple[str, int, int, int], ...]
    stories: list[Story] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    calls: dict[str, tuple[int, float]] = field(default_factory=dict)
    end: float = 0.0
    real_seconds: float = 0.0

    @property
    def cpus(self) -> int:
        """The CPUs of all nodes."""
        return sum(cpus for _, _, cpus, _ in self.nodes)
