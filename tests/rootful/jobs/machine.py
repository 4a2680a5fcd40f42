"""A node on which jobs take turns, and words for what tests do with its jobs."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

from rootful.node import NOBODY, PATIENCE, Node, wait_until

TURNS: dict[str, object] = {"select_type": "select/cons_tres", "over_subscribe": "no"}
"""The configuration of a machine whose jobs wait for CPUs."""
CPUS = len(os.sched_getaffinity(0))
FOREVER = "exec sleep 1000"


def queue(node: Node, *words: str, user: pwd.struct_passwd | None = None) -> list[dict[str, Any]]:
    """What `nodectl queue --json` tells."""
    done = node.nodectl("queue", "--json", *words, user=user)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["jobs"]
    return found


def state(node: Node, job: int | str) -> str:
    """A job's state; "" for one that is not in the queue any more."""
    return next((str(one["state"]) for one in queue(node) if str(one["job"]) == str(job)), "")


def submit(node: Node, *words: str, **how: Any) -> int:
    """Submits as nobody; the job's number."""
    done = node.nodectl("submit", "--parsable", *words, **{"user": NOBODY, **how})
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def wrap(node: Node, command: str, *words: str, **how: Any) -> int:
    """Submits one line of shell."""
    return submit(node, f"--wrap={command}", *words, **how)


def script(node: Node, text: str, name: str = "job.sh") -> str:
    """A batch script that anybody may read: its path."""
    path = node.scratch / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    return str(path)


def runs(node: Node, job: int) -> None:
    """Until it runs."""
    wait_until(lambda: state(node, job) == "RUNNING", f"job {job} runs")


def ended(node: Node, job: int) -> None:
    """Until it is over."""
    wait_until(lambda: state(node, job) == "", f"job {job} is over")


def said(node: Node, job: int, name: str = "slurm-{job}.out") -> str:
    """What a job that has ended wrote."""
    ended(node, job)
    return (node.scratch / name.format(job=job)).read_text(encoding="utf-8")


def cancel_all(node: Node) -> None:
    """The queue is empty after it."""
    node.nodectl("cancel", "--state", "PD,R,S")
    wait_until(lambda: not queue(node), "the queue is empty")


def typed(node: Node, *words: str) -> str:
    """A command of nodectl as a script has it."""
    return shlex.join(node.command(*words))


class Client:
    """A command of nodectl that goes on."""

    def __init__(
        self, node: Node, *words: str, user: pwd.struct_passwd | None = NOBODY, env: Mapping[str, str] | None = None
    ) -> None:
        account: dict[str, Any] = (
            {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        )
        self.errors = node.scratch / f"client-{len(list(node.scratch.iterdir()))}.err"
        self.process: subprocess.Popen[str] = subprocess.Popen(
            node.command(*words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors.open("w"),
            text=True,
            env=node.environment(env),
            cwd=str(node.scratch),
            **account,
        )

    def told(self) -> str:
        """What it wrote on stderr so far."""
        return self.errors.read_text(encoding="utf-8")

    def until_told(self, words: str) -> None:
        """Until it has said so on stderr."""
        wait_until(lambda: words in self.told() or self.process.poll() is not None, f"the client says {words!r}")
        assert words in self.told(), self.told()

    def line(self) -> str:
        """The next line of its output."""
        assert self.process.stdout is not None
        return str(self.process.stdout.readline()).rstrip("\n")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, typed: str | None = None) -> tuple[int, str]:
        """Its exit status and the rest of its output."""
        out, _ = self.process.communicate(typed, timeout=PATIENCE)
        return self.process.returncode, out
