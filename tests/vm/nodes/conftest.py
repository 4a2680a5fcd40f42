"""Fixtures of the vm ring's three machines: Slurm's allocations of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from vm.nodes.allocation import Allocation, assert_clean, wait_for_slurm


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this folder wants three machines."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.nodes)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Allocation]:
    """One for all tests of a module, with nodectl's agents; nothing is left of it."""
    wait_for_slurm()
    with Allocation() as made:
        made.start()
        yield made
    assert_clean()
