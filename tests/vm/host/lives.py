"""Which tests are run in which life of a machine, and what of it is left to be proved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from vm.host import listing, report
from vm.host.records import Records
from vm.host.watch import End, Fate

TREE = Path(__file__).resolve().parents[3]
NO_TEST = 5  # pytest's status
FIRST, RESET, QUEUE, PACKAGE, NODES = "first", "reset", "queue", "deb", "nodes"
ONE_MACHINES = (FIRST, RESET, QUEUE, PACKAGE)  # one after the other; the last is three other machines' life
LIVES = (*ONE_MACHINES, NODES)
ONLY_WITH_ALL = (QUEUE, PACKAGE, NODES)
WHOLE = (QUEUE, PACKAGE)  # of which each test goes on where the one before has ended
FAULTS = 3  # so often a machine is begun anew, at most


class Failed(Exception):
    """The ring has no result, or not all; str() says why."""


def of(marks: Sequence[str]) -> str:
    """The life in which a test with these marks is run."""
    if RESET in marks:
        return QUEUE if QUEUE in marks else RESET
    return next((life for life in (PACKAGE, NODES) if life in marks), FIRST)


def selected(topology: str, pytest: Sequence[str], scratch: Path, *, all_of_them: bool) -> dict[str, list[str]]:
    """The tests of each life that pytest's arguments select, in the order in which they are run: before any machine is
    booted. Raises Failed.
    """
    written = scratch / "listing"
    command = [sys.executable, "-P", "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "NODECTL_TEST_VM": topology, listing.FILE: str(written),
                   "PYTHONPATH": str(TREE / "tests")}  # fmt: skip
    command += ["-p", listing.__name__, "-o", "testpaths=tests/vm", *pytest, "-m", "vm"]
    done = subprocess.run(command, cwd=TREE, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False)  # fmt: skip
    if done.returncode not in {0, NO_TEST}:
        raise Failed(f"the tests cannot be collected:\n{done.stdout}{done.stderr}")
    return divided(json.loads(written.read_text()), all_of_them=all_of_them)


def divided(tests: Mapping[str, Sequence[str]], *, all_of_them: bool) -> dict[str, list[str]]:
    """Tests with their marks, by life; without `all_of_them` the gate's only."""
    found: dict[str, list[str]] = {life: [] for life in LIVES}
    for test, marks in tests.items():
        life = of(marks)
        if all_of_them or ("all" not in marks and life not in ONLY_WITH_ALL):
            found[life].append(test)
    return found


class Course:
    """How far the ring has come. What a machine proved before it was begun anew stays proved."""

    def __init__(self, tests: Mapping[str, list[str]]) -> None:
        self.records = Records()
        self.faults: list[str] = []  # why machines were begun anew
        self.errors: list[str] = []  # besides those of tests
        self.seconds: dict[str, float] = {}  # of each life
        self._tests = tests
        self._suspects: set[str] = set()

    @property
    def rows(self) -> list[report.Row]:
        """What is known, in the tests' order."""
        order = [test for life in LIVES for test in self._tests[life]]
        return [self.records.rows[test] for test in order if test in self.records.rows]

    @property
    def may_go_on(self) -> bool:
        """Whether there may be a machine once more."""
        return len(self.faults) < FAULTS

    @property
    def missing(self) -> int:
        """How many tests have no result."""
        return sum(test not in self.records.rows for tests in self._tests.values() for test in tests)

    @property
    def is_spoilt(self) -> bool:
        """Whether tests have no result because machines were begun anew too often."""
        return bool(self.missing) and not self.may_go_on

    def left(self, lives: Sequence[str] = LIVES) -> dict[str, list[str]]:
        """The tests that have no result. Those that go on where others have ended are begun with the first."""
        found: dict[str, list[str]] = {life: [] for life in LIVES}
        for life in lives:
            tests = self._tests[life]
            missing = [test for test in tests if test not in self.records.rows]
            found[life] = tests if missing and life in WHOLE else missing
        return found

    def begin(self, lives: Sequence[str]) -> dict[str, list[str]]:
        """What the next machine is to prove."""
        left = self.left(lives)
        for life in WHOLE:
            self.records.forget(left[life])
        self.records.running = ""
        return left

    def take(self, end: End, began: float) -> None:
        """How that machine ended, which had begun then on this host's clock."""
        for life, over in self.records.over.items():
            self.seconds[life] = self.seconds.get(life, 0) + over - began
            began = over
        self.records.over.clear()
        if end.fate in {Fate.OVER, Fate.LATE}:
            self.errors += [end.why] if end.why else []
            return
        test = self.records.running
        where = f"while {test} ran" if test else "while no test ran"
        is_ours = end.fate is Fate.GUEST or (end.fate is Fate.UNKNOWN and test in self._suspects)
        if is_ours and test:
            self.records.note(report.Row.of(test, report.ERROR, why=end.why, said=end.said))
        elif is_ours:
            self.errors.append(f"{end.why} ({where})")
        if end.fate is Fate.UNKNOWN and test:
            self._suspects.add(test)
        self.faults.append(f"{end.why} ({where})")
        what = "a result of the test" if is_ours else "the emulator's fault"
        print(f"\nvm: {self.faults[-1]}: {what}", flush=True)
