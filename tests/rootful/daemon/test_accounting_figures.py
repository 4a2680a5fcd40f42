"""What a step used, as its record tells it, against what its programs did."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from rootful.node import NOBODY, Node, wait_until

MIB = 1 << 20
BURN = "import time\nwhile time.process_time() < 0.5: pass"
# What the double fork leaves behind only the stepd waits for; the task ends when the orphan has done it all.
ORPHAN = f"""
import os
reader, writer = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.close(reader)
        {BURN.replace(chr(10), chr(10) + "        ")}
        open("orphan", "wb").write(bytes({10 * MIB}))
    os._exit(0)
os.close(writer)
os.wait()
os.read(reader, 1)
"""


@pytest.fixture
def node(served: Node) -> Iterator[Node]:
    return served  # type: ignore[return-value]


def record(node: Node, code: str, *options: str) -> dict[str, Any]:
    done = node.run("-D", str(node.scratch), *options, sys.executable, "-c", code, user=NOBODY)
    assert done.returncode == 0, done.stderr
    job = max(int(step["job"]) for step in node.call("List", ended=1)["steps"])  # type: ignore[attr-defined]
    return node.call("Show", job=job, step=0)["record"]  # type: ignore[return-value]


def test_cpu_time_is_what_the_program_burnt(node: Node) -> None:
    found = record(node, BURN)
    task = found["tasks"][0]
    assert 0.5 <= task["user_seconds"] + task["system_seconds"] < 5
    assert 0.5 <= sum(found["cpu_seconds"]) < 5


def test_memory_and_output_are_what_the_program_took_and_wrote(node: Node) -> None:
    code = f"data = bytearray({50 * MIB})\nopen('out', 'wb').write(bytes({10 * MIB}))"
    task = record(node, code)["tasks"][0]
    assert 50 * 1024 <= task["max_rss_kib"] < 200 * 1024
    assert 10 * MIB <= task["written_chars"] < 11 * MIB


def test_input_of_a_child_that_was_waited_for_is_the_tasks(node: Node) -> None:
    (node.scratch / "input").write_bytes(bytes(10 * MIB))
    task = record(node, "import subprocess; subprocess.run(['cat', 'input'], stdout=subprocess.DEVNULL)")["tasks"][0]
    assert 10 * MIB <= task["read_chars"] < 13 * MIB


def test_orphans_are_accounted_though_no_task_waited_for_them(node: Node) -> None:
    found = record(node, ORPHAN)
    task, orphans = found["tasks"][0], found["orphans"]
    assert 0.4 <= orphans["user_seconds"] + orphans["system_seconds"] < 5
    assert task["user_seconds"] + task["system_seconds"] < 0.4
    assert 10 * MIB <= orphans["written_chars"] < 11 * MIB
    assert task["written_chars"] < MIB


def test_what_copies_a_steps_output_is_no_part_of_it(node: Node) -> None:
    done = node.run("-l", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' 'x'", user=NOBODY)
    assert len(done.stdout) >= 3_000_000
    job = max(int(step["job"]) for step in node.call("List", ended=1)["steps"])  # type: ignore[attr-defined]
    assert "orphans" not in node.record(job)


def test_step_without_cgroups_is_accounted_as_well() -> None:
    node = Node(proctrack_type="proctrack/linuxproc", task_plugin=["task/affinity"]).start()
    try:
        found = record(node, f"{BURN}\nopen('out', 'wb').write(bytes({10 * MIB}))")
        wait_until(lambda: not list(node.steps.iterdir()), "it is in the history")
        assert "cpu_seconds" not in found
        task = found["tasks"][0]
        assert 0.5 <= task["user_seconds"] + task["system_seconds"] < 5
        assert 10 * MIB <= task["written_chars"] < 11 * MIB
    finally:
        node.close()
