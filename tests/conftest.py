"""What holds for every ring."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from rootful.node import PATIENCE, Node


@pytest.fixture(scope="session", autouse=True)
def signals_as_on_a_terminal() -> None:
    """What runs the tests in the background may ignore signals, and what is started from here would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def nothing_remains() -> Iterator[None]:
    """After the last test, and the last fixture of any folder, nothing of a test's node is left: no directory, cgroup
    or process.
    """
    yield
    end = time.monotonic() + PATIENCE
    while left := {made.dir.name: found for made in Node.made if (found := made.remains())}:
        assert time.monotonic() < end, left
        time.sleep(0.1)
