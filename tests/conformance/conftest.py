"""Fixtures of the conformance suite."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from conformance.theatre import Theatres, theatres_open


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What plays scenarios belongs to the rootful ring; the tables are examined in the unit ring."""
    for item in items:
        if "theatres" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.rootful)
            if os.geteuid() != 0:
                item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.fixture(scope="package")
def theatres() -> Iterator[Theatres]:
    with theatres_open() as opened:
        yield opened
