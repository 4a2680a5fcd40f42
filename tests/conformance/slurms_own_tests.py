"""Slurm's own expect tests, run unmodified with `nodectl slurm-commands` in place of Slurm.

usage: sudo .venv/bin/python3 tests/conformance/slurms_own_tests.py TESTSUITE [--seconds N] [TEST...]

TESTSUITE is testsuite/ of an unpacked source package of Slurm 22.05; `expect` and a compiler must be there. Tests are
names (test1.8) or families (1, the default). Each runs as nobody, in a copy of the testsuite, on a node of its own.
What each test wrote is kept in the directory that is named at the end.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rootful.node import NOBODY, Node
from rootful.queued import queue_node

_RESULT = re.compile(r"^(SUCCESS|FAILURE|SKIPPED)\b", re.MULTILINE)
_CONFIGURED = ("SCHED_GETAFFINITY_THREE_ARGS", "HAVE_SCHED_SETAFFINITY")  # of config.h, for the testsuite's programs
_TEST = re.compile(r"test(\d+)\.(\d+)")


def main() -> int:
    """Runs them; 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("testsuite", type=Path)
    parser.add_argument("tests", nargs="*", default=["1"])
    parser.add_argument("--seconds", type=int, default=300, help="for each test")
    parser.add_argument("--gpus", action="store_true", help="the node has two devices that it calls GPUs")
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
    gres = ["Name=gpu File=/dev/null,/dev/zero"] if arguments.gpus else []
    node = queue_node(kill_wait=5, gres=gres)
    try:
        node.start()
        assert node.nodectl("slurm-commands", str(place / "bin")).returncode == 0
        results = Counter(_told(node, place, name, arguments) for name in _chosen(expect, arguments.tests))
    finally:
        node.close()
    print(*(f"{count} {result}" for result, count in results.items()), f"see {place}", sep=", ")
    return 0


def _chosen(expect: Path, wanted: list[str]) -> list[str]:
    found = {path.name: match for path in expect.iterdir() if (match := _TEST.fullmatch(path.name))}
    names = [name for name, match in found.items() if name in wanted or match[1] in wanted]
    return sorted(names, key=lambda name: (int(found[name][1]), int(found[name][2])))


def _told(node: Node, place: Path, name: str, arguments: argparse.Namespace) -> str:
    result = _run(place, name, arguments.seconds, dict(word.split("=", 1) for word in arguments.variable))
    print(f"{name}: {result}", flush=True)
    node.nodectl("cancel", "--state", "PD,R,S")
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
