"""`nodectl run --pty` from one node, on another one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from rootful.at_terminal import INTERRUPT, AtTerminal, at_terminal
from rootful.cluster.agents import Agents, agents
from rootful.node import wait_until

pytestmark = pytest.mark.rootful


@pytest.fixture(scope="module")
def cluster() -> Iterator[Agents]:
    with agents() as started:
        yield started


@contextlib.contextmanager
def terminal(cluster: Agents, *words: str) -> Iterator[AtTerminal]:
    how = cluster.how(0)
    with at_terminal(cluster.words("run", "--pty", *words), user=cluster.user, env=how["env"], cwd=how["cwd"]) as shell:
        yield shell


def test_a_shell_on_another_node(cluster: Agents) -> None:
    with terminal(cluster, "-N1", "-n1", "-w", "n1", "sh") as shell:
        shell.line("echo on $SLURMD_NODENAME; stty size")
        shell.wait_for("on n1")
        shell.wait_for("24 80")
        shell.resize(30, 90)
        shell.line("while [ \"$(stty size)\" != '30 90' ]; do sleep 0.05; done; echo wide$((1 + 1))")
        shell.wait_for("wide2")
        shell.line("echo here$((1 + 1)); sleep 1000")
        shell.wait_for("here2")
        shell.type(INTERRUPT)
        shell.line("echo still $((1 + 1))")
        shell.wait_for("still 2")
        shell.line("exit 3")
        assert shell.wait_for_end() == 3


def test_much_output_arrives_before_the_end(cluster: Agents) -> None:
    with terminal(cluster, "-N1", "-n1", "-w", "n2", "seq", "20000") as shell:
        assert shell.wait_for_end() == 0
        assert shell.screen.split() == [str(number) for number in range(1, 20_001)]


def test_the_other_tasks_of_a_step_have_no_terminal(cluster: Agents) -> None:
    with terminal(cluster, "-N3", "-n3", "sh", "-c", "test -t 1 && echo I am $SLURM_PROCID; true") as shell:
        assert shell.wait_for_end() == 0
        told, *shown = shell.screen.split("\r\n")
        assert "task 0 of 3 has the terminal" in told
        assert shown == ["I am 0", ""]


def test_a_terminal_that_is_closed_ends_its_step(cluster: Agents) -> None:
    with terminal(cluster, "-N1", "-n1", "-w", "n1", "sh", "-c", "echo here; exec sleep 1000") as shell:
        shell.wait_for("here")
        cluster.look()
    wait_until(lambda: not cluster.children(1, "sleep 1000"), "its task has ended")


def test_a_terminal_whose_node_is_lost_is_given_back(cluster: Agents) -> None:
    with terminal(cluster, "-N1", "-n1", "-w", "n1", "sh", "-c", "echo here; exec sleep 1000") as shell:
        shell.wait_for("here")
        cluster.kill(1)  # no test that follows has it
        assert shell.wait_for_end() != 0
