"""A ring: a set of tests that run in one pytest, what it needs of the machine, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Result(StrEnum):
    """What a ring proved."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"  # the ring could run on another machine
    UNFIT = "unfit"  # the ring cannot run on this kind of machine, and need not
    UNUSED = "unused"  # the arguments select none of its tests
    MACHINE = "machine"  # the emulated machine failed, not what it tested


class Outcome(StrEnum):
    """How one test ended; the values are pytest's words."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"
    XFAILED = "xfailed"

    @property
    def is_bad(self) -> bool:
        """Whether the test failed, or its fixtures did."""
        return self in {Outcome.FAILED, Outcome.ERROR}


@dataclass(frozen=True)
class Case:
    """One test of a run: its node ID, how it ended, its seconds with its fixtures, and why it did not pass."""

    test: str
    outcome: Outcome
    seconds: float
    why: str = ""


@dataclass(frozen=True)
class Ring:
    """Which tests a ring has, and how they run.

    `marks` is an expression for pytest's -m, `paths` are the files and folders that pytest collects. `workers` is the
    number of processes among which pytest-xdist divides the files; 0 runs them in one process. `root`, `apt`,
    `packages` and `program` say what the ring needs: to be root, a Debian, Slurm's unpacked packages, a program of
    the machine.
    """

    name: str
    marks: str
    paths: Sequence[str] = ()
    workers: int = 0
    root: bool = False
    apt: bool = False
    packages: bool = False
    program: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """What came of a ring. `seconds` are by the clock, `cpu` those of its processes; `unsteady` are tests that failed
    and passed when they ran once more, with the text of their failure.
    """

    ring: str
    result: Result
    why: str = ""
    cases: Sequence[Case] = ()
    unsteady: Sequence[Case] = ()
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def bad(self) -> list[Case]:
        """The tests that failed, and failed again."""
        return [case for case in self.cases if case.outcome.is_bad]
