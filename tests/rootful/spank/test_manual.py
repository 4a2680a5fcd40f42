"""What Slurm's manual promises to authors of SPANK plugins, and no recording shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rootful.native import native
from rootful.node import NOBODY, Node, running, wait_until

SETS = """
import os
from nodectl.spank import *
def slurm_spank_init(sp, ac, argv):
    if not spank_remote(sp):
        os.environ["SET_HERE"] = "yes"
        os.environ.pop("UNSET_HERE", None)
    return 0
"""
SETS_IN_C = 'if (!spank_remote(sp)) { setenv("SET_HERE", "yes", 1); unsetenv("UNSET_HERE"); }'
FOR_STEPS = """
from nodectl.spank import *
option = SpankOption("colour", "NAME", "A colour.", 1, 0, lambda val, optarg, remote: 0)
def slurm_spank_init(sp, ac, argv):
    if spank_context() != S_CTX_ALLOCATOR:
        spank_option_register(sp, option)
    return 0
"""
NOTES = """
from nodectl.spank import *
def slurm_spank_exit(sp, ac, argv):
    if spank_remote(sp):
        with open({log!r}, "a") as file:
            print("exit", *argv, file=file)
    return 0
"""


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running() as started:
        yield started


@pytest.mark.parametrize("language", ["python", "c"])
def test_what_setenv_does_in_the_command_reaches_the_tasks(node: Node, language: str) -> None:
    if language == "c":
        native(node, "sets_in_c", init=SETS_IN_C)
        node.plugstack("required sets_in_c.so\n")
    else:
        node.plugin("sets", SETS)
        node.plugstack("required sets.py\n")
    done = node.run("sh", "-c", "echo $SET_HERE-$UNSET_HERE-", user=NOBODY, env={"UNSET_HERE": "there"})
    assert (done.stdout, done.stderr) == ("yes--\n", "")


def test_an_option_is_known_in_the_contexts_in_which_it_is_registered(node: Node) -> None:
    node.plugin("steps", FOR_STEPS)
    node.plugstack("required steps.py\n")
    assert node.run("--colour=red", "true", user=NOBODY).returncode == 0
    done = node.nodectl("submit", "--colour=red", "--wrap=true", user=NOBODY)
    assert done.returncode != 0
    assert "--colour" in done.stderr


def test_a_running_step_keeps_its_stack_when_the_file_is_edited(node: Node) -> None:
    log = node.scratch / "log"
    log.touch()
    log.chmod(0o666)
    node.plugin("notes", NOTES.format(log=str(log)))
    node.plugstack("required notes.py first\n")
    client = node.popen("sh", "-c", "touch began; until [ -e end ]; do sleep 0.02; done", user=NOBODY)
    wait_until((node.scratch / "began").exists, "the step has begun")
    node.plugstack("required notes.py second\n")
    assert node.run("--overlap", "true", user=NOBODY).returncode == 0
    assert log.read_text() == "exit second\n"
    (node.scratch / "end").touch()
    assert client.wait(60) == 0
    assert log.read_text() == "exit second\nexit first\n"
