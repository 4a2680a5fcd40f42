"""--io-priority: the tasks' turn at a disk, which ionice(1) shows."""

from __future__ import annotations

import pytest

from rootful.node import NOBODY, Node

SHOWN = {"0": "best-effort: prio 0", "7": "best-effort: prio 7", "idle": "idle"}


@pytest.mark.parametrize("level", SHOWN)
def test_tasks_have_the_priority_that_was_asked_for(node: Node, level: str) -> None:
    done = node.run("-n2", f"--io-priority={level}", "ionice", user=NOBODY)
    assert done.stdout.splitlines() == [SHOWN[level]] * 2


def test_task_that_is_a_fork_has_it_too(node: Node) -> None:
    assert node.run("--io-priority=7", "--task-prolog=/bin/true", "ionice", user=NOBODY).stdout == f"{SHOWN['7']}\n"


def test_next_step_of_the_same_user_has_the_usual_one(node: Node) -> None:
    before = node.run("ionice", user=NOBODY).stdout
    node.run("--io-priority=idle", "true", user=NOBODY)
    assert node.run("ionice", user=NOBODY).stdout == before != f"{SHOWN['idle']}\n"


def test_priority_that_is_none_is_refused(node: Node) -> None:
    for level in ("8", "-1", "high"):
        done = node.nodectl("run", f"--io-priority={level}", "true", user=NOBODY)
        assert done.returncode != 0
        assert "0 to 7 and idle are allowed for --io-priority." in done.stderr


def test_commands_of_a_bulk_have_it(node: Node) -> None:
    done = node.nodectl("bulk", "--io-priority=7", "ionice", ":::", "-t", "-t", user=NOBODY)
    assert done.stdout.splitlines() == [SHOWN["7"]] * 2


def test_script_of_a_job_has_it(node: Node) -> None:
    script = node.scratch / "job.sh"
    script.write_text("#!/bin/sh\nexec ionice\n", encoding="utf-8")
    said = node.scratch / "said"
    words = ("submit", "--wait", "--io-priority=idle", f"--output={said}", str(script))
    done = node.nodectl(*words, user=NOBODY, cwd=str(node.scratch))
    assert done.returncode == 0, done.stderr
    assert said.read_text(encoding="utf-8") == f"{SHOWN['idle']}\n"
