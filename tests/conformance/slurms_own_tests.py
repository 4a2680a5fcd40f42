"""Slurm's own expect tests, run unmodified with `nodectl slurm-commands` in place of Slurm.

usage: sudo .venv/bin/python3 tests/conformance/slurms_own_tests.py TESTSUITE [--slurm] [--seconds N] [TEST...]

TESTSUITE is testsuite/ of an unpacked source package of Slurm 22.05; `expect` and a compiler must be there. Tests are
names (test1.8) or families (1, the default). Each runs as nobody, in a copy of the testsuite, on a node of its own.
What each test wrote is kept in the directory that is named at the end. With --slurm they run with Debian's Slurm itself
on a node like that (tests/bench/slurm.py starts it), which tells what they can do on such a machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import slurm
from nodectl.placement.machine import topology
from rootful.node import NOBODY
from rootful.queued import queue_node

_RESULT = re.compile(r"^(SUCCESS|FAILURE|SKIPPED)\b", re.MULTILINE)
_CONFIGURED = ("SCHED_GETAFFINITY_THREE_ARGS", "HAVE_SCHED_SETAFFINITY")  # of config.h, for the testsuite's programs
_TEST = re.compile(r"test(\d+)\.(\d+)")
_GPUS = "Name=gpu File=/dev/null,/dev/zero"
# A site's Slurm, as far as it does without cgroups, accounts and files of its own.
_SLURM = """\
TaskPlugin=task/affinity
MpiDefault=pmi2
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=64
KillWait=5
"""


def main() -> int:
    """Runs them; 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("testsuite", type=Path)
    parser.add_argument("tests", nargs="*", default=["1"])
    parser.add_argument("--seconds", type=int, default=300, help="for each test")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--slurm", action="store_true", help="with Slurm itself: Debian's packages are fetched for it")
    which.add_argument("--gpus", action="store_true", help="the node has two devices that it calls GPUs")
    parser.add_argument("--variable", action="append", default=[], metavar="NAME=VALUE", help="for the tests")
    arguments = parser.parse_intermixed_args()
    place = Path(tempfile.mkdtemp(prefix="slurms-own-tests-"))
    place.chmod(0o755)
    expect = place / "expect"
    shutil.copytree(arguments.testsuite / "expect", expect)
    names = {"slurm_dir": place, "build_dir": place, "mpicc": shutil.which("mpicc.mpich") or "none"}
    settings = "".join(f'set {key} "{name}"\n' for key, name in names.items())
    (expect / "globals.local").write_text(settings, encoding="utf-8")
    (place / "config.h").write_text("".join(f"#define {name} 1\n" for name in _CONFIGURED), encoding="utf-8")
    (expect / "testsuite.conf").touch()
    for path in (expect, *expect.rglob("*")):
        shutil.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
    commands = place / "bin"
    with _slurm(commands) if arguments.slurm else _nodectl(commands, gpus=arguments.gpus) as end_jobs:
        results = Counter(_told(end_jobs, place, name, arguments) for name in _chosen(expect, arguments.tests))
    print(*(f"{count} {result}" for result, count in results.items()), f"see {place}", sep=", ")
    return 0


@contextlib.contextmanager
def _nodectl(commands: Path, *, gpus: bool) -> Iterator[Callable[[], object]]:
    """A node with its commands by Slurm's names in that directory; what ends all jobs."""
    node = queue_node(kill_wait=5, gres=[_GPUS] if gpus else [])
    try:
        node.start()
        assert node.nodectl("slurm-commands", str(commands)).returncode == 0
        yield lambda: node.nodectl("cancel", "--state", "PD,R,S")
    finally:
        node.close()


@contextlib.contextmanager
def _slurm(commands: Path) -> Iterator[Callable[[], object]]:
    """Slurm in the same way, with this machine as its node."""
    host = os.uname().nodename.partition(".")[0]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    machine = topology.read()
    hardware = (
        f"Sockets={len(machine.sockets)} CoresPerSocket={max(len(socket.cores) for socket in machine.sockets)} "
        f"ThreadsPerCore={machine.threads_per_core} RealMemory={memory // 2}"
    )
    with slurm.started(_SLURM, hardware, host) as real:
        real.write_commands(commands)
        yield lambda: subprocess.run([commands / "scancel", f"--user={NOBODY.pw_name}"], check=False)


def _chosen(expect: Path, wanted: list[str]) -> list[str]:
    found = {path.name: match for path in expect.iterdir() if (match := _TEST.fullmatch(path.name))}
    names = [name for name, match in found.items() if name in wanted or match[1] in wanted]
    return sorted(names, key=lambda name: (int(found[name][1]), int(found[name][2])))


def _told(end_jobs: Callable[[], object], place: Path, name: str, arguments: argparse.Namespace) -> str:
    result = _run(place, name, arguments.seconds, dict(word.split("=", 1) for word in arguments.variable))
    print(f"{name}: {result}", flush=True)
    end_jobs()
    return result


def _run(place: Path, name: str, seconds: int, variables: dict[str, str]) -> str:
    """SUCCESS, FAILURE, SKIPPED, or that it took too long."""
    expect = place / "expect"
    log = place / f"{name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            ["expect", f"./{name}"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=expect,
            env={
                "PATH": f"{place}/bin:{os.environ['PATH']}",
                "HOME": str(expect),
                "USER": NOBODY.pw_name,
                "LOGNAME": NOBODY.pw_name,
                "SHELL": "/bin/bash",
                "LANG": "C.UTF-8",
                "TERM": "dumb",
                "SLURM_TESTSUITE_CONF": str(expect / "testsuite.conf"),
                **variables,
            },
            user=NOBODY.pw_uid,
            group=NOBODY.pw_gid,
            extra_groups=[],
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return "too slow"
    found = _RESULT.findall(log.read_text(encoding="utf-8", errors="replace"))
    return str(found[-1]) if found else "FAILURE"


if __name__ == "__main__":
    sys.exit(main())
