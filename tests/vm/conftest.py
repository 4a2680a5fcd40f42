"""Fixtures of the vm ring: nodectl as the service of a machine that may be broken."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from vm import service

USERS = {"alice": ("users", "games"), "bob": ()}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These tests restart services, kill daemons and make accounts: never outside of the ring's machine."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.vm)
            if "NODECTL_TEST_VM" not in os.environ:
                item.add_marker(pytest.mark.skip(reason="for a machine of its own: ./dev vm"))


@pytest.fixture(scope="session", autouse=True)
def users() -> None:
    """Two people with homes."""
    for name, groups in USERS.items():
        made = service.run("useradd", "--create-home", "--groups", ",".join(groups), name)
        assert made.returncode == 0, made.stderr


@pytest.fixture(autouse=True)
def served() -> Iterator[None]:
    """Each test begins with the service as installed, and leaves nothing of a step and no traceback."""
    service.restore()
    began = service.since()
    yield
    service.restore()
    service.end_steps()
    service.assert_clean()
    assert "Traceback" not in service.logged(began)
