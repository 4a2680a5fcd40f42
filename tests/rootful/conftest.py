"""Fixtures of the rootful ring."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from packages import Packages, unpacked
from rootful.bulk_client import BulkClient
from rootful.node import NOBODY, Node, running
from rootful.stage import Stage, staged


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this folder needs root; without it the whole ring is skipped, and says so."""
    for item in items:
        if "rootful" in item.path.parts:
            item.add_marker(pytest.mark.rootful)
            if os.geteuid() != 0:
                item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.fixture(scope="session")
def packages() -> Packages:
    """Debian's packages of Slurm; tests that ask for them carry the mark "packages"."""
    return unpacked()


@pytest.fixture(autouse=True)
def _bulk_clients() -> Iterator[None]:
    """None is left of a test that failed: its step would run on."""
    yield
    while BulkClient.made:
        BulkClient.made.pop().close()


@pytest.fixture
def node() -> Iterator[Node]:
    """A node of the test's own; the test ends with a check that nothing of its steps is left."""
    with running() as started:
        yield started


@pytest.fixture(scope="module")
def shared_node() -> Iterator[Node]:
    """One node for the tests of a module that change neither its configuration nor its plugins."""
    with running() as started:
        yield started


@pytest.fixture
def served(shared_node: Node) -> Iterator[Node]:
    """The module's node, which must still serve when the test is over, and be clean."""
    yield shared_node
    done = shared_node.run("echo", "served", user=NOBODY)
    assert (done.returncode, done.stdout) == (0, "served\n"), done.stderr
    shared_node.assert_clean()
    assert "Traceback" not in shared_node.logged()


@pytest.fixture(scope="module")
def module_stage() -> Iterator[Stage]:
    """One stage for the tests of a module; a module that needs another has a fixture of this name."""
    with staged() as started:
        yield started


@pytest.fixture
def stage(module_stage: Stage) -> Stage:
    """The module's stage without orders; a test may leave it without a daemon."""
    module_stage.reset()
    return module_stage
