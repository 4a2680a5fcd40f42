"""Who else confines a program, and what that costs: the tools that are installed and work on this machine.

Each does something else, so these rows have no goal. bwrap, crun and runc make PID and mount namespaces, as does the
step beside them; systemd-run makes a cgroup, as does each step.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from bench.clients import Client
from bench.programs import TRUE, spawn
from bench.rows import Row, in_turns
from rootful.node import Node

_PATIENCE = 20  # seconds for a tool to show that it works
_SCOPE = "systemd-run --scope"
_LINKS = ("bin", "lib", "lib64")  # of a root directory, into its usr


def contained(rounds: int, here: Path, plain: Client, run: list[str]) -> list[Row]:
    """What a job container costs a step, in turns with the node of `plain`, and what others take; its removal is not
    waited for. `run`: the words of `nodectl run` for the latter; `here`: a directory for files.
    """
    node = Node(runtime_dir=str(here / "contained"), job_container_type="job_container/namespace")
    node.configure(container_base_path=str(node.dir / "containers"))  # beside no directory that the container hides
    try:
        one = Client(str(node.start().socket))
        taken = in_turns(rounds, plain=plain.step, contained=one.step)
        row = Row("a job container, added to a step", 1000 * (taken["contained"] - taken["plain"]), 0, "ms", 4)
        inside = [run[0], "--socket", str(node.socket), "run", "--container-ns=pid"]
        return [row, *_others(max(rounds // 4, 5), here, run, inside)]
    finally:
        node.close()


def _others(rounds: int, here: Path, run: list[str], inside: list[str]) -> list[Row]:
    """Rows of the tools that work, each in turns with the step that is most like it."""
    tools = {name: words for name, words in _tools(here).items() if _works(words)}
    if not tools:
        return []
    ours = {"plain": spawn(*run, TRUE), "inside": spawn(*inside, TRUE)}
    taken = in_turns(rounds, **ours, **{name: spawn(*words) for name, words in tools.items()})
    rows = []
    for name in tools:
        kind, option = ("plain", "") if name == _SCOPE else ("inside", " --container-ns=pid")
        rows.append(Row(f"nodectl run{option} true / {name}", taken[kind], taken[name], "s"))
    return rows


def _tools(here: Path) -> dict[str, list[str]]:
    """The words by which each installed tool runs the same program."""
    words = {"bwrap": ["--unshare-pid", "--ro-bind", "/", "/", TRUE], _SCOPE: ["--scope", "--quiet", TRUE]}
    bundle = _bundle(here)
    for name in ("crun", "runc"):
        words[name] = ["--root", str(here / name), "run", "--bundle", str(bundle), f"nodectl-bench-{os.getpid()}"]
    paths = {name: shutil.which(name.split()[0]) for name in words}
    return {name: [path, *words[name]] for name, path in paths.items() if path}


def _works(words: list[str]) -> bool:
    """Whether the tool can do it here: systemd-run needs a running systemd, the others what a container may forbid."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _bundle(here: Path) -> Path:
    """The smallest of bundles: this machine's /usr, and /proc."""
    bundle = here / "bundle"
    root = bundle / "rootfs"
    (root / "usr").mkdir(parents=True)
    for name in _LINKS:
        (root / name).symlink_to(f"usr/{name}")
    config = {
        "ociVersion": "1.0.0",
        "process": {"user": {"uid": 0, "gid": 0}, "args": [TRUE], "env": ["PATH=/usr/bin:/bin"], "cwd": "/"},
        "root": {"path": "rootfs"},
        "mounts": [
            {"destination": "/usr", "source": "/usr", "type": "none", "options": ["rbind", "ro"]},
            {"destination": "/proc", "source": "proc", "type": "proc"},
        ],
        "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}]},
    }
    (bundle / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return bundle
