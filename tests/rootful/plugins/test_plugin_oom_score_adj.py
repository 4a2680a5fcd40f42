"""The oom_score_adj plugin: what users ask for, within what the administrator allows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nodectl.kernel import _kernel
from nodectl.launch.task.rlimits import CAP_SYS_RESOURCE
from rootful.node import NOBODY, Node, running

SHOW = ("cat", "/proc/self/oom_score_adj")
may_lower = bool(_kernel.capabilities()[0] & CAP_SYS_RESOURCE)
needs_lowering = pytest.mark.skipif(not may_lower, reason="root lacks CAP_SYS_RESOURCE here")
# Takes the capability away before the plugin's turn, as a container without it would.
UNABLE = """
import prctl
def slurm_spank_task_init_privileged(sp, ac, argv):
    prctl.cap_effective.sys_resource = False
"""


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running() as started:
        started.plugin("unable", UNABLE)
        yield started


@pytest.mark.parametrize(
    ("arguments", "words", "value"),
    [
        ("", ("--oom-score-adj=700",), "700"),
        ("", ("--oom-score-adj", "1000"), "1000"),
        ("default=300", (), "300"),
        ("default=300", ("--oom-score-adj=0",), "0"),
        ("default=300 max=200", (), "300"),
        pytest.param("default=-500", (), "-500", marks=needs_lowering),
        pytest.param("min=-10", ("--oom-score-adj=-10",), "-10", marks=needs_lowering),
        pytest.param("", (), "0", marks=needs_lowering),
    ],
)
def test_every_task_gets_the_value(node: Node, arguments: str, words: tuple[str, ...], value: str) -> None:
    node.plugstack(f"required oom_score_adj {arguments}\n")
    done = node.run("-n2", *words, "--", *SHOW, user=NOBODY)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{value}\n{value}\n", "")


@pytest.mark.parametrize(
    ("arguments", "words", "message"),
    [
        ("", ("--oom-score-adj=-1",), "--oom-score-adj=-1: not a number from 0 to 1000"),
        ("", ("--oom-score-adj=foo",), "--oom-score-adj=foo: not a number"),
        ("", ("--oom-score-adj=",), "--oom-score-adj=: not a number"),
        ("min=100 max=200", ("--oom-score-adj=99",), "--oom-score-adj=99: not a number from 100 to 200"),
        ("min=100 max=200", ("--oom-score-adj=201",), "--oom-score-adj=201: not a number from 100 to 200"),
        ("max=1001", (), "'max=1001' in plugstack.conf: not a number from -1000 to 1000"),
        ("default=", (), "'default=' in plugstack.conf: not a number"),
        ("most=1", (), "unknown argument 'most=1' in plugstack.conf"),
    ],
)
def test_what_is_not_allowed_refuses_the_step(node: Node, arguments: str, words: tuple[str, ...], message: str) -> None:
    node.plugstack(f"required oom_score_adj {arguments}\n")
    done = node.run(*words, "--", "echo", "ran", user=NOBODY)
    assert done.returncode != 0
    assert done.stdout == ""
    assert message in done.stderr


def test_a_client_that_checks_nothing_gains_nothing(node: Node) -> None:
    """The option comes from the user's process, which may be no nodectl."""
    node.plugstack("required oom_score_adj default=250 min=100\n")
    launched = node.call(
        "Launch",
        request={
            "argv": ["sh", "-c", "cat /proc/self/oom_score_adj >value"],
            "environment": {"PATH": "/usr/bin:/bin"},
            "cwd": str(node.scratch),
            "ntasks": 1,
            "options": [["oom_score_adj", "oom-score-adj", "-1000"]],
        },
    )
    assert "error" not in launched, launched
    record = node.call("Wait", job=launched["job"], step=0)["record"]
    assert record["state"] == "FAILED"  # type: ignore[index]
    assert "option oom-score-adj" in record["reason"]  # type: ignore[index]
    assert not (node.scratch / "value").exists()


def test_a_root_that_may_not_lower_it_says_so(node: Node) -> None:
    node.plugstack("required unable\nrequired oom_score_adj default=-500\n")
    done = node.run("echo", "ran", user=NOBODY)
    assert (done.returncode, done.stdout) == (1, "")
    assert "set -500 for task 0: Permission denied (a lower value needs CAP_SYS_RESOURCE)" in done.stderr
    node.plugstack("required unable\nrequired oom_score_adj default=500\n")
    assert node.run(*SHOW, user=NOBODY).stdout == "500\n"
