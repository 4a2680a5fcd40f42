"""A node whose plugins do what a test tells them: every hook runs the code in a file of its name, if there is one.

Hooks of a launch run in three processes and as three identities; a file reaches all of them. The code sees `rank` (the
task, None where there is none), `os`, `sys`, `time`, `signal`, `PluginError`, `SCRATCH`; the hook returns its `rc`.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from nodectl.model.launch_order import HOOKS, LOCAL_HOOKS, SLURMD_HOOKS
from nodectl.plugin_host.kinds import KINDS
from rootful.node import PATIENCE, Node, wait_until

SPANK_PLUGINS = ("first", "second")
TASK_PLUGINS = ("task/cgroup", "task/affinity", "task/puppet")
PROCTRACK = "proctrack/puppet"
CONTAINER = "job_container/puppet"

_COMMON = '''
import os, signal, sys, time
from nodectl.plugin_api import PluginError, set_errno
SCRATCH = {scratch!r}

def _obey(call, rank=None):
    """Runs what the test wrote for this hook."""
    path = {orders!r} + "/" + call
    if not os.path.exists(path):
        return 0
    space = {{**globals(), "rank": rank, "rc": 0}}
    with open(path) as file:
        exec(file.read(), space)
    return space["rc"]
'''

_SPANK = """
from nodectl.spank import *

_CONTEXT = {{S_CTX_LOCAL: "local.", S_CTX_SLURMD: "slurmd."}}

def _call(sp, call):
    rank = None if sp.task is None else sp.task.local_id
    globals()["sp"] = sp
    return _obey({name!r} + "." + _CONTEXT.get(spank_context(), "") + call, rank)

def _option(val, optarg, remote):
    return _obey({name!r} + "." + ("" if remote else "local.") + "option")

spank_options = [SpankOption({name!r}, "WORD", "for a test", 1, 0, _option)]
"""

_TASK = """
def _rank(step, task=None):
    task = task or getattr(step, "task", None)
    return None if task is None else task.local_id
"""

_PROCTRACK = """
from nodectl.plugins.proctrack import cgroup as real

def init():
    return real.init()
"""

_CONTAINER = """
from nodectl.launch import container

def _rank(job_id):
    task = container.job(job_id).step.task
    return None if task is None else task.local_id
"""

_MPI = """
def _rank(task):
    return task.local_id if hasattr(task, "local_id") else None
"""


class Stage:
    """The node, and the orders for its plugins.

    An order's name is `plugin.hook`; the plugins are `first` and `second` (SPANK, with `local.` behind it in the user's
    command and `slurmd.` beside the daemon), `task`, `proctrack`, `container` and, where it is asked for, `mpi`. Only
    with `jobs` do the SPANK plugins have the hooks around a job, which cost each job two processes, and those of the
    daemon's end, and `container` has container_p_delete; then there are a Prolog and an Epilog script too, which run
    the orders `prolog` and `epilog`, of shell commands.
    """

    def __init__(self, *, jobs: bool = False, **config: object) -> None:
        plugins = {
            "task_plugin": list(TASK_PLUGINS), "proctrack_type": PROCTRACK, "job_container_type": CONTAINER,
            "mpi_plugin": ["mpi/puppet"],
        }  # fmt: skip
        self.node = Node(**{**plugins, **config})
        self.orders = self.node.dir / "orders"
        self.orders.mkdir()
        common = _COMMON.format(orders=str(self.orders), scratch=str(self.node.scratch))
        for name in SPANK_PLUGINS:
            self.node.plugin(name, common + _SPANK.format(name=name) + _spank_hooks(jobs=jobs))
        self.node.plugin("puppet", common + _TASK + _task_hooks(), kind="task")
        self.node.plugin("puppet", common + _PROCTRACK + _proctrack_hooks(), kind="proctrack")
        self.node.plugin("puppet", common + _CONTAINER + _container_hooks(jobs=jobs), kind="job_container")
        self.node.plugin("puppet", common + _MPI + _mpi_hooks(), kind="mpi")
        self.stack("required", "required")
        if jobs:
            scripts = {name: str(self._around(name)) for name in ("prolog", "epilog")}
            self.node.configure(**scripts)

    def _around(self, name: str) -> Path:
        """The site's script of a moment, which runs the order of its name."""
        path = self.node.dir / name
        order = f"{self.orders}/{name}"
        path.write_text(f"#!/bin/sh\nSCRATCH={self.node.scratch}\n! [ -e {order} ] || . {order}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def stack(self, first: str, second: str) -> None:
        """Writes plugstack.conf."""
        self.node.plugstack(f"{first} first\n{second} second\n")

    def order(self, name: str, code: str) -> None:
        """From now on the hook `plugin.hook` runs `code`."""
        (self.orders / name).write_text(code + "\n", encoding="utf-8")

    def reset(self) -> None:
        """Takes back every order, empties the scratch directory, and starts a daemon where a test left none."""
        self.reset_orders()
        if self.node.daemon is None:
            self.node.start()

    def reset_orders(self) -> None:
        """Takes back every order and empties the scratch directory."""
        for path in (*self.orders.iterdir(), *self.node.scratch.iterdir()):
            path.unlink()
        self.stack("required", "required")

    def last(self) -> Mapping[str, object]:
        """The record of the step with the highest number."""
        return self.node.call("Show", job=self.last_job(), step=0)["record"]  # type: ignore[return-value]

    def last_job(self) -> int:
        """The highest number of a step; 0 before the first one."""
        steps: list[Mapping[str, object]] = self.node.call("List", ended=3)["steps"]  # type: ignore[assignment]
        return max((int(str(step["job"])) for step in steps), default=0)

    # Blocking a hook.

    def block(self, name: str) -> None:
        """The hook `plugin.hook` says that it is there and waits for `release`."""
        self.order(
            name,
            'open(SCRATCH + "/there", "w").close()\nwhile not os.path.exists(SCRATCH + "/release"): time.sleep(0.005)',
        )

    def script(self, name: str) -> Path:
        """An executable that any user may run, which blocks as a blocked hook does."""
        scratch = self.node.scratch
        path = self.node.dir / name
        path.write_text(
            f"#!/bin/sh\n: >{scratch}/there\nwhile ! [ -e {scratch}/release ]; do sleep 0.01; done\n", encoding="utf-8"
        )
        path.chmod(0o755)
        return path

    def wait_there(self, client: subprocess.Popen[str]) -> None:
        """Until a blocked hook has been reached."""

        def there() -> bool:
            assert client.poll() is None, client.communicate()
            return (self.node.scratch / "there").exists()

        wait_until(there, "the hook is reached")

    def release(self) -> None:
        """Lets go of whoever blocks."""
        (self.node.scratch / "release").touch(mode=0o644)

    def stepd(self) -> int:
        """The pid of the one stepd there is, as soon as the forkserver has told the daemon."""
        found: set[int] = set()

        def told() -> bool:
            steps: list[Mapping[str, object]] = self.node.call("List")["steps"]  # type: ignore[assignment]
            found.clear()
            found.update(int(str(step["pid"])) for step in steps)
            return 0 not in found

        wait_until(told, "the stepd has a pid")
        (pid,) = found
        return pid


@contextlib.contextmanager
def staged(*, jobs: bool = False, **config: object) -> Iterator[Stage]:
    """A stage with its node started; at the end nothing is left."""
    stage = Stage(jobs=jobs, **config)
    try:
        stage.node.start()
        yield stage
        stage.node.assert_clean()
    finally:
        stage.node.close()


def left_clean(stage: Stage) -> Iterator[Stage]:
    """The stage without orders, for one test, which leaves nothing behind and no exception in the log."""
    stage.reset()
    yield stage
    stage.node.assert_clean()
    assert "Traceback" not in stage.node.logged()


def finished(client: subprocess.Popen[str], patience: float = PATIENCE) -> tuple[int, str, str]:
    """(exit status, stdout, stderr) of a client, which ends within `patience`."""
    out, err = client.communicate(timeout=patience)
    return client.returncode, out, err


def ended(stage: Stage, job: int, patience: float = PATIENCE) -> Mapping[str, object]:
    """The record of a step, as soon as it is in the history."""
    end = time.monotonic() + patience
    while True:
        reply = stage.node.call("Show", job=job, step=0)
        record: Mapping[str, object] = reply.get("record", {})  # type: ignore[assignment]
        if "exit_status" in record:
            return record
        assert time.monotonic() < end, f"step {job}.0 has not ended: {reply}"
        time.sleep(0.02)


def _spank_hooks(*, jobs: bool) -> str:
    rows = [hook for hook in HOOKS if hook.kind == "spank" and hook.call != "option"]
    names = [hook.call for hook in rows if jobs or hook.process != "job script"]
    names += [row.call for row in (*LOCAL_HOOKS, *(SLURMD_HOOKS if jobs else ())) if row.call not in names]
    return "".join(f"\ndef {name}(sp, ac, argv):\n    return _call(sp, {name!r})\n" for name in names)


def _task_hooks() -> str:
    arguments = {1: ("step", "step"), 2: ("step, other", "step, other if hasattr(other, 'local_id') else None")}
    text = ""
    for hook in HOOKS:
        if hook.kind == "task":
            taken, passed = arguments[hook.arity]
            text += f'\ndef {hook.call}({taken}):\n    return _obey("task.{hook.call}", _rank({passed}))\n'
    return text


def _mpi_hooks() -> str:
    text = ""
    for hook in HOOKS:
        if hook.kind == "mpi":
            words = ", ".join("ab"[: hook.arity])
            text += f'\ndef {hook.call}({words}):\n    return _obey("mpi.{hook.call}", _rank({words[-1]}))\n'
    return text


def _proctrack_hooks() -> str:
    text = ""
    for name, arity in KINDS["proctrack"].functions.items():
        words = ", ".join("abc"[:arity])
        text += f'\ndef {name}({words}):\n    return _obey("proctrack.{name}") or real.{name}({words})\n'
    return text


def _container_hooks(*, jobs: bool) -> str:
    text = ""
    for hook in HOOKS:
        if hook.kind == "job_container" and (jobs or hook.process != "container"):
            words = ", ".join("abc"[: hook.arity])
            text += f'\ndef {hook.call}({words}):\n    return _obey("container.{hook.call}", _rank(a))\n'
    return text
