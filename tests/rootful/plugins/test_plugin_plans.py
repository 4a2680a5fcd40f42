"""What a site's task plugin wants done in a task, as data: each task's own, whatever tasks before it were told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rootful.node import NOBODY, Node

# A plugin that has one list for all of its answers.
CHANGES = """
from nodectl.kernel import operations
CORE, BLOCK = 4, 512
wanted = []
def task_p_pre_launch_priv_plan(step, task):
    wanted[:] = [operations.hard_limit(CORE, (100 + told) * BLOCK, (100 + told) * BLOCK)]
    return wanted
"""
WHICH = "ulimit -Hc"


@pytest.fixture
def made() -> Iterator[Node]:
    node = Node(task_plugin=["task/cgroup", "task/affinity", "task/odd"])
    yield node
    node.close()


def test_a_list_that_a_plugin_changes_is_not_taken_for_that_of_another_task(made: Node) -> None:
    made.plugin("odd", CHANGES.replace("told", "task.local_id"), "task")
    done = made.start().run("-n3", "-O", "sh", "-c", WHICH, user=NOBODY)
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["100", "101", "102"]), done.stderr


def test_a_command_in_a_slot_is_not_told_what_the_one_before_it_was(made: Node) -> None:
    made.plugin("odd", CHANGES.replace("told", "task.global_id"), "task")
    done = made.start().nodectl("bulk", "-j1", "-k", f"{WHICH}; : {{}}", ":::", "a", "b", "c", user=NOBODY)
    assert (done.returncode, done.stdout.split()) == (0, ["101", "102", "103"]), done.stderr
