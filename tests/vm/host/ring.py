"""The vm ring: tests/vm/ in a machine of its own, with nodectl installed there as a service.

    sudo ./dev vm [--topology 2s4c2t2n] [--limit SECONDS] [--keep DIRECTORY] [PYTEST ARG]...

Makes the machine's disk once, boots it, lets it install this checkout and run the tests, and prints what each of them
proved. The machine has no network and forgets what it did. Exit status 0: every test passed; 1: not so, and why.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from vm.host import image, qemu

TREE = Path(__file__).resolve().parents[3]
RESULTS_BYTES = 64 << 20
MEMORY = 1536  # MiB
TESTING = 0.85  # of the machine's life; then the tests are interrupted, so that what they found is told
_TERMINAL = re.compile(r"\r|\x1bc|\x1b\[[0-9;?]*[a-zA-Z]")  # what the firmware says to one
# Runs in the machine, in the directory in which the disk was unpacked; what it prints is the console's.
RUN = """\
cd /root/ring
mkdir results
export NODECTL_TEST_VM={topology}
say() {{ echo "vm: $(cut -d ' ' -f 1 /proc/uptime) s: $*"; }}
say installing
if systemd/install ./*.whl >results/install.log 2>&1 </dev/null; then
    say testing
    left=$(({limit} - $(cut -d . -f 1 /proc/uptime)))
    timeout -s INT "$left" /opt/nodectl/bin/python3 -P -m pytest -v --junit-xml=results/junit.xml \\
        -o cache_dir=/tmp/cache {arguments} tests/vm 2>&1 </dev/null | tee results/pytest.log
else
    cat results/install.log
fi
journalctl -b --no-pager -o short-monotonic >results/journal.log
tar -cf /dev/vdc results
sync
say done
"""


class Failed(Exception):
    """The ring has no result; str() says why."""


def main() -> int:
    """The command. Must be root: the machine's disk has root's files."""
    arguments, pytest = _parse()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    with tempfile.TemporaryDirectory(prefix="nodectl-vm-") as name:
        scratch = Path(name)
        try:
            return _ring(arguments, pytest, scratch)
        except (Failed, OSError, subprocess.CalledProcessError) as error:
            print(f"vm: {error}", file=sys.stderr)
            return 1
        finally:
            if arguments.keep:
                _keep(scratch, Path(arguments.keep))


def _parse() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="./dev vm", description="Run tests/vm in a virtual machine.")
    parser.add_argument("--topology", type=qemu.Topology.parse, default="2s4c2t2n", metavar="2s4c2t2n",
                        help="sockets, cores of each, threads of each, memory nodes")  # fmt: skip
    parser.add_argument("--limit", type=float, default=900, metavar="SECONDS", help="for the machine's life")
    parser.add_argument("--keep", metavar="DIRECTORY", help="where to leave the logs and the results")
    return parser.parse_known_args()


def _leave(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


def _keep(scratch: Path, where: Path) -> None:
    where.mkdir(parents=True, exist_ok=True)
    for path in (scratch / "console", scratch / "qemu.log", *(scratch / "results").glob("*")):
        if path.exists():
            shutil.copy(path, where)


def _ring(arguments: argparse.Namespace, pytest: list[str], scratch: Path) -> int:
    with (TREE / "pyproject.toml").open("rb") as file:
        dependencies = tomllib.load(file)["project"]["dependencies"]
    machine = qemu.Machine(image.prepare(dependencies), arguments.topology, MEMORY)
    _pack(scratch, arguments, pytest)
    accelerator = machine.accelerator()
    print(f"vm: {arguments.topology}, {accelerator.partition(',')[0]}, {MEMORY} MiB", flush=True)
    _live(machine, accelerator, arguments.limit, scratch)
    _unpack(scratch)
    return _report(scratch / "results/junit.xml")


def _pack(scratch: Path, arguments: argparse.Namespace, pytest: list[str]) -> None:
    """The disk vdb is a tar archive: the wheel of this checkout, the units, the tests, and what to do. vdc is empty."""
    source = scratch / "source"
    for name in ("nodectl", "plugins"):
        shutil.copytree(TREE / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("pyproject.toml", "setup.py", "LICENSE"):
        shutil.copy(TREE / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps"]
    built = subprocess.run([*pip, "--no-build-isolation", "-w", scratch, source], check=False, capture_output=True)
    if built.returncode != 0:
        raise Failed(f"no wheel: {built.stderr.decode(errors='replace')[-2000:]}")
    (wheel,) = scratch.glob("*.whl")
    limit = int(arguments.limit * TESTING)
    (scratch / "run").write_text(RUN.format(topology=arguments.topology, limit=limit, arguments=shlex.join(pytest)))
    with tarfile.open(scratch / "in", "w") as archive:
        for path in (wheel, scratch / "run"):
            archive.add(path, path.name)
        for name in ("systemd", "pyproject.toml", "tests/vm", "tests/rootful"):
            archive.add(TREE / name, name, filter=_as_root)
    with (scratch / "out").open("wb") as out:
        out.truncate(RESULTS_BYTES)


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Root in the machine trusts root's files only."""
    entry.uid = entry.gid = 0
    entry.mode &= ~0o022
    return None if entry.name.endswith("__pycache__") else entry


def _live(machine: qemu.Machine, accelerator: str, limit: float, scratch: Path) -> None:
    """From power-on to power-off; the console is shown as it comes. Raises Failed when that takes too long."""
    console = scratch / "console"
    console.touch()
    disks = (f"file={scratch}/in,read-only=on", f"file={scratch}/out")
    running = qemu.run(machine.boot(accelerator, disks=disks, console=str(console)), limit, scratch / "qemu.log")
    try:
        with console.open(encoding="utf-8", errors="replace") as lines:
            while running.poll() is None:
                _show(lines.read())
                time.sleep(0.2)
            _show(lines.read())
    finally:
        running.terminate()
        running.wait()
    if running.returncode == 124:
        raise Failed(f"the machine was not done after {limit:g} s")
    if running.returncode != 0:
        raise Failed(f"qemu ended with {running.returncode}: {(scratch / 'qemu.log').read_text()}")


def _show(text: str) -> None:
    sys.stdout.write(_TERMINAL.sub("", text))
    sys.stdout.flush()


def _unpack(scratch: Path) -> None:
    unpacking = ["tar", "-xf", f"{scratch}/out", "-C", str(scratch), "--no-same-owner", "results"]
    if subprocess.run(unpacking, capture_output=True, check=False).returncode != 0:
        raise Failed("the machine ended without results; its last words are above")


def _report(path: Path) -> int:
    """A line for each test: what its name says it proves, how it came out, seconds. The exit status."""
    if not path.exists():
        raise Failed("no test was run; see above")
    rows = []
    for case in ElementTree.parse(path).iter("testcase"):  # noqa: S314  # written by our own machine
        bad = [child.tag for child in case if child.tag in {"failure", "error", "skipped"}]
        group = case.get("classname", "").rpartition(".")[2].removeprefix("test_").replace("_", " ")
        what = case.get("name", "").removeprefix("test_").replace("_", " ")
        rows.append((bad[0] if bad else "proved", float(case.get("time", "0")), group, what))
    print()
    for result, seconds, group, what in rows:
        print(f"{result:8}{seconds:7.1f} s  {group}: {what}")
    failed = [row for row in rows if row[0] in {"failure", "error"}]
    proved = sum(row[0] == "proved" for row in rows)
    print(f"\nvm: {proved} proved, {len(failed)} failed, {len(rows) - proved - len(failed)} skipped")
    return int(bool(failed) or not proved)


if __name__ == "__main__":
    sys.exit(main())
