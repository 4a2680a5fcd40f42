"""Programs between colons: srun's heterogeneous steps, on one machine."""

from __future__ import annotations

import pytest

from rootful.node import NOBODY, Node


def test_ranks_go_on_from_one_component_to_the_next(shared_node: Node) -> None:
    tell = "echo $SLURM_PROCID of $SLURM_NTASKS"
    words = (
        "-l",
        "-n1",
        "sh",
        "-c",
        f"{tell}, server",
        ":",
        "-n2",
        "sh",
        "-c",
        f"{tell}, client",
        ":",
        "echo",
        "%t %o",
    )
    done = shared_node.run(*words, user=NOBODY)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "0: 0 of 4, server",
        "1: 1 of 4, client",
        "2: 2 of 4, client",
        "3: %t %o",  # which means something to --multi-prog only
    ]
    assert shared_node.record(shared_node.last_job())["ntasks"] == 4


def test_the_step_ends_as_the_worst_of_all_components(shared_node: Node) -> None:
    done = shared_node.run("true", ":", "sh", "-c", "exit 4", ":", "-n2", "true", user=NOBODY)
    assert done.returncode == 4
    assert "task 1: Exited with exit code 4" in done.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("echo", ":"), "component 1: No command given to execute."),
        (("echo", ":", "-n2"), "component 1: No command given to execute."),
        ((":", "echo"), "No command given to execute."),
        (("-c1", "echo", ":", "-c2", "echo"), "component 1: --cpus-per-task is not as of the first one"),
        (("echo", ":", "--mem=5", "echo"), "component 1: --mem is not as of the first one"),
        (("echo", ":", "-n2", "--multi-prog", "f"), "--multi-prog says what tasks run, and so do colons"),
    ],
)
def test_what_one_step_cannot_be_is_refused(shared_node: Node, words: tuple[str, ...], reason: str) -> None:
    done = shared_node.run(*words, user=NOBODY)
    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr


def test_what_each_component_says_alike_or_without_meaning_is_taken(shared_node: Node) -> None:
    done = shared_node.run("-l", "-p", "x", "echo", "a", ":", "-l", "-p", "y", "-J", "b", "echo", "b", user=NOBODY)
    assert sorted(done.stdout.splitlines()) == ["0: a", "1: b"]
