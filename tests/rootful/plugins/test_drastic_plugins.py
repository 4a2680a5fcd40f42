"""Plugins that take over: that execute a program from inside a hook, or give a process another root."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from rootful.node import NOBODY, PATIENCE, Node, wait_for_answer, wait_until

EXECUTES = """
import os
from nodectl.spank import S_JOB_ARGV, S_JOB_ENV, spank_get_item

def slurm_spank_task_init(sp, ac, argv):
    words = ["sh", "-c", "echo wrapped; exec \\"$0\\" \\"$@\\"", *spank_get_item(sp, S_JOB_ARGV)]
    os.execve("/bin/sh", words, dict(spank_get_item(sp, S_JOB_ENV)))
"""

CHROOT = """
import os

def {hook}(sp, ac, argv):
    from nodectl.spank import spank_remote
    if spank_remote(sp):
        os.chroot({root!r})
        os.chdir("/")
"""

LIBRARYS_OWN = 0b11 << 31  # signals 32 and 33, which libc lets nobody touch

STATIC = """
#include <stdio.h>
int main(void) { printf("inside, %d\\n", fopen("/marker", "r") != NULL); return 3; }
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with nothing but a program that needs nothing."""
    (tmp_path / "x.c").write_text(STATIC, encoding="ascii")
    directory = tmp_path / "root"
    directory.mkdir(mode=0o755)
    (directory / "marker").touch()
    subprocess.run(["cc", "-static", "-o", directory / "program", tmp_path / "x.c"], check=True)
    return directory


def test_a_plugin_may_execute_a_program_of_its_own_around_the_users(node: Node) -> None:
    node.plugstack(f"required {node.plugin('executes', EXECUTES)}\n")
    done = node.run("-n2", "sh", "-c", 'echo "$SLURM_PROCID $SLURM_TASK_PID $$"; exit 0', user=NOBODY)
    assert (done.returncode, done.stderr) == (0, "")
    words = [line.split() for line in sorted(done.stdout.splitlines())]
    assert [line[0] for line in words] == ["0", "1", "wrapped", "wrapped"]
    assert all(line[1] == line[2] for line in words[:2])


def test_the_status_of_a_program_that_a_plugin_executed_is_the_tasks(node: Node) -> None:
    node.plugstack(f"required {node.plugin('executes', EXECUTES)}\n")
    done = node.run("sh", "-c", "exit 7", user=NOBODY)
    assert done.returncode == 7
    assert "ended inside" not in done.stderr


def test_signals_reach_a_program_that_a_plugin_executed(node: Node) -> None:
    node.plugstack(f"required {node.plugin('executes', EXECUTES)}\n")
    client = node.popen("sh", "-c", "trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.05; done")
    assert client.stdout is not None
    assert (client.stdout.readline(), client.stdout.readline()) == ("wrapped\n", "ready\n")
    wait_for_answer(client)
    client.send_signal(signal.SIGUSR1)
    assert client.stdout.readline() == "caught\n"
    assert client.wait(PATIENCE) == 5
    client.communicate()


def test_a_program_that_a_plugin_executed_starts_with_default_signals(node: Node) -> None:
    node.plugstack(f"required {node.plugin('executes', EXECUTES)}\n")
    done = node.run("grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status", user=NOBODY)
    masks = [int(line.split()[1], 16) for line in done.stdout.splitlines()[1:]]
    assert [mask & ~LIBRARYS_OWN for mask in masks] == [0, 0]


@pytest.mark.parametrize("hook", ["slurm_spank_init", "slurm_spank_task_post_fork", "slurm_spank_task_exit"])
def test_a_step_runner_with_another_root_still_leaves_its_record(node: Node, root: Path, hook: str) -> None:
    node.plugstack(f"required {node.plugin('chroot', CHROOT.format(hook=hook, root=str(root)))}\n")
    program = "/program" if hook == "slurm_spank_init" else str(root / "program")
    done = node.run(program, cwd="/")
    assert done.returncode == 3, done.stderr
    steps = node.call("List", ended=1)["steps"]
    assert (steps[0]["state"], steps[0].get("exit_status")) == ("FAILED", 3), steps[0]  # type: ignore[index]
    if hook == "slurm_spank_init":
        assert done.stdout == "inside, 1\n"


def test_a_task_with_another_root_finds_its_program_there(node: Node, root: Path) -> None:
    text = CHROOT.format(hook="slurm_spank_task_init_privileged", root=str(root))
    node.plugstack(f"required {node.plugin('chroot', text)}\n")
    done = node.run("-D", "/", "/program", user=NOBODY)
    assert (done.returncode, done.stdout) == (3, "inside, 1\n"), done.stderr


def test_processes_of_a_step_whose_runner_has_another_root_are_killed(node: Node, root: Path) -> None:
    node.plugstack(f"required {node.plugin('chroot', CHROOT.format(hook='slurm_spank_task_exit', root=str(root)))}\n")
    done = node.run("sh", "-c", "setsid sleep 300 >/dev/null 2>&1 </dev/null & exit 0", user=NOBODY)
    assert done.returncode == 0
    wait_until(lambda: not any("sleep" in name for _, name in node.processes()), "the sleeper is gone")
    node.assert_clean()
