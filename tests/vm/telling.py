"""A plugin for pytest in the ring's machine: tells the host when a test begins, and its result when it ends.

What it tells is a line of JSON on a serial line of its own, so that a machine that comes to a sudden end loses no more
than the test that was running. Only the tests of the list `NODECTL_TEST_ONLY` are run; other modules are not read.
"""

from __future__ import annotations

import json
import os
import termios
from pathlib import Path
from typing import Any

import pytest

LINE = "NODECTL_TEST_LINE"  # in the environment: the serial line
ONLY = "NODECTL_TEST_ONLY"  # likewise: a file with the IDs of the tests
MOST = 16384  # characters of what a failed test says


class Telling:
    """One run of pytest; its hooks are called in the process that runs the tests."""

    def __init__(self, line: Path, only: Path) -> None:
        self._line = os.open(line, os.O_WRONLY | os.O_NOCTTY)
        self._only = set(only.read_text(encoding="utf-8").splitlines())
        self._modules = {Path(test.partition("::")[0]).resolve() for test in self._only}
        self._reports: list[pytest.TestReport] = []

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """To read a module takes a second under emulation."""
        is_module = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
        return True if is_module and collection_path not in self._modules else None

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        others = [item for item in items if item.nodeid not in self._only]
        if others:
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if item.nodeid in self._only]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._reports = []
        self._tell({"begun": nodeid})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._tell({"ended": nodeid, **summary(self._reports)})

    def _tell(self, what: dict[str, Any]) -> None:
        data = json.dumps(what).encode() + b"\n"
        while data:
            data = data[os.write(self._line, data) :]
        termios.tcdrain(self._line)  # the machine may stand still from now on


def summary(reports: list[pytest.TestReport]) -> dict[str, Any]:
    """Of the reports of one test's phases: its result, how many seconds it took, why it did not pass, all it says."""
    bad = [report for report in reports if not report.passed]
    result = "passed"
    if bad:
        result = "skipped" if bad[0].skipped else "failed" if bad[0].when == "call" else "error"
    return {
        "result": result,
        "seconds": round(sum(report.duration for report in reports), 2),
        "why": "; ".join(map(_why, bad)),
        "said": "" if result == "skipped" else "\n".join(report.longreprtext for report in bad)[-MOST:],
    }


def _why(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):  # of a test that was skipped: file, line, reason
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message if crash is not None else report.longreprtext


def pytest_configure(config: pytest.Config) -> None:
    """With the two variables in the environment."""
    config.pluginmanager.register(Telling(Path(os.environ[LINE]), Path(os.environ[ONLY])))
