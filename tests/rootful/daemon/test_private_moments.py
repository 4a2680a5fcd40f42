"""A signal at any moment of a command that has a node of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rootful.daemon.test_private_node import assert_nothing_left
from rootful.moments import Programs, Walk
from rootful.node import Node

_FEW = 16  # each starts a node


@pytest.fixture
def alone() -> Iterator[Node]:
    node = Node()
    yield node
    node.close()


def test_a_signal_ends_the_command_or_is_the_tasks_and_nothing_is_left_of_the_node(alone: Node) -> None:
    programs = Programs(alone.scratch)
    walk = Walk(
        programs, ["--config", str(alone.config_path), "run", str(programs.awaits)], few=_FEW,
        env=alone.environment(), cwd=str(alone.scratch),
    )  # fmt: skip
    for outcome in walk.outcomes(walk.moments()):
        assert "Traceback" not in outcome.err, outcome
        if outcome.out or "task 0" in outcome.err:  # the step had begun, if not yet the program
            assert outcome.reached, outcome
        else:
            assert outcome.died, outcome
        assert_nothing_left(alone)
