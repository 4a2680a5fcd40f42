"""All rings of tests: the part of `./dev test` after everything is installed.

    main.py [--all] [--rings NAME,...] [PYTEST ARG]...

Prints the output of each ring when it has ended, and a table at the end. Exit status 0: all rings that ran passed, and
two tests at most failed first and passed when they ran again; 1: not so. With CI=true a skipped ring counts as failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rings import last_result, report, table
from rings.pytests import TREE
from rings.ring import Finding, Result, Ring
from rings.run import PACKAGES, UNSTEADY, Runner

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """The command."""
    options, arguments = _parse()
    for number in ENDING:
        signal.signal(number, _leave)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nodectl-rings-") as scratch:
        # Not in the environment of other rings: a command hands a variable that it does not know over to Python.
        packages = os.environ.pop(PACKAGES, "")
        runner = Runner(Path(scratch), arguments, everything=options.all, packages=packages)
        findings = [told(runner, finding) for finding in _run(runner, options.rings)]
        free = shutil.disk_usage(scratch).free >> 20
    findings.sort(key=lambda finding: [ring.name for ring in table.RINGS].index(finding.ring))
    print(f"\n{free} MiB of the disk are free")  # a full one fails tests in many ways
    lines = list(report.told(findings, time.monotonic() - began))
    print("\n".join(lines), flush=True)
    if options.all and list(options.rings) == list(table.RINGS) and not arguments:
        last_result.write(TREE, lines[-1])
    return 0 if passed(findings) else 1


def passed(findings: Sequence[Finding]) -> bool:
    """Whether a run with these findings has passed: no ring failed, and few tests are unsteady."""
    ran = any(finding.result is Result.PASSED for finding in findings)
    failed = any(finding.result is Result.FAILED for finding in findings)
    return ran and not failed and sum(len(finding.unsteady) for finding in findings) <= UNSTEADY


def _parse() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        prog="./dev test", description="Run the rings of tests.", allow_abbrev=False,
        epilog="Other arguments are pytest's: -k NAME, tests/unit/model, ...")  # fmt: skip
    parser.add_argument("--all", action="store_true", help="also what only `--all` runs: see docs/testing.md")
    parser.add_argument(
        "--rings", type=_rings, default=table.RINGS, metavar="NAME,...", help=f"of {', '.join(_names())}"
    )
    return parser.parse_known_args()


def _names() -> list[str]:
    return [ring.name for ring in table.RINGS]


def _rings(text: str) -> Sequence[Ring]:
    wanted = text.split(",")
    if unknown := set(wanted) - set(_names()):
        raise argparse.ArgumentTypeError(f"no ring {', '.join(sorted(unknown))}; there are {', '.join(_names())}")
    return [ring for ring in table.RINGS if ring.name in wanted]


def _run(runner: Runner, rings: Sequence[Ring]) -> Iterable[Finding]:
    if runner.arguments:  # a few tests: one ring after the other, as they print
        return [runner.one(ring) for ring in rings]
    return runner.all(rings)


def told(runner: Runner, finding: Finding) -> Finding:
    """Print what a ring printed. With CI=true a skipped ring has failed."""
    print(f"\n--- ring {finding.ring} ---", flush=True)
    for name in (runner.output(finding.ring), runner.output(f"{finding.ring}.again")):
        if name.exists():
            sys.stdout.write(name.read_text(encoding="utf-8", errors="replace"))
    sys.stdout.flush()
    if finding.result is Result.SKIPPED and os.environ.get("CI") == "true":
        return replace(finding, result=Result.FAILED)
    return finding


def _leave(number: int, _frame: object) -> NoReturn:
    for other in ENDING:  # a second one would interrupt the end of what was started
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
