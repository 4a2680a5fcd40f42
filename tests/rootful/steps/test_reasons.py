"""Why a step ended: one reason, in its record, in `nodectl show`, and in one line to who runs it.

Memory and processes that ran out: tests/vm/test_ends.py, where cgroup2 has the controllers.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest

from rootful.node import NOBODY, Node, running

RAISES = "def {hook}({parameters}):\n    raise OSError(5, 'no disk')\n"
SPANK = "sp, ac, argv"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running() as started:
        yield started


def told(node: Node, stderr: str, state: str, reason: str, line: str) -> None:
    """All three tell it: the record this state and reason, `show` the reason, stderr exactly one such line."""
    record = node.record(node.last_job())
    assert (record["state"], record["reason"]) == (state, reason)
    shown = node.nodectl("show", str(record["job"])).stdout.splitlines()
    assert [text.split(maxsplit=1)[1] for text in shown if text.startswith("reason")] == [reason]
    assert len([text for text in stderr.splitlines() if re.search(line, text)]) == 1, stderr


@pytest.mark.parametrize(
    ("script", "status", "reason", "line"),
    [
        ("exit 3", 3, "task 0 ended with exit code 3", "task 0: Exited with exit code 3$"),
        ("kill -USR1 $$", 138, "task 0 was ended by signal 10", "task 0: User defined signal 1$"),
        ("kill -KILL $$", 137, "task 0 was ended by signal 9", "task 0: Killed$"),
    ],
)
def test_end_of_a_task(node: Node, script: str, status: int, reason: str, line: str) -> None:
    ended = node.run("sh", "-c", script, user=NOBODY)
    assert ended.returncode == status
    told(node, ended.stderr, "FAILED", reason, line)


def test_end_without_a_reason(node: Node) -> None:
    ended = node.run("true", user=NOBODY)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert node.record(node.last_job())["reason"] == ""
    assert "reason" not in node.nodectl("show", str(node.last_job())).stdout


def test_time_limit(node: Node) -> None:
    ended = node.run("-t", "0:1", "sleep", "60", user=NOBODY)
    assert ended.returncode == 143
    told(
        node, ended.stderr, "TIMEOUT", "time limit of 1 s", r"\*\*\* STEP .* CANCELLED AT .* DUE TO TIME LIMIT \*\*\*$"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_cancellation(node: Node, number: signal.Signals) -> None:
    with node.popen("sh", "-c", "echo on; exec sleep 60", user=NOBODY) as step:
        assert step.stdout is not None
        assert step.stdout.readline() == "on\n"
        job = node.last_job()
        assert node.nodectl("signal", "-s", str(int(number)), str(job), user=NOBODY).returncode == 0
        _, stderr = step.communicate(timeout=60)
    told(
        node, stderr, "CANCELLED", f"signal {number} by uid {NOBODY.pw_uid}", r"\*\*\* STEP .* CANCELLED AT .* \*\*\*$"
    )


@pytest.mark.parametrize(
    ("kind", "hook", "parameters", "where"),
    [
        ("spank", "slurm_spank_user_init", SPANK, ""),
        ("spank", "slurm_spank_task_init", SPANK, "task 0: "),
        ("spank", "slurm_spank_task_post_fork", SPANK, ""),
        ("task", "task_p_pre_setuid", "step", ""),
        ("task", "task_p_pre_launch", "step", "task 0: "),
    ],
)
def test_hook_that_fails(kind: str, hook: str, parameters: str, where: str) -> None:
    name = "fails" if kind == "spank" else f"{kind}/fails"
    reason = f"{where}plugin {name}: {hook}: OSError: [Errno 5] no disk (line 5)"
    more = {"task_plugin": ["task/cgroup", "task/affinity", "task/fails"]} if kind == "task" else {}
    made = Node(**more)
    try:
        path = made.plugin("fails", RAISES.format(hook=hook, parameters=parameters), kind)
        reason += f" ({path})" if kind == "spank" else ""  # several may have one name
        made.plugstack("required fails\n" if kind == "spank" else "")
        made.start()
        ended = made.run("true", user=NOBODY)
        assert ended.returncode == 1
        told(made, ended.stderr, "FAILED", reason, re.escape(reason))
        made.assert_clean()
    finally:
        made.close()
