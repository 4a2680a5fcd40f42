"""The vm ring: tests/vm/ in a machine of its own, with nodectl installed there as a service.

    sudo ./dev vm [--all] [--topology 2s4c2t2n] [--limit SECONDS] [--keep DIRECTORY] [PYTEST ARG]...

Makes the machine's disk once, boots it, lets it install this checkout and run the tests, resets it in the middle of
steps, and prints what each test proved. With --all, or arguments of pytest's, also the tests for which the gate has no
time: it is reset in the middle of a queue, has the Debian package installed instead, and three small ones boot with a
Slurm. The machines have no network but their own, and forget what they did.

A machine that QEMU spoils is begun anew, three times at most; what was proved stays so. Exit status 0: every test
passed; 5: none was selected; 3: each that has a result passed, and QEMU let not all have one; 1: not so, and why. The
last line is in pytest's own form, and with 3 it counts what was proved.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from debian.making import CannotMake
from vm.host import image, nodes, pack, package, qemu, report
from vm.host.lives import FIRST, LIVES, NO_TEST, NODES, ONE_MACHINES, PACKAGE, QUEUE, RESET, Course, Failed, selected
from vm.host.records import Line
from vm.host.watch import DONE, End, Fate, Watched, follow

TREE = Path(__file__).resolve().parents[3]
MEMORY = 1536  # MiB
AFTER_RESET = 420  # seconds of the machine's life that are kept for it
FOR_PACKAGE = 900  # as above
TESTING = 0.9  # of the rest; then the tests are interrupted, so that what they found is told
MACHINE = 3  # the exit status of a ring that QEMU did not let end


def main() -> int:
    """The command. Must be root: the machine's disk has root's files."""
    arguments, pytest = _parse()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    if arguments.make_only:
        return _make_only()
    began = time.monotonic()
    course = Course({life: [] for life in LIVES})
    with tempfile.TemporaryDirectory(prefix="nodectl-vm-") as name:
        scratch = Path(name)
        try:
            everything = arguments.all or bool(pytest)
            course = Course(selected(str(arguments.topology), pytest, scratch, all_of_them=everything))
            _ring(arguments, pytest, scratch, course)
        except (Failed, CannotMake, package.CannotBuild, OSError, subprocess.CalledProcessError) as error:
            course.errors.append(str(error))
        finally:
            if arguments.keep:
                _keep(scratch, Path(arguments.keep), course, arguments, time.monotonic() - began)
    return _conclude(course, time.monotonic() - began)


def _make_only() -> int:
    try:
        with image.prepared(_dependencies()):
            return 0
    except (CannotMake, OSError, subprocess.CalledProcessError) as error:
        print(f"vm: {error}")
        return 1


def _conclude(course: Course, seconds: float) -> int:
    rows = course.rows
    print(f"\n{report.as_text(rows)}")
    for row in rows:
        if row.is_bad:  # as pytest names what failed, which ./dev test repeats at its end
            if course.faults:  # the machine had no time to
                print(row.said)
            print(f"{row.result.upper()} {row.test} - {row.why.partition(chr(10))[0]}")
    for why in course.errors:
        print(f"ERROR vm: {why}")
    if course.seconds:
        print("vm: " + ", ".join(f"{life} {spent:.0f} s" for life, spent in course.seconds.items()))
    if course.is_spoilt:
        print(f"MACHINE vm: {_spoilt(course)}")
    counts = report.count(rows)
    counts[report.ERROR] += len(course.errors)
    print(report.last_line(counts, seconds), flush=True)
    return status(counts, is_spoilt=course.is_spoilt)


def _spoilt(course: Course) -> str:
    return f"{course.missing} tests have no result: {'; '.join(course.faults)}" if course.is_spoilt else ""


def status(counts: dict[str, int], *, is_spoilt: bool) -> int:
    """The exit status of a ring with so many results."""
    if counts[report.ERROR] or counts[report.FAILED]:
        return 1
    if is_spoilt:
        return MACHINE
    return 0 if counts[report.PROVED] else NO_TEST


def _parse() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        prog="./dev vm", description="Run tests/vm in a virtual machine.", allow_abbrev=False,
        epilog="Other arguments are pytest's: -k NAME, tests/vm/test_service.py, ...")  # fmt: skip
    parser.add_argument("--all", action="store_true", help="also the tests that ./dev test runs with --all only")
    parser.add_argument("--topology", type=qemu.Topology.parse, default="2s4c2t2n", metavar="2s4c2t2n",
                        help="sockets, cores of each, threads of each, memory nodes of all")  # fmt: skip
    parser.add_argument("--limit", type=float, default=4800, metavar="SECONDS", help="for the machine's life")
    parser.add_argument(
        "--nice", type=int, default=0, metavar="N", help="the machines' nice value; less than 0: before others"
    )
    parser.add_argument("--make-only", action="store_true", help="make the machine's disk, and boot nothing")
    parser.add_argument("--keep", metavar="DIRECTORY", help="where to leave the report, the logs and the results")
    return parser.parse_known_args()


def _leave(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


def _keep(scratch: Path, where: Path, course: Course, arguments: argparse.Namespace, seconds: float) -> None:
    where.mkdir(parents=True, exist_ok=True)
    for pattern in ("console*", "line*", "qemu*.log", "results/*"):
        for path in scratch.glob(pattern):
            shutil.copy(path, where)
    about = {
        "topology": str(arguments.topology), "all": arguments.all, "seconds": round(seconds, 1),
        "lives": {life: round(spent, 1) for life, spent in course.seconds.items()},
        "error": "; ".join(course.errors) or _spoilt(course), "faults": course.faults, "machine": course.is_spoilt,
    }  # fmt: skip
    (where / "report.json").write_text(report.as_json(course.rows, about))
    (where / "report.txt").write_text(report.as_text(course.rows))


def _ring(arguments: argparse.Namespace, pytest: list[str], scratch: Path, course: Course) -> None:
    """Until each test has a result, or there can be no more. Raises Failed."""
    if not course.missing:
        return
    with image.prepared(_dependencies()) as disk:
        wheel = pack.wheel(scratch)
        packages = package.build(scratch) if course.left()[PACKAGE] else ()
        bench = Bench(arguments, pytest, scratch, disk, wheel, packages)
        for lives, live in ((ONE_MACHINES, bench.one_machine), ((NODES,), bench.three_machines)):
            _prove(course, lives, live)


def _prove(course: Course, lives: Sequence[str], live: Callable[[dict[str, list[str]], Course], End]) -> None:
    """These lives of a machine, which is begun anew as long as that is sensible."""
    while any(course.left(lives).values()) and course.may_go_on:
        began = time.monotonic()
        end = live(course.begin(lives), course)
        course.take(end, began)
        if end.fate in {Fate.OVER, Fate.LATE}:
            if left := [test for tests in course.left(lives).values() for test in tests]:
                course.errors.append(f"{len(left)} tests were not run, the first of them {left[0]}")
            return


class Bench:
    """What machines are made of, and how they live."""

    def __init__(
        self, arguments: argparse.Namespace, pytest: list[str], scratch: Path, disk: image.Image, wheel: Path,
        packages: Sequence[Path],
    ) -> None:  # fmt: skip
        self._arguments, self._pytest, self._scratch, self._disk = arguments, pytest, scratch, disk
        self._wheel, self._packages, self._compiled = wheel, packages, pack.compile_of(wheel, scratch)
        self._accelerator = qemu.Machine(disk, arguments.topology, MEMORY).accelerator()
        self._turn = 0

    def one_machine(self, tests: dict[str, list[str]], course: Course) -> End:
        """From power-on to power-off, with a boot from the same disk after each reset."""
        self._turn += 1
        self._pack(tests)
        print(f"vm: {self._arguments.topology}, {self._accelerator.partition(',')[0]}, {MEMORY} MiB", flush=True)
        scratch, machine = self._scratch, qemu.Machine(self._disk, self._arguments.topology, MEMORY)
        console, line = scratch / f"console-{self._turn}", scratch / f"line-{self._turn}"
        gdb, own = scratch / "gdb", scratch / "vda"
        console.touch()
        subprocess.run(["cp", "--sparse=always", "--reflink=auto", machine.image.disk, own], check=True)
        disks = (f"file={scratch}/in,read-only=on", f"file={scratch}/out")
        words = machine.boot(
            self._accelerator, disks=disks, console=str(console), line=str(line), debugger=str(gdb), kept=str(own)
        )
        limit = time.monotonic() + self._arguments.limit
        heard = Line(line, course.records)
        log = scratch / "qemu.log"
        try:
            with console.open(encoding="utf-8", errors="replace") as lines:
                while True:
                    running = qemu.run(words, max(limit - time.monotonic(), 1), log, self._arguments.nice)
                    try:
                        end = follow([Watched(running, log, lines, heard, gdb)])
                    finally:
                        qemu.end(running)
                    if end.fate is not Fate.OVER or DONE in end.said:
                        return end
                    course.errors += [end.why] if end.why else []
        finally:
            heard.close()
            pack.unpack(scratch, "out")

    def three_machines(self, tests: dict[str, list[str]], course: Course) -> End:
        """From power-on until the first one has switched itself off."""
        scratch = self._scratch
        print(f"vm: three of {nodes.TOPOLOGY}, {self._accelerator.partition(',')[0]}, {nodes.MEMORY} MiB", flush=True)
        if not (scratch / "opt").exists():
            nodes.install(self._wheel, scratch / "opt")
        settings = {"topology": self._arguments.topology, "nodes_limit": int(nodes.LIMIT * TESTING)}
        pack.settle(scratch, settings, self._pytest, tests)
        with tarfile.open(scratch / "nodes.in", "w") as archive:
            for name in ("settings", "arguments", f"{NODES}.tests"):
                archive.add(scratch / name, name)
            archive.add(scratch / "opt", "opt", filter=pack.of_root)
            archive.add(TREE / "tests/vm/nodes/run", "run", filter=pack.of_sources)
            for name in ("pyproject.toml", "tests/debian", "tests/vm", "tests/rootful", "README.md", "docs"):
                archive.add(TREE / name, name, filter=pack.of_sources)
        pack.make_room(scratch / "nodes.out")
        with ExitStack() as stack:
            stack.callback(pack.unpack, scratch, "nodes.out")
            started = stack.enter_context(
                nodes.running(self._disk, self._accelerator, scratch, (scratch / "nodes.in", scratch / "nodes.out"),
                              self._arguments.nice))  # fmt: skip
            machines = []
            for number, process in started.items():
                console = stack.enter_context((scratch / f"console-n{number}").open(encoding="utf-8", errors="replace"))
                heard = Line(scratch / f"line-n{number}", course.records)
                stack.callback(heard.close)
                files = (scratch / f"gdb-n{number}", number == nodes.NUMBERS[0])
                machines.append(Watched(process, scratch / f"qemu-n{number}.log", console, heard, *files))
            return follow(machines)

    def _pack(self, tests: dict[str, list[str]]) -> None:
        """The disk vdb is a tar archive: the wheel of this checkout, the units, the tests, what to do. vdc is empty."""
        resets = sum(bool(tests[life]) for life in (RESET, QUEUE))
        kept = AFTER_RESET * resets + FOR_PACKAGE * bool(tests[PACKAGE])
        settings = {
            "topology": self._arguments.topology, "limit": int((self._arguments.limit - kept) * TESTING),
            "reset_limit": int(AFTER_RESET * TESTING), "deb_limit": int(FOR_PACKAGE * TESTING),
            **{life: bool(tests[life]) for life in (FIRST, RESET, QUEUE, PACKAGE)},
        }  # fmt: skip
        pack.settle(self._scratch, settings, self._pytest, tests)
        with tarfile.open(self._scratch / "in", "w") as archive:
            packages = self._packages if tests[PACKAGE] else ()
            names = ("settings", "arguments", *(f"{life}.tests" for life in ONE_MACHINES))
            for path in (self._wheel, *packages, *(self._scratch / name for name in names)):
                archive.add(path, path.name)
            archive.add(self._compiled, "compiled", filter=pack.of_root)
            archive.add(TREE / "tests/vm/run", "run", filter=pack.of_sources)
            for name in ("systemd", "pyproject.toml", "tests/debian", "tests/vm", "tests/rootful", "README.md", "docs"):
                archive.add(TREE / name, name, filter=pack.of_sources)
        pack.make_room(self._scratch / "out")


def _dependencies() -> list[str]:
    with (TREE / "pyproject.toml").open("rb") as file:
        found: list[str] = tomllib.load(file)["project"]["dependencies"]
    return found


if __name__ == "__main__":
    sys.exit(main())
