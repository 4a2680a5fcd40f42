"""What tests of the Python client share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nodectl.client import Client
from rootful.node import Node, running


@pytest.fixture
def client(served: Node) -> Iterator[Client]:
    with Client(served.socket) as opened:
        yield opened


@pytest.fixture(scope="module")
def narrow() -> Iterator[Node]:
    """A node on which a job holds the machine alone."""
    with running(over_subscribe="exclusive") as started:
        yield started
