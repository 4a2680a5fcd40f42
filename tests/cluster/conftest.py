"""Fixtures of the ring "cluster"."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.bed import Bed
from cluster.user import User
from slurm.packages import NoSlurm

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this folder is the ring's, which needs root."""
    for item in items:
        if item.path.parent == _HERE:
            item.add_marker(pytest.mark.cluster)
            if os.geteuid() != 0:
                item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.fixture(scope="session")
def bed() -> Iterator[Bed]:
    """One for all tests of the ring. Without packages it is skipped, but not where `./dev` has said that they are to
    be had.
    """
    made = Bed()
    try:
        try:
            made.begin()
        except NoSlurm as error:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(str(error))
        yield made
    finally:
        made.end()


@pytest.fixture
def slurm(bed: Bed) -> Iterator[Bed]:
    """The bed, on which every test leaves nothing."""
    try:
        yield bed
        bed.assert_clean()
    finally:
        bed.recover()


@pytest.fixture
def user(slurm: Bed) -> Iterator[User]:
    """Whose cluster is there, with two CPUs of each node."""
    with slurm.salloc("--ntasks-per-node=2", "--no-kill") as job:
        found = User(slurm, job)
        found.start("head")
        yield found
