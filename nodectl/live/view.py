"""One look at the machine as values: what runs and how much it uses, what waits, who is on which CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodectl.model.step_number import step_name
from nodectl.model.value_class import dataclass, field
from nodectl.render.occupants import Occupation


@dataclass(frozen=True, slots=True)
class Row:
    """A running step, or a job of which no step is to be seen: one that waits, or another user's.

    `cpu` is how many CPUs it keeps busy; `read` and `written` are bytes a second. None is not known.
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
        """Whether there are processes to signal, and to look into."""
        return self.step is not None

    @property
    def waits(self) -> bool:
        """Whether it has not begun."""
        return self.state == "PENDING"


@dataclass(frozen=True, slots=True)
class View:
    """`at` is seconds since the epoch. `problem` is why the service could not be asked, and the rows are those of the
    last time.
    """

    at: float
    node: str
    rows: tuple[Row, ...]
    occupation: Occupation
    problem: str = ""

    @property
    def running(self) -> int:
        """How many steps run."""
        return sum(row.is_step for row in self.rows)

    @property
    def waiting(self) -> int:
        """How many jobs wait."""
        return sum(row.waits for row in self.rows)


def name_of(record: Mapping[str, Any]) -> str:
    """JOB.STEP."""
    return step_name(record["job"], record["step"])
