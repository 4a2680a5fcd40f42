"""What steps of a user's own node use, where they have no cgroup."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from rootful.node import wait_until
from rootful.own import GIVEN_UP, OwnNode, own_node
from rootful.used import ASK

SPENT = 0.4  # seconds of CPU time
BURN = f"import time\nwhile time.process_time() < {SPENT}: pass\n"
TICK = 0.05  # the kernel counts in hundredths, and rounds
SIZE = 64 << 20


@pytest.fixture(scope="module")
def node() -> Iterator[OwnNode]:
    with own_node() as started:
        yield started


def used(node: OwnNode) -> dict[str, Any]:
    """Of the latest step."""
    words = [sys.executable, "-IS", "-c", ASK, str(node.socket)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=GIVEN_UP, **node.how())
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return max(rows, key=lambda row: int(row["job"]))


def begun(node: OwnNode, *words: str) -> subprocess.Popen[str]:
    """A step that has said so."""
    step = node.popen("run", *words)
    assert step.stdout is not None
    assert step.stdout.readline() in ("here\n", "0: here\n")
    return step


def end(step: subprocess.Popen[str]) -> None:
    step.terminate()
    step.communicate(timeout=GIVEN_UP)


def test_what_a_steps_processes_use_is_summed_up(node: OwnNode) -> None:
    """Those that its tasks have left, too."""
    script = f"kept = bytearray({SIZE})\n{BURN}print('here', flush=True)\ntime.sleep(1000)"
    step = begun(node, "-l", "sh", "-c", f'(setsid {sys.executable} -ISc "$0" &); exec sleep 1000', script)
    row = used(node)
    assert row["cpu_seconds"] >= SPENT - TICK
    assert SIZE < row["memory"] < 2 * SIZE
    assert (row["read"], row["written"], row["pressure"]) == (None, None, {})
    end(step)


def test_a_task_that_has_ended_still_counts(node: OwnNode) -> None:
    script = f'[ $SLURM_PROCID = 1 ] && exec sleep 1000; {sys.executable} -ISc "$0"; exec echo here'
    step = begun(node, "-n2", "sh", "-c", script, BURN)
    record = f"{used(node)['job']}.0"

    def has_ended() -> bool:
        tasks = json.loads(node.nodectl("show", "--json", record).stdout)["tasks"]
        return any(task.get("status") is not None for task in tasks)

    wait_until(has_ended, "its runner has collected the task")
    assert used(node)["cpu_seconds"] >= SPENT - TICK
    end(step)


def test_what_other_steps_of_a_runner_have_used_is_not_counted(node: OwnNode) -> None:
    assert node.nodectl("run", sys.executable, "-ISc", BURN).returncode == 0
    step = begun(node, "sh", "-c", "echo here; exec sleep 1000")
    assert used(node)["cpu_seconds"] < SPENT - TICK
    end(step)
