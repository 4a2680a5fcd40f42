"""Runs the rings side by side, and each test that failed once more by itself.

A machine's CPUs are idle while a test waits, so more processes than CPUs run: `SLOTS` of them for each CPU.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rings import table
from rings.pytests import NO_TEST, TREE, Children, Ran, Run, pytest
from rings.ring import Case, Finding, Outcome, Result, Ring

SLOTS = 3
AGAIN = 20  # more failures than this are no chance, and do not run again
UNSTEADY = 2  # more unsteady tests than this fail the run
PACKAGES = "NODECTL_TEST_PACKAGES"  # where ./dev test has unpacked Slurm's packages
_MACHINE_FAILED = 3  # exit status of tests/vm/host/ring.py
_IN_VM = {"proved": Outcome.PASSED}  # other words are pytest's


@dataclass(frozen=True)
class Runner:
    """Runs rings; their files go to the directory `scratch`. `arguments` are for pytest. `everything` adds the tests
    that are not part of a usual run. `packages` is where Slurm's packages are unpacked.
    """

    scratch: Path
    arguments: Sequence[str] = ()
    everything: bool = False
    packages: str = ""
    children: Children = field(default_factory=Children)

    def all(self, rings: Sequence[Ring]) -> Iterator[Finding]:
        """The findings of the rings, each as soon as its ring has ended."""
        free = slots = SLOTS * (os.cpu_count() or 1)
        waiting = list(rings)
        running: dict[Future[Finding], int] = {}
        with ThreadPoolExecutor() as threads:
            try:
                while waiting or running:
                    while ring := next((ring for ring in waiting if _weight(ring, slots) <= free), None):
                        waiting.remove(ring)
                        running[threads.submit(self.one, ring)] = _weight(ring, slots)
                        free -= _weight(ring, slots)
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        free += running.pop(future)
                        yield future.result()
            finally:
                self.children.end()

    def one(self, ring: Ring) -> Finding:
        """Run one ring, if this machine can."""
        if (unready := self._unready(ring)) is not None:
            return unready
        if ring.name == table.VM:
            return self._vm(ring)
        return self._pytest(ring)

    def output(self, ring: Ring | str) -> Path:
        """The file with what a ring printed."""
        return self.scratch / f"{ring if isinstance(ring, str) else ring.name}.output"

    def _unready(self, ring: Ring) -> Finding | None:
        if self.arguments and ring.environment:
            return Finding(ring.name, Result.UNUSED, "its tests are those of another ring")
        if ring.root and os.geteuid() != 0:
            return Finding(ring.name, Result.SKIPPED, "not root")
        if ring.apt and shutil.which("apt-get") is None:
            return Finding(ring.name, Result.UNFIT, "no apt-get here: it needs a Debian")
        if ring.packages and not self.packages:
            return Finding(ring.name, Result.SKIPPED, "./dev test could not fetch Slurm's packages")
        if ring.program and shutil.which(ring.program) is None:
            return Finding(ring.name, Result.SKIPPED, f"{ring.program} is missing")
        return None

    def _pytest(self, ring: Ring) -> Finding:
        divided = ("-n", str(ring.workers), "--dist", "loadfile") if ring.workers and not self.arguments else ()
        output = None if self.arguments else self.output(ring)
        environment = {**ring.environment, **({PACKAGES: self.packages} if ring.packages else {})}
        run = pytest(self.children, [*divided, *(self.arguments or ring.paths), "-m", ring.marks], output,
                     self.scratch / f"{ring.name}.reports", environment)  # fmt: skip
        if run.ran.status == NO_TEST:
            result = Result.UNUSED if self.arguments else Result.FAILED
            return Finding(ring.name, result, "no test was selected", (), (), run.ran.seconds, run.ran.cpu)
        return self._judged(ring, run, environment)

    def _judged(self, ring: Ring, run: Run, environment: Mapping[str, str]) -> Finding:
        """The finding of a run, after its failed tests ran once more."""
        cases, ran, why = run.cases, run.ran, run.why
        bad = [case for case in cases if case.outcome.is_bad]
        unsteady: list[Case] = []
        if 0 < len(bad) <= AGAIN and not why:
            again = pytest(self.children, [case.test for case in bad], self.scratch / f"{ring.name}.again",
                           self.scratch / f"{ring.name}.again.reports", environment)  # fmt: skip
            passed = {case.test for case in again.cases if case.outcome is Outcome.PASSED}
            unsteady = [case for case in bad if case.test in passed]
            cases = [replace(case, outcome=Outcome.PASSED) if case in unsteady else case for case in cases]
            ran = Ran(ran.status, ran.seconds + again.ran.seconds, ran.cpu + again.ran.cpu)
        failed = why or any(case.outcome.is_bad for case in cases) or (ran.status != 0 and not bad)
        return Finding(
            ring.name, Result.FAILED if failed else Result.PASSED, why, cases, unsteady, ran.seconds, ran.cpu
        )

    def _vm(self, ring: Ring) -> Finding:
        command = [sys.executable, "-P", str(TREE / "tests/vm/host/ring.py")]
        if self.children.run([*command, "--make-only"], self.output(ring), {}).status != 0:
            return Finding(ring.name, Result.SKIPPED, self.output(ring).read_text(encoding="utf-8").strip()[-200:])
        kept = self.scratch / "vm"
        # The machine comes before other rings, whose tests know how to wait.
        options = ["--nice", "-10", "--keep", str(kept), *(["--all"] if self.everything else []), *self.arguments]
        ran = self.children.run([*command, *options], None if self.arguments else self.output(ring), {})
        if ran.status == NO_TEST:
            result = Result.UNUSED if self.arguments else Result.FAILED
            return Finding(ring.name, result, "no test was selected", (), (), ran.seconds, ran.cpu)
        cases, why = _in_vm(kept / "report.json")
        if ran.status not in {0, 1, _MACHINE_FAILED}:
            why = why or f"tests/vm/host/ring.py ended with {ran.status}"
        result = Result.PASSED if ran.status == 0 else Result.FAILED
        if ran.status == _MACHINE_FAILED and not any(case.outcome.is_bad for case in cases):
            result = Result.MACHINE
        return Finding(ring.name, result, why, cases, (), ran.seconds, ran.cpu)


def _in_vm(report: Path) -> tuple[list[Case], str]:
    """The tests that ran in the machine, and why it ended early, from the report of tests/vm/host/ring.py."""
    if not report.exists():
        return [], "the machine left no report"
    told: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    cases = [
        Case(f"{test['group']}: {test['proves']}", _IN_VM.get(test["result"]) or Outcome(test["result"]),
             test["seconds"], test["why"])
        for test in told["tests"]
    ]  # fmt: skip
    return cases, told["error"]


def _weight(ring: Ring, slots: int) -> int:
    return min(ring.workers or 1, slots)
