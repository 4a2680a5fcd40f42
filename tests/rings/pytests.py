"""One run of pytest in a process of its own: its output in a file, the outcome of each test as a value."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rings.ring import Case, Outcome

TREE = Path(__file__).resolve().parents[2]
NO_TEST = 5  # pytest's exit status
_ENDED = (0, 1, NO_TEST)  # exit statuses of a run that got to its end
GRACE = 60  # seconds for a run that was told to end


@dataclass(frozen=True)
class Ran:
    """A program that has ended: its exit status, seconds by the clock, and CPU seconds with its children."""

    status: int
    seconds: float
    cpu: float


@dataclass(frozen=True)
class Run:
    """A run of pytest that has ended. `why` is empty if it got to its end, whatever its tests did."""

    ran: Ran
    cases: Sequence[Case]
    why: str


class Children:
    """The programs that run now, each in a process group of its own, so that an interrupt can end them all.

    `directory` is where they run.
    """

    def __init__(self, directory: Path = TREE) -> None:
        self._directory = directory
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(self, argv: Sequence[str], output: Path | None, environment: Mapping[str, str]) -> Ran:
        """Run a program to its end, with stdout and stderr added to the file `output`; None is this program's stdout.
        Any thread may call.
        """
        began = time.monotonic()
        with output.open("ab") if output else nullcontext(sys.stdout) as out:
            program = subprocess.Popen(
                argv, cwd=self._directory, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, process_group=0,
            )  # fmt: skip
        self._running.add(program)
        try:
            # Not program.wait(): the usage is this child's alone.
            _, status, used = os.wait4(program.pid, 0)
        except BaseException:  # an interrupt of this thread
            self._end(program)
            raise
        self._running.discard(program)
        program.returncode = os.waitstatus_to_exitcode(status)
        return Ran(program.returncode, time.monotonic() - began, used.ru_utime + used.ru_stime)

    def end(self) -> None:
        """End all programs, for which other threads wait."""
        for program in tuple(self._running):
            _signal(program.pid, signal.SIGINT)
        end = time.monotonic() + GRACE
        while self._running and time.monotonic() < end:
            time.sleep(0.1)
        for program in tuple(self._running):
            _signal(program.pid, signal.SIGKILL)

    def _end(self, program: subprocess.Popen[bytes]) -> None:
        """Interrupt a program as Ctrl-C would, and kill it if it does not end within `GRACE` seconds."""
        _signal(program.pid, signal.SIGINT)
        try:
            program.wait(GRACE)
        except subprocess.TimeoutExpired:
            _signal(program.pid, signal.SIGKILL)
            program.wait()
        self._running.discard(program)


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def pytest(
    children: Children, arguments: Iterable[str], output: Path | None, reports: Path,
    environment: Mapping[str, str] | None = None,
) -> Run:  # fmt: skip
    """Run pytest over the installed package; `reports` is a new file for pytest-reportlog."""
    # -P: the tree stays off sys.path, so the tests import what is installed.
    argv = [sys.executable, "-P", "-m", "pytest", f"--report-log={reports}", *arguments]
    ran = children.run(argv, output, environment or {})
    cases = read(reports) if reports.exists() else []
    why = "" if ran.status in _ENDED else f"pytest ended with {ran.status}"
    return Run(ran, cases, why)


def read(reports: Path) -> list[Case]:
    """The tests of a run, from the file that pytest-reportlog left, in the order in which they ended.

    A test that failed and whose fixtures failed as well is one case. The test in which a run was killed is an error;
    a last line that is cut off is ignored.
    """
    cases: dict[str, Case] = {}
    ended: set[str] = set()
    for line in reports.read_text(encoding="utf-8").splitlines():
        try:
            report = json.loads(line)
        except ValueError:
            continue
        kind = report.get("$report_type")
        if kind == "TestReport" or (kind == "CollectReport" and report["outcome"] == "failed"):
            _add(cases, report)
            if report.get("when") == "teardown":
                ended.add(report["nodeid"])
    return [
        case if case.test in ended or case.outcome is not Outcome.PASSED
        else replace(case, outcome=Outcome.ERROR, why="the process that ran it has ended")
        for case in cases.values()
    ]  # fmt: skip


def _add(cases: dict[str, Case], report: dict[str, Any]) -> None:
    name, outcome = report["nodeid"], _outcome(report)
    before = cases.get(name, Case(name, Outcome.PASSED, 0.0))
    seconds = before.seconds + report.get("duration", 0.0)
    if before.outcome.is_bad or outcome is Outcome.PASSED:
        cases[name] = Case(name, before.outcome, seconds, before.why)
    else:
        cases[name] = Case(name, outcome, seconds, _why(report))


def _outcome(report: dict[str, Any]) -> Outcome:
    match report["outcome"]:
        case "failed":
            return Outcome.FAILED if report.get("when") == "call" else Outcome.ERROR
        case "skipped":
            return Outcome.XFAILED if "wasxfail" in report else Outcome.SKIPPED
        case _:
            return Outcome.PASSED


def _why(report: dict[str, Any]) -> str:
    """The text of a failure, or the reason of a skip."""
    match report.get("longrepr"):
        case [_, _, reason]:
            return str(reason).removeprefix("Skipped: ")
        case {"reprcrash": {"path": path, "lineno": line, "message": message}}:
            return f"{path}:{line}: {message}"
        case {"longrepr": text} | {"content": text}:
            return str(text)
        case other:
            return str(other or "")
