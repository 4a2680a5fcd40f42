"""`nodectl spank try` for tests, and a plugin that defines every hook, in Python and in C."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nodectl
from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import tree
from rootful.node import BOOT, PATH

HEADERS = Path(str(nodectl.__file__)).parent / "include"
HEAD = """import os, signal, time
from nodectl.spank import *
plugin_type = "spank"
plugin_name = "probe"
plugin_version = (22, 5, 8)
"""
HOOKS = (
    "init", "slurmd_init", "job_prolog", "init_post_opt", "local_user_init", "user_init", "task_init_privileged",
    "task_init", "task_post_fork", "task_exit", "job_epilog", "slurmd_exit", "exit",
)  # fmt: skip
# Arguments like remote:init:crash say what happens where.
PYTHON = (
    HEAD
    + """
WHERE = {S_CTX_LOCAL: "local", S_CTX_REMOTE: "remote", S_CTX_ALLOCATOR: "allocator", S_CTX_SLURMD: "slurmd",
         S_CTX_JOB_SCRIPT: "job_script"}
spank_options = [SpankOption("probe", "X", "Probe.", 2, 5, lambda val, optarg, remote: 0)]

def act(name, argv):
    for word in argv:
        if word == f"{WHERE[spank_context()]}:{name}:crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if word == f"{WHERE[spank_context()]}:{name}:exit":
            os._exit(0)
        if word == f"{WHERE[spank_context()]}:{name}:hang":
            time.sleep(1000)
        while word == f"{WHERE[spank_context()]}:{name}:swallow":
            try:
                time.sleep(1000)
            except BaseException:
                pass
    return 0
"""
    + "".join(f'def slurm_spank_{name}(sp, ac, argv): return act("{name}", argv)\n' for name in HOOKS)
)
NATIVE = """
#include <slurm/spank.h>
#include <stdlib.h>
#include <string.h>
SPANK_PLUGIN(probe, 1);
static int cb(int val, const char *optarg, int remote) { return 0; }
struct spank_option spank_options[] = {{"probe", "X", "Probe.", 2, 5, cb}, {0}};
static int act(const char *name, int ac, char **av)
{
    for (int i = 0; i < ac; i++)
        if (strcmp(av[i], name) == 0)
            abort();
    return 0;
}
""" + "".join(
    f'int slurm_spank_{name}(spank_t sp, int ac, char **av) {{ return act("{name}", ac, av); }}\n'
    for name in HOOKS
    if name != "slurmd_init"
)


@dataclass
class TryResult:
    """What a run printed and returned."""

    status: int
    out: str
    err: str
    pid: int

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    def hooks(self, context: str) -> list[str]:
        """The hooks of a context in order, loads left out, each task's with its number."""
        events = self.document["contexts"][context]["events"]
        return [short(event) for event in events if event["hook"] != "load"]

    def event(self, context: str, hook: str) -> dict[str, Any]:
        events = self.document["contexts"][context]["events"]
        return next(event for event in events if event["hook"] in (hook, f"slurm_spank_{hook}"))


def short(event: dict[str, Any]) -> str:
    name: str = event["hook"].removeprefix("slurm_spank_")
    return name if event["task"] is None else f"{name}[{event['task']}]"


def alive(pid: int) -> bool:
    """False also for a zombie that is only init's to collect."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
    except OSError:
        return False
    return fields[:2] != ["Z", "1"]


def assert_named(result: TryResult, where: str) -> None:
    """One failure, of the context and the hook that `where` names."""
    assert (result.status, len(result.document["failures"])) == (1, 1), result.document["failures"]
    context, _, hook = where.partition(":")
    failure = result.document["failures"][0]
    assert failure.startswith(context), failure
    assert f": {hook}" in failure, failure


class SpankTry:
    """A directory with plugins, and the command."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def plugin(self, text: str, name: str = "probe.py") -> str:
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def native(self, text: str) -> str:
        source, target = self.directory / "probe.c", self.directory / "probe.so"
        source.write_text(text)
        subprocess.run(["cc", "-shared", "-fPIC", f"-I{HEADERS}", "-o", target, source], check=True)
        return str(target)

    def run(self, *words: str, json: bool = True, env: dict[str, str] | None = None, **how: Any) -> TryResult:
        """`nodectl spank try WORDS`; afterwards nothing of it is left."""
        with self.start(*["--json"] * json, *words, env=env, **how) as process:
            out, err = process.communicate(timeout=120)
        result = TryResult(process.returncode, out, err, process.pid)
        self.assert_nothing_left(result)
        return result

    def start(self, *words: str, env: dict[str, str] | None = None, **how: Any) -> subprocess.Popen[str]:
        """`nodectl spank try WORDS`, running."""
        command = [sys.executable, "-IS", "-c", BOOT.format(path=PATH), "spank", "try", *words]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/",
            env={"PATH": "/usr/sbin:/usr/bin:/bin", **(env or {})}, **how,
        )  # fmt: skip

    def processes_of(self, word: str) -> list[int]:
        """The processes with these words in their command line."""
        found = []
        for name in filter(str.isdecimal, os.listdir("/proc")):
            try:
                line = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if word.encode() in line:
                found.append(int(name))
        return found

    def assert_nothing_left_of(self, pid: int) -> None:
        """Neither cgroup nor process of the probe run that this process ran."""
        assert not glob.glob(f"{tree.find_mount()}{cgroup_of().rstrip('/')}/*private.{pid}")
        assert not self.processes_of(f"private.{pid}")

    def assert_nothing_left(self, result: TryResult) -> None:
        self.assert_nothing_left_of(result.pid)
        if result.out.startswith("{"):
            contexts = result.document["contexts"].values()
            pids = {event["pid"] for context in contexts for event in context["events"]}
            assert not [pid for pid in pids if alive(pid)]
