"""The loop of a stepd: what it does with ends of tasks that come in any order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.launch.stepd.reaper import Reaper


@pytest.mark.parametrize(
    ("gate_writer", "children", "ends"),
    [
        (-1, {7: "task"}, True),  # each task has read the gate
        (-1, {}, True),
        (3, {7: "task"}, False),  # a task may still be in a hook, which is not interrupted
        (3, {}, True),  # all were killed together, and were collected before the gate's own event came
    ],
)
def test_a_required_plugins_failure_is_the_steps_however_its_tasks_ended(
    gate_writer: int, children: dict[int, str], *, ends: bool
) -> None:
    ended: list[tuple[str, str]] = []
    reaper: Any = Reaper.__new__(Reaper)
    reaper._run = SimpleNamespace(
        fatal="task 1: it ended inside a hook",
        state="RUNNING",
        gate_is_open=True,
        gate_writer=gate_writer,
        step=SimpleNamespace(nnodes=1),
    )
    reaper._children = children
    reaper.termination = SimpleNamespace(end=lambda state, why: ended.append((state, why)))
    reaper._end_if_fatal()
    assert ended == ([("FAILED", "task 1: it ended inside a hook")] if ends else [])
