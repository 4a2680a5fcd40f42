"""What is too much or makes no sense, through the real daemon: it costs one line, and nobody else anything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rootful.node import NOBODY, OTHER, Node
from rootful.queued import all_cpus, emptied, queue, queue_running, refused, show, submit, wait_for


@pytest.fixture(scope="module")
def module_node() -> Iterator[Node]:
    with queue_running(max_submit_jobs_per_user=5) as node:
        yield node


@pytest.fixture
def node(module_node: Node) -> Iterator[Node]:
    yield module_node
    emptied(module_node)


def test_a_million_tasks_are_one_row_and_go_at_once(node: Node) -> None:
    blocker = submit(node, "exec sleep 1000", f"-n{all_cpus(node)}")
    wait_for(node, blocker, "RUNNING")
    array = submit(node, "true", "--array=0-999999")
    assert [row["job"] for row in queue(node)] == [blocker, array]
    node.restart()
    assert show(node, array)["array_tasks"] == "0-999999"
    assert node.nodectl("cancel", f"{array}_[0-499999]", user=NOBODY).returncode == 0
    assert show(node, array)["array_tasks"] == "500000-999999"
    assert node.nodectl("cancel", str(array), user=NOBODY).returncode == 0
    assert [row["job"] for row in queue(node)] == [blocker]
    assert "1000001" in refused(node, "#!/bin/sh\n", "--array=0-1000001")


def test_jobs_do_not_come_to_wait_for_each_other(node: Node) -> None:
    first = submit(node, "true", "--hold")
    second = submit(node, "true", f"--dependency=afterany:{first}")
    third = submit(node, "true", f"--dependency=afterok:{second}")
    for target in (first, second, third):
        done = node.nodectl("update", str(first), f"--dependency=afterany:{target}", user=NOBODY)
        assert done.returncode != 0
        assert len(done.stderr.splitlines()) == 1
        assert "would wait for itself" in done.stderr
    assert node.nodectl("release", str(first), user=NOBODY).returncode == 0
    wait_for(node, third, "COMPLETED")


def test_a_job_may_end_with_the_hope_for_what_it_waits_for(node: Node) -> None:
    first = submit(node, "exit 1", "--hold")
    waiting = submit(node, "true", f"--dependency=afterok:{first}", "--kill-on-invalid-dep=yes")
    assert node.nodectl("release", str(first), user=NOBODY).returncode == 0
    record = wait_for(node, waiting, "CANCELLED")
    assert record["words"] == "DependencyNeverSatisfied"
    done = node.nodectl("submit", "-Q", "-k", "-p", "main", "--wrap=true", user=NOBODY)
    assert (done.returncode, done.stderr) == (0, "")


def test_who_submits_too_much_is_told_and_others_are_served(node: Node) -> None:
    for _ in range(5):
        submit(node, "true", "--hold")
    assert "5 is the most" in refused(node, "#!/bin/sh\ntrue\n")
    job = submit(node, "true", user=OTHER)
    wait_for(node, job, "COMPLETED")
