"""Runs the rings side by side, and each test that failed once more by itself.

A machine's CPUs are idle while a test waits, so more processes than CPUs run: `SLOTS` of them for each CPU.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rings import table
from rings.pytests import NO_TEST, TREE, Children, Run, pytest
from rings.ring import Case, Finding, Outcome, Result, Ring

SLOTS = 3
AGAIN = 20  # more failures than this are no chance, and do not run again
UNSTEADY = 2  # more unsteady tests than this fail the run
PACKAGES = "NODECTL_TEST_PACKAGES"  # where ./dev test has unpacked Slurm's packages
_MACHINE_FAILED = 3  # exit status of tests/vm/host/ring.py
_VM = (sys.executable, "-P", str(TREE / "tests/vm/host/ring.py"))
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
        return self._judged(
            ring,
            run,
            lambda tests: pytest(self.children, tests, self._again(ring), self.scratch / f"{ring.name}.again.reports",
                                 environment),
        )  # fmt: skip

    def _vm(self, ring: Ring) -> Finding:
        if self.children.run([*_VM, "--make-only"], self.output(ring), {}).status != 0:
            return Finding(ring.name, Result.SKIPPED, self.output(ring).read_text(encoding="utf-8").strip()[-200:])
        output = None if self.arguments else self.output(ring)
        run = self._machine([*(["--all"] if self.everything else []), *self.arguments], output, self.scratch / "vm")
        if run.ran.status == NO_TEST:
            result = Result.UNUSED if self.arguments else Result.FAILED
            return Finding(ring.name, result, "no test was selected", (), (), run.ran.seconds, run.ran.cpu)
        if run.ran.status == _MACHINE_FAILED:
            return Finding(ring.name, Result.MACHINE, run.why, run.cases, (), run.ran.seconds, run.ran.cpu)
        return self._judged(ring, run, lambda tests: self._machine(tests, self._again(ring), self.scratch / "vm.again"))

    def _machine(self, words: Sequence[str], output: Path | None, kept: Path) -> Run:
        # The machine comes before other rings, whose tests know how to wait.
        ran = self.children.run([*_VM, "--nice", "-10", "--keep", str(kept), *words], output, {})
        cases, why = _in_vm(kept / "report.json")
        if ran.status not in {0, 1, NO_TEST, _MACHINE_FAILED}:
            why = why or f"tests/vm/host/ring.py ended with {ran.status}"
        return Run(ran, cases, why)

    def _again(self, ring: Ring) -> Path:
        return self.output(f"{ring.name}.again")

    def _judged(self, ring: Ring, run: Run, run_again: Callable[[list[str]], Run]) -> Finding:
        """The finding of a run, after its failed tests ran once more."""
        cases, seconds, cpu = run.cases, run.ran.seconds, run.ran.cpu
        bad = [case for case in cases if case.outcome.is_bad]
        unsteady: list[Case] = []
        if 0 < len(bad) <= AGAIN and not run.why:
            again = run_again([case.test for case in bad])
            passed = {case.test for case in again.cases if case.outcome is Outcome.PASSED}
            unsteady = [case for case in bad if case.test in passed]
            cases = [replace(case, outcome=Outcome.PASSED) if case in unsteady else case for case in cases]
            seconds, cpu = seconds + again.ran.seconds, cpu + again.ran.cpu
        failed = run.why or any(case.outcome.is_bad for case in cases) or (run.ran.status != 0 and not bad)
        result = Result.FAILED if failed else Result.PASSED
        return Finding(ring.name, result, run.why, cases, unsteady, seconds, cpu)


def _in_vm(report: Path) -> tuple[list[Case], str]:
    """The tests that ran in the machine, and why it ended early, from the report of tests/vm/host/ring.py."""
    if not report.exists():
        return [], "the machine left no report"
    told: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    cases = [
        Case(
            test["test"],
            _IN_VM.get(test["result"]) or Outcome(test["result"]),
            test["seconds"],
            test["said"] or test["why"],
        )
        for test in told["tests"]
    ]
    return cases, told["error"]


def _weight(ring: Ring, slots: int) -> int:
    return min(ring.workers or 1, slots)
