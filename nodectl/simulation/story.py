"""What became of the jobs of a workload: the record that a play leaves, for its report, its rules and its picture."""

from __future__ import annotations

from collections.abc import Mapping

from nodectl.model.value_class import dataclass, field


@dataclass(frozen=True, slots=True)
class Share:
    """What a run has of one node: the numbers of its cores in the node's order, CPUs counted, MiB, keys of devices."""

    cores: tuple[int, ...]
    cpus: int
    memory: int = 0
    gres: tuple[str, ...] = ()


@dataclass(slots=True)
class Run:
    """One time that a job held resources: `shares` by number of the node, `pauses` in which it was suspended (the end
    is -1 while it lasts). `how`: the state in which it ended, or PREEMPTED, "" while it runs.
    """

    start: float
    shares: Mapping[int, Share]
    end: float = -1.0
    how: str = ""
    pauses: list[tuple[float, float]] = field(default_factory=list)

    @property
    def cpus(self) -> int:
        """On all nodes."""
        return sum(share.cpus for share in self.shares.values())

    def seconds(self, until: float) -> float:
        """How long it had its CPUs: without the pauses."""
        end = self.end if self.end >= 0 else until
        return max(0.0, end - self.start - sum((up if up >= 0 else end) - down for down, up in self.pauses))


@dataclass(slots=True)
class Story:
    """One job, or one task of an array. `label`: 7, or 7_3; `ready`: when it might have started by its own wish
    (begin time, dependencies); `state`: how it ended, PENDING for one that never did.
    """

    job_id: int
    label: str
    user: str
    submit: float
    ready: float
    cpus: int
    limit: int = 0
    runs: list[Run] = field(default_factory=list)
    state: str = "PENDING"
    reason: str = ""
    end: float = -1.0

    @property
    def start(self) -> float:
        """When it began for good, -1 for never."""
        return self.runs[-1].start if self.runs else -1.0

    @property
    def wait(self) -> float:
        """Seconds from when it might have started to its first start, -1 for one that never did."""
        return max(0.0, self.runs[0].start - self.ready) if self.runs else -1.0


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken: when, which, by which jobs, in words."""

    time: float
    rule: str
    jobs: tuple[int, ...]
    words: str


@dataclass(slots=True)
class Played:
    """All of a play. `nodes`: names with the number of cores and CPUs each and MiB of memory. `real_seconds`: how long
    the play took; `calls`: how often each function of the plugin was called, and for how many seconds in all.
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
        """Of all nodes."""
        return sum(cpus for _, _, cpus, _ in self.nodes)
