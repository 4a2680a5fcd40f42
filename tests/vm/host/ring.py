"""The vm ring: tests/vm/ in a machine of its own, with nodectl installed there as a service.

    sudo ./dev vm [--topology 2s4c2t2n] [--limit SECONDS] [--keep DIRECTORY] [PYTEST ARG]...

Makes the machine's disk once, boots it, lets it install this checkout and run the tests, resets it in the middle of
steps and of a queue, has it install the Debian package instead; boots three small ones with a Slurm; and prints what
each test proved. The machines have no network but their own, and forget what they did. Exit status 0: every test
passed; 5: none was selected; 1: not so, and why. The last line is in pytest's own form.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TextIO

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from debian.making import CannotMake
from vm.host import image, nodes, pack, package, qemu, report
from vm.host.debugger import Debugger, attached

TREE = Path(__file__).resolve().parents[3]
MEMORY = 1536  # MiB
SILENCE = 480  # seconds without a word on the console; each test's own limit (conftest.py) is less
BOOT_SILENCE = 120  # the same of a machine that boots: nothing of ours runs before its first word
QUIET = 30  # seconds after which it may be the emulator that stands still
HANGS = 2  # so often in one life it is made to begin anew
AFTER_RESET = 420  # seconds of the machine's life that are kept for it
FOR_PACKAGE = 900  # as above
TESTING = 0.9  # of the rest; then the tests are interrupted, so that what they found is told
NO_TEST = 5  # pytest's status
ENDED = ("0", "1", str(NO_TEST))  # those of a run that was not interrupted
# Which tests are run in which life of the machine, and the name of their results.
FIRST, RESET, QUEUE = "not reset and not deb and not nodes", "reset and not queue", "reset and queue"
PACKAGE, NODES = "deb", "nodes"  # the last is three other machines' life
RESULTS = {FIRST: "first", RESET: "reset", QUEUE: "queue", PACKAGE: "deb", NODES: "nodes"}
FIRMWARE, OURS = "SeaBIOS", "vm: "  # what a life of the machine begins with, and what `run` says
DONE = "s: done"  # the last of it, before the power-off
LIVES = 8  # of one machine: three are meant, more are a loss of power or a hang
CRASHES = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL)  # QEMU's own
_TERMINAL = re.compile(r"\r|\x1bc|\x1b\[[0-9;?]*[a-zA-Z]")  # what the firmware says to one


class Failed(Exception):
    """The ring has no result, or not all; str() says why."""


def main() -> int:
    """The command. Must be root: the machine's disk has root's files."""
    arguments, pytest = _parse()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    if arguments.make_only:
        return _make_only()
    began = time.monotonic()
    rows: list[report.Row] = []
    why = ""
    with tempfile.TemporaryDirectory(prefix="nodectl-vm-") as name:
        scratch = Path(name)
        try:
            _ring(arguments, pytest, scratch)
        except (Failed, CannotMake, package.CannotBuild, OSError, subprocess.CalledProcessError) as error:
            why = str(error)
        finally:
            for path in (scratch / f"results/{name}.xml" for name in RESULTS.values()):
                rows += report.read(path) if path.exists() else ()
            about = {"topology": str(arguments.topology), "error": why}
            if rows:
                (scratch / "results/report.json").write_text(report.as_json(rows, about))
                (scratch / "results/report.txt").write_text(report.as_text(rows))
            if arguments.keep:
                _keep(scratch, Path(arguments.keep))
    return _conclude(rows, why, began)


def _make_only() -> int:
    try:
        with image.prepared(_dependencies()):
            return 0
    except (CannotMake, OSError, subprocess.CalledProcessError) as error:
        print(f"vm: {error}")
        return 1


def _conclude(rows: list[report.Row], why: str, began: float) -> int:
    print(f"\n{report.as_text(rows)}")
    counts = report.count(rows)
    if why:
        print(f"ERROR vm: {why}")  # as pytest names what failed, which ./dev test repeats at its end
        counts[report.ERROR] += 1
    print(report.last_line(counts, time.monotonic() - began), flush=True)
    if counts[report.ERROR] or counts[report.FAILED]:
        return 1
    return 0 if counts[report.PROVED] else NO_TEST


def _parse() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        prog="./dev vm", description="Run tests/vm in a virtual machine.", allow_abbrev=False,
        epilog="Other arguments are pytest's: -k NAME, tests/vm/test_service.py, ...")  # fmt: skip
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


def _keep(scratch: Path, where: Path) -> None:
    where.mkdir(parents=True, exist_ok=True)
    kept = ("console", "qemu.log", "console-*", "qemu-*.log", "results/*")
    for path in (path for pattern in kept for path in scratch.glob(pattern)):
        shutil.copy(path, where)


def _ring(arguments: argparse.Namespace, pytest: list[str], scratch: Path) -> None:
    """Leaves the machine's results in the scratch directory; nothing if no test is selected. Raises Failed."""
    selected = {mark: _selects(arguments, pytest, mark) for mark in RESULTS}
    if not any(selected.values()):
        return
    failures = []
    with image.prepared(_dependencies()) as disk:
        wheel = pack.wheel(scratch)
        accelerator = qemu.Machine(disk, arguments.topology, MEMORY).accelerator()
        if any(chosen for mark, chosen in selected.items() if mark != NODES):
            try:
                _one_machine(arguments, pytest, scratch, disk, wheel, accelerator, selected)
            except Failed as failed:
                failures.append(str(failed))
        if selected[NODES]:
            try:
                _three_machines(arguments, pytest, scratch, disk, wheel, accelerator)
            except Failed as failed:
                failures.append(f"three machines: {failed}")
    if failures:
        raise Failed("; ".join(failures))
    for mark, name in RESULTS.items():
        if selected[mark] and not (scratch / f"results/{name}.xml").exists():
            raise Failed(f"the machine ended without results of its tests ({mark}); its last words are above")
        status = scratch / f"results/{name}.status"
        if selected[mark] and (not status.exists() or status.read_text().strip() not in ENDED):
            raise Failed(f"not all tests were run ({mark}): there was no time for more")


def _one_machine(
    arguments: argparse.Namespace, pytest: list[str], scratch: Path, disk: image.Image, wheel: Path,
    accelerator: str, selected: dict[str, bool],
) -> None:  # fmt: skip
    _pack(scratch, arguments, pytest, selected, wheel)
    print(f"vm: {arguments.topology}, {accelerator.partition(',')[0]}, {MEMORY} MiB", flush=True)
    try:
        _live(qemu.Machine(disk, arguments.topology, MEMORY), accelerator, arguments, scratch)
    finally:
        pack.unpack(scratch, "out")


def _three_machines(
    arguments: argparse.Namespace, pytest: list[str], scratch: Path, disk: image.Image, wheel: Path, accelerator: str
) -> None:
    print(f"vm: three of {nodes.TOPOLOGY}, {accelerator.partition(',')[0]}, {nodes.MEMORY} MiB", flush=True)
    nodes.install(wheel, scratch / "opt")
    pack.settle(scratch, {"topology": arguments.topology, "nodes_limit": int(nodes.LIMIT * TESTING)}, pytest)
    with tarfile.open(scratch / "nodes.in", "w") as archive:
        for path in (scratch / "settings", scratch / "arguments"):
            archive.add(path, path.name)
        archive.add(scratch / "opt", "opt", filter=pack.of_root)
        archive.add(TREE / "tests/vm/nodes/run", "run", filter=pack.of_sources)
        for name in ("pyproject.toml", "tests/vm", "tests/rootful", "README.md", "docs"):
            archive.add(TREE / name, name, filter=pack.of_sources)
    pack.make_room(scratch / "nodes.out")
    console = scratch / "console-n1"
    started = nodes.running(disk, accelerator, scratch, scratch / "nodes.in", scratch / "nodes.out", arguments.nice)
    try:
        with started as first, console.open(encoding="utf-8", errors="replace") as lines:
            _follow(first, lines, *(scratch / f"gdb-n{number}" for number in nodes.NUMBERS))
    finally:
        pack.unpack(scratch, "nodes.out")
    _judge(first, nodes.LIMIT, scratch / "qemu-n1.log")


def _dependencies() -> list[str]:
    with (TREE / "pyproject.toml").open("rb") as file:
        found: list[str] = tomllib.load(file)["project"]["dependencies"]
    return found


def _selects(arguments: argparse.Namespace, pytest: list[str], mark: str) -> bool:
    """Whether pytest's arguments select a test: before any machine is booted. Raises Failed."""
    command = [sys.executable, "-P", "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, "-o", "testpaths=tests/vm", *pytest, "-m", f"vm and {mark}"], cwd=TREE,
                          env={**os.environ, "NODECTL_TEST_VM": str(arguments.topology)}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)  # fmt: skip
    if done.returncode not in {0, NO_TEST}:
        raise Failed(f"the tests cannot be collected:\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def _pack(
    scratch: Path, arguments: argparse.Namespace, pytest: list[str], selected: dict[str, bool], wheel: Path
) -> None:
    """The disk vdb is a tar archive: the wheel of this checkout, the units, the tests, and what to do. vdc is empty."""
    resets = sum(selected[mark] for mark in (RESET, QUEUE))
    kept = AFTER_RESET * resets + FOR_PACKAGE * selected[PACKAGE]
    limit = int((arguments.limit - kept) * TESTING)
    settings = {
        "topology": arguments.topology, "limit": limit, "reset_limit": int(AFTER_RESET * TESTING),
        "first": selected[FIRST], "reset": selected[RESET], "queue": selected[QUEUE],
        "deb": selected[PACKAGE], "deb_limit": int(FOR_PACKAGE * TESTING),
    }  # fmt: skip
    pack.settle(scratch, settings, pytest)
    with tarfile.open(scratch / "in", "w") as archive:
        packages = package.build(scratch) if selected[PACKAGE] else ()
        for path in (wheel, *packages, scratch / "settings", scratch / "arguments"):
            archive.add(path, path.name)
        archive.add(TREE / "tests/vm/run", "run", filter=pack.of_sources)
        for name in ("systemd", "pyproject.toml", "tests/vm", "tests/rootful", "README.md", "docs"):
            archive.add(TREE / name, name, filter=pack.of_sources)
    pack.make_room(scratch / "out")


def _live(machine: qemu.Machine, accelerator: str, arguments: argparse.Namespace, scratch: Path) -> None:
    """From power-on to power-off; the console is shown as it comes. A reset, and a QEMU that crashes, is a loss of
    power: the machine boots again from the same disk. Raises Failed when that takes too long.
    """
    console, gdb, disk = scratch / "console", scratch / "gdb", scratch / "vda"
    console.touch()
    subprocess.run(["cp", "--sparse=always", "--reflink=auto", machine.image.disk, disk], check=True)
    disks = (f"file={scratch}/in,read-only=on", f"file={scratch}/out")
    words = machine.boot(accelerator, disks=disks, console=str(console), debugger=str(gdb), kept=str(disk))
    end = time.monotonic() + arguments.limit
    with console.open(encoding="utf-8", errors="replace") as lines:
        for _ in range(LIVES):
            running = qemu.run(words, max(end - time.monotonic(), 1), scratch / "qemu.log", arguments.nice)
            try:
                said = _follow(running, lines, gdb)
            finally:
                running.terminate()
                running.wait()
            if running.returncode in CRASHES:
                print(f"\nvm: qemu crashed ({signal.Signals(-running.returncode).name}): its power is lost", flush=True)
                continue
            _judge(running, arguments.limit, scratch / "qemu.log")
            if DONE in said:
                return
    raise Failed(f"the machine began {LIVES} times, and was never done; its last words are above")


def _judge(ended: subprocess.Popen[bytes], limit: float, log: Path) -> None:
    if ended.returncode == 124:
        raise Failed(f"the machine was not done after {limit:g} s; its last words are above")
    if ended.returncode != 0:
        raise Failed(f"qemu ended with {ended.returncode}: {log.read_text()}")


def _follow(running: subprocess.Popen[bytes], lines: TextIO, socket: Path, *others: Path) -> str:
    """Shows the console until the machine has ended; what it said since its last boot. What the CPUs of a quiet one
    execute is translated again, and what those of others do that it may wait for. One that hangs is made to tell what
    it does and to boot, which costs nothing as long as nothing of ours had begun. Raises Failed.
    """
    life, hangs = "", 0
    spoke = looked = time.monotonic()
    while running.poll() is None:
        time.sleep(0.2)
        if text := lines.read():
            _show(text)
            life = (life + text).rpartition(FIRMWARE)[2]
            spoke = looked = time.monotonic()
            continue
        silence = SILENCE if OURS in life else BOOT_SILENCE
        if time.monotonic() > spoke + silence:
            hangs += 1
            if hangs > HANGS:
                raise Failed(f"the machine hangs: it has said nothing for {silence} s; its last words are above")
            print(f"\nvm: the machine has said nothing for {silence} s: it is made to tell why and to boot", flush=True)
            _debug(socket, Debugger.interrupt)
            spoke = looked = time.monotonic()
        elif time.monotonic() > looked + QUIET:
            for one in (socket, *others):
                _debug(one, Debugger.translate_again)
            looked = time.monotonic()
    _show(last := lines.read())
    return (life + last).rpartition(FIRMWARE)[2]


def _debug(socket: Path, do: Callable[[Debugger], None]) -> None:
    with suppress(OSError, ValueError), attached(socket) as machine:  # it may have ended meanwhile
        do(machine)


def _show(text: str) -> None:
    sys.stdout.write(_TERMINAL.sub("", text))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
