"""`nodectl init` on a terminal, and a service that runs with what it wrote."""

from __future__ import annotations

from typing import Any

import pytest

from rootful.at_terminal import at_terminal
from rootful.node import wait_until
from rootful.queued import emptied, queue_node, show, submit, wait_for

pytestmark = pytest.mark.rootful


def test_service_runs_with_the_answers_and_jobs_have_the_limits_that_they_do_not_name() -> None:
    node = queue_node()
    try:
        with at_terminal(node.command("init", "--force"), env=node.environment()) as terminal:
            for question, answer in (
                ("time limit of a job", "2:00:00"),
                ("memory for all jobs", "1G"),
                ("memory for each CPU", "50M"),
                ("CPUs that one user", "0"),
                ("group whose members", "root"),
                ("days for which", ""),
            ):
                terminal.wait_for(f"{question}.*: ")
                terminal.line(answer)
            terminal.wait_for("is written")
            assert terminal.wait_for_end() == 0
        node.start()
        machine: Any = node.call("Nodes")["nodes"]
        assert machine[0]["memory"] == 1024
        job = submit(node, "sleep infinity")
        running = wait_for(node, job, "RUNNING")
        assert (running["time_limit"], running["memory"]) == (7200, 50 * running["cpus"])
        emptied(node)
    finally:
        node.close()


def test_options_limit_what_one_user_has() -> None:
    node = queue_node()
    try:
        done = node.nodectl("init", "--force", "--user-jobs=1")
        assert (done.returncode, done.stderr) == (0, "")
        node.start()
        first, second = (submit(node, "sleep infinity") for _ in range(2))
        wait_for(node, first, "RUNNING")
        wait_until(lambda: show(node, second)["reason"] == "QOSMaxJobsPerUserLimit", "the second job waits")
        emptied(node)
    finally:
        node.close()
