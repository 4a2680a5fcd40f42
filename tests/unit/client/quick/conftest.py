"""A service for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from unit.client.quick.service import Service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Nobody has connected yet."""
    found = Service(tmp_path / "socket")
    yield found
    found.close()
