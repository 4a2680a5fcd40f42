"""Batch jobs for tests of the queue: submitted as a user through the command, looked at as root on the wire."""

from __future__ import annotations

import contextlib
import json
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rootful.node import NOBODY, Node, wait_until

QUEUE = {"select_type": "select/cons_tres", "over_subscribe": "no"}
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "DEADLINE", "OUT_OF_MEMORY")


def queue_node(**config: object) -> Node:
    """A node whose jobs wait for their turn."""
    return Node(**{**QUEUE, **config})


@contextlib.contextmanager
def queue_running(**config: object) -> Iterator[Node]:
    """The same, started; it ends with the block."""
    node = queue_node(**config)
    try:
        yield node.start()
    finally:
        node.close()


def emptied(node: Node) -> None:
    """All jobs end, and nothing may be left of them: for the end of a test whose node goes on."""
    node.call("Cancel", states=["PENDING", "RUNNING", "SUSPENDED"])
    wait_until(lambda: not queue(node), "the queue is empty")
    node.assert_clean()
    for path in node.scratch.iterdir():
        path.unlink()
    assert "Traceback" not in node.logged()


def submit(node: Node, script: str, *options: str, user: pwd.struct_passwd | None = NOBODY) -> int:
    """Submits a shell script; its number."""
    done = node.nodectl("submit", "--parsable", *options, user=user, stdin=f"#!/bin/sh\n{script}\n")
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split(";")[0])


def refused(node: Node, script: str, *options: str, user: pwd.struct_passwd | None = NOBODY) -> str:
    """Submits what is not taken; the one line about it."""
    done = node.nodectl("submit", *options, user=user, stdin=script)
    assert done.returncode != 0, done.stdout
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def show(node: Node, job: object) -> dict[str, Any]:
    """The record of a job."""
    answer: Any = node.call("ShowJob", job=str(job))
    assert "record" in answer, answer
    found: dict[str, Any] = answer["record"]
    return found


def state(node: Node, job: object) -> str:
    """The state of a job."""
    return str(show(node, job)["state"])


def wait_for(node: Node, job: object, *states: str) -> dict[str, Any]:
    """Until the job is in one of these states."""
    seen = ""

    def there() -> bool:
        nonlocal seen
        seen = state(node, job)
        return seen in states

    try:
        wait_until(there, f"job {job} is {' or '.join(states)}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it is {seen}: {json.dumps(show(node, job))[:2000]}") from None
    return show(node, job)


def queue(node: Node) -> list[dict[str, Any]]:
    """All jobs that have not ended."""
    answer: Any = node.call("Queue")
    found: list[dict[str, Any]] = answer["jobs"]
    return found


def wait_for_file(path: Path) -> str:
    """A file's text, once it has a whole line."""
    wait_until(lambda: path.exists() and path.read_text(encoding="utf-8").endswith("\n"), f"{path} is written")
    return path.read_text(encoding="utf-8")


def all_cpus(node: Node) -> int:
    """How many CPUs jobs can have here."""
    answer: Any = node.call("Nodes")
    return int(answer["nodes"][0]["cpus"])
