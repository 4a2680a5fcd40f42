"""Which tests are unsteady: files of tests, run again and again beside busy loops. `./dev steady`.

    steady.py [N] [FILE...]

Prints each test that did not pass in all N runs, with the text of its first failure. Exit status 0: there is none.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rings.pytests import Children, pytest

FILES = ("tests/rootful", "tests/cluster")
MARKS = "not (lint or systemd or packages or vm)"
WORKERS = 3
TIMES = 5
WHY_LINES = 40
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Each ends when the process that started it ends.
_BUSY = ("setpriv", "--pdeathsig", "KILL", sys.executable, "-c", "while True: pass")


def main() -> int:
    """The command."""
    options = _parse()
    for number in ENDING:
        signal.signal(number, _leave)
    failures: Counter[str] = Counter()
    first: dict[str, str] = {}
    ended_early = 0
    children = Children()
    with tempfile.TemporaryDirectory(prefix="nodectl-steady-") as name, _busy(options.loops):
        for turn in range(1, options.times + 1):
            reports = Path(name) / f"{turn}.reports"
            divided = ("-n", str(options.workers), "--dist", "loadfile") if options.workers else ()
            try:
                run = pytest(children, ["-q", *divided, "-m", MARKS, *options.files], Path(name) / "output", reports)
            finally:
                children.end()
            bad = [case for case in run.cases if case.outcome.is_bad]
            ended_early += bool(run.why)
            for case in bad:
                failures[case.test] += 1
                first.setdefault(case.test, case.why)
            print(f"run {turn} of {options.times}: {len(run.cases)} tests, {len(bad)} failed, "
                  f"{run.ran.seconds:.0f} s {run.why}".rstrip(), flush=True)  # fmt: skip
            if not run.cases:
                print((Path(name) / "output").read_text(encoding="utf-8", errors="replace"))
                return 1
    for test, count in failures.most_common():
        print(f"\n{test} failed in {count} of {options.times} runs; at first:")
        print("\n".join(first[test].splitlines()[:WHY_LINES]))
    print(f"\n{len(failures)} unsteady tests in {options.times} runs beside {options.loops} busy loops")
    return 1 if failures or ended_early else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev steady", allow_abbrev=False,
                                     description="Run tests again and again beside busy loops.")  # fmt: skip
    cpus = os.cpu_count() or 1
    parser.add_argument("times", nargs="?", default=str(TIMES), metavar="N", help=f"how often; without, {TIMES}")
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"for pytest; without, {' '.join(FILES)}")
    parser.add_argument("--loops", type=int, default=cpus, help="how many loops are busy; without, one for each CPU")
    parser.add_argument("--workers", type=int, default=WORKERS, metavar="N",
                        help="processes among which the files are divided; 0: no division")  # fmt: skip
    options = parser.parse_args()
    if not options.times.isdecimal():  # a file: N was left out
        options.files.insert(0, options.times)
        options.times = TIMES
    options.times = int(options.times)
    options.files = options.files or FILES
    return options


@contextmanager
def _busy(loops: int) -> Iterator[None]:
    running = [subprocess.Popen(_BUSY) for _ in range(loops)]
    try:
        yield
    finally:
        for loop in running:
            loop.kill()
            loop.wait()


def _leave(number: int, _frame: object) -> NoReturn:
    for other in ENDING:  # a second one would interrupt the end of what was started
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
