"""Nodes of an ordinary user's own whose jobs have containers, and what is to be seen of them."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from nodectl.launch.container import LOCK
from rootful.node import OTHER, PATIENCE, wait_until
from rootful.own import OwnNode, own_node

USER = 'job_container_type = "job_container/user"\n'
DIRS = "/tmp", "/var/tmp", "/dev/shm"
CAPABILITIES = r"grep -E '^Cap' /proc/self/status"
CLOSED = "mkdir -p /tmp/a/b /tmp/c/d; touch /tmp/a/b/x; chmod 0555 /tmp/a/b /tmp/a; chmod 0 /tmp/c"


@contextlib.contextmanager
def contained(text: str = "", *, delegated: bool = False, started: bool = True) -> Iterator[OwnNode]:
    """A node whose jobs have containers; at its end nothing of them is left.

    Its user is not nobody: in a user namespace all that is root's seems to be nobody's.
    """
    with own_node(OTHER, delegated=delegated, started=False) as node:
        node.configure("nodectl.toml", USER + text)
        if started:
            node.start()
        yield node
        assert_gone(node)
        assert not started or "Traceback" not in node.logged()


def places(node: OwnNode) -> list[Path]:
    """The directories of containers, those being removed too."""
    return [path for path in storage(node).glob("*/*") if path.name != LOCK]


def storage(node: OwnNode) -> Path:
    return node.home / ".local/state/nodectl/containers"


def assert_gone(node: OwnNode) -> None:
    wait_until(lambda: not places(node), "containers are removed")


def out(node: OwnNode, *words: str) -> str:
    done = node.nodectl("run", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def held(node: OwnNode) -> subprocess.Popen[str]:
    """A job that has a file in each of its directories, and waits for the end of its input."""
    script = f"touch {' '.join(f'{path}/held' for path in DIRS)}; echo $SLURM_JOB_ID; exec sleep 1000"
    return node.popen("run", "sh", "-c", script)


def number_of(job: subprocess.Popen[str]) -> str:
    assert job.stdout is not None
    number = job.stdout.readline().strip()
    assert number, job.stderr and job.stderr.read()
    return number


@contextlib.contextmanager
def running(node: OwnNode) -> Iterator[str]:
    """The number of such a job."""
    job = held(node)
    try:
        yield number_of(job)
    finally:
        job.terminate()
        job.communicate(timeout=PATIENCE)
