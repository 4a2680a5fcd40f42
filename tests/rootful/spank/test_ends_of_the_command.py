"""A plugin that ends the process of the command: the failure of a required plugin, a warning of an optional one, and
never the success of a command that has run nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rootful.jobs.machine import queue
from rootful.native import native
from rootful.node import NOBODY, Node, running

HOOKS = ("init", "init_post_opt", "local_user_init")
PYTHON = "import os\nfrom nodectl.spank import *\n\ndef slurm_spank_{hook}(sp, ac, argv):\n    {body}\n"
ENDS = {
    "C exit": ("exit(0);", "called exit(0)"),
    "C _exit": ("_exit(0);", "called _exit(0)"),
    "C SIGSEGV": ("raise(SIGSEGV);", "died by SIGSEGV"),
    "C null pointer": ("*(volatile char *)(long)ac = 1;", "died by SIGSEGV"),
    "Python os._exit": ("os._exit(0)", "called os._exit(0)"),
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Node]:
    with running() as started:
        yield started


@pytest.fixture
def node(shared: Node) -> Iterator[Node]:
    yield shared
    shared.plugstack("")
    shared.assert_clean()


def stack(node: Node, line: str, hook: str, how: str) -> None:
    """A plugin that ends the process in this hook, outside of the step."""
    body = ENDS[how][0]
    if how.startswith("C "):
        native(node, "ender", **{hook: f"if (!spank_remote(sp)) {{ {body} }}"})
        node.plugstack(f"{line} ender.so\n")
    else:
        node.plugin("ender", PYTHON.format(hook=hook, body=f"if not spank_remote(sp): {body}"))
        node.plugstack(f"{line} {node.plugins}/spank/ender.py\n")


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("hook", HOOKS)
def test_required_plugin_that_ends_the_command_is_a_failure_with_words(node: Node, hook: str, how: str) -> None:
    stack(node, "required", hook, how)
    done = node.run("echo", "ran", user=NOBODY)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert f"plugin ender: slurm_spank_{hook}: " in done.stderr
    assert ENDS[how][1] in done.stderr


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("hook", HOOKS)
def test_optional_plugin_that_ends_the_command_costs_a_warning(node: Node, hook: str, how: str) -> None:
    stack(node, "optional", hook, how)
    done = node.run("echo", "ran", user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert f"warning: optional plugin ender: slurm_spank_{hook}: " in done.stderr
    assert ENDS[how][1] in done.stderr
    quiet = node.run("-Q", "echo", "ran", user=NOBODY)
    assert (quiet.returncode, quiet.stdout) == (0, "ran\n"), quiet.stderr
    assert "local" not in hook or "warning" not in quiet.stderr  # the hooks before know no option yet


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("hook", HOOKS[:2])
def test_submit_that_has_made_no_job_has_not_succeeded(node: Node, hook: str, how: str) -> None:
    stack(node, "required", hook, how)
    done = node.nodectl("submit", "--wrap=true", user=NOBODY)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert f"plugin ender: slurm_spank_{hook}: " in done.stderr
    assert not queue(node)


@pytest.mark.parametrize("how", ENDS)
def test_plugin_that_ends_the_command_behind_its_step_leaves_the_steps_exit_status(node: Node, how: str) -> None:
    stack(node, "required", "exit", how)
    done = node.run("sh", "-c", "exit 7", user=NOBODY)
    assert done.returncode == 7
    assert f"plugin ender: slurm_spank_exit: {'SystemExit' if how.startswith('P') else 'RuntimeError'}" in done.stderr


def test_plugin_file_that_ends_the_command_while_it_is_loaded_is_a_failure(node: Node) -> None:
    node.plugin("ender", "import os\nif os.geteuid():\n    os._exit(0)\ndef slurm_spank_init(sp, ac, argv): pass\n")
    for line, status, printed in (("required", 1, ""), ("optional", 0, "ran\n")):
        node.plugstack(f"{line} {node.plugins}/spank/ender.py\n")
        done = node.run("echo", "ran", user=NOBODY)
        assert (done.returncode, done.stdout) == (status, printed), done.stderr
        assert "called os._exit(0)" in done.stderr
