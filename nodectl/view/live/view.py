"""A look at the machine as values: running steps and resource use, waiting jobs, and the job on each CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodectl.client.render.occupants import Occupation
from nodectl.model.states import PENDING


@dataclass(frozen=True, slots=True)
class Row:
    """A running step, or a job without a visible step: a waiting job, or another user's.

    `reason` is why it waits; of a bulk that runs, how far it is. `cpu` is how many CPUs it keeps busy; `read` and
    `written` are bytes a second. None is not known.
    """

    job: int
    step: int | None
    name: str
    user: str
    title: str
    state: str
    ntasks: int
    cpus: int
    cpu_list: str
    elapsed: float
    gres: str
    command: str
    reason: str = ""
    cpu: float | None = None
    memory: int | None = None
    memory_limit: int = 0
    read: float | None = None
    written: float | None = None
    pressure: Mapping[str, float] = field(default_factory=dict)
    key: str = ""

    @property
    def is_step(self) -> bool:
        """True for a step, with processes to signal and to look into."""
        return self.step is not None

    @property
    def waits(self) -> bool:
        """True for a job before the start."""
        return self.state == PENDING


@dataclass(frozen=True, slots=True)
class View:
    """A look. `at` is seconds since the epoch; `away` says which nodes start no jobs, and why.

    `problem` is why the service could not be asked; the rows are then the rows of the last look.
    """

    at: float
    node: str
    rows: tuple[Row, ...]
    occupation: Occupation
    away: str = ""
    problem: str = ""

    @property
    def running(self) -> int:
        """The number of running jobs, whatever the number of their steps."""
        return len({row.job for row in self.rows if not row.waits})

    @property
    def waiting(self) -> int:
        """The number of waiting jobs."""
        return sum(row.waits for row in self.rows)
