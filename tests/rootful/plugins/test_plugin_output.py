"""What a plugin writes to stderr reaches the step's user, however long the step runs."""

from __future__ import annotations

import sqlite3

import pytest

from rootful.node import NOBODY, Node, running, wait_until

pytestmark = pytest.mark.rootful
# Enough to come back to where the stepd reads, and a line for each moment at which a step runner calls it.
PLUGIN = """
import os
from nodectl.spank import spank_remote

def _say(words):
    os.write(2, f"say {words}\\n".encode())
    return 0

def slurm_spank_init(sp, ac, argv):
    return _say("init") if spank_remote(sp) else 0

def slurm_spank_task_exit(sp, ac, argv):
    return _say(f"task_exit {sp.task.local_id}")

def slurm_spank_exit(sp, ac, argv):
    return _say("exit") if spank_remote(sp) else 0
"""


def is_noted(node: Node) -> bool:
    """True when the history has a note of a running step."""
    with sqlite3.connect(f"file:{node.values['state_dir']}/history.db?mode=ro", uri=True) as db:
        return bool(db.execute("SELECT COUNT(*) FROM running").fetchone()[0])


def test_a_step_that_the_history_has_noted_passes_on_the_last_lines_of_its_plugins() -> None:
    """The note for a reset of the machine emptied the file of a living step runner: what a plugin had written, and the
    step runner had not read yet, was lost.
    """
    with running() as node:
        node.plugstack(f"required {node.plugin('say', PLUGIN)}\n")
        go = node.scratch / "go"
        script = f"echo ready; while ! [ -e {go} ]; do sleep 0.05; done"
        client = node.popen("-n2", "sh", "-c", script, user=NOBODY)
        assert client.stdout is not None
        assert [client.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        with (node.steps / "1.0.stderr").open("a", encoding="ascii") as file:  # as what a plugin has begun does
            file.write("say between\n")
        wait_until(lambda: is_noted(node) or client.poll() is not None, "the running step is noted")
        go.touch()
        _, said = client.communicate()
        assert client.returncode == 0, said
        assert sorted(said.splitlines()) == [
            "say between",
            "say exit",
            "say init",
            "say task_exit 0",
            "say task_exit 1",
        ]
        node.assert_clean()
