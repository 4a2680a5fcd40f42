"""Fixtures of tests whose jobs wait for each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rootful.jobs.machine import TURNS, cancel_all
from rootful.node import Node, running


@pytest.fixture(scope="module")
def shared_queue() -> Iterator[Node]:
    """One node for the tests of a module, where jobs take turns."""
    with running(**TURNS) as started:
        yield started


@pytest.fixture
def queued(shared_queue: Node) -> Iterator[Node]:
    """The module's node, whose jobs end with the test, and of which nothing may be left then."""
    yield shared_queue
    cancel_all(shared_queue)
    shared_queue.assert_clean()
    assert "Traceback" not in shared_queue.logged()
