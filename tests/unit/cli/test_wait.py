"""`nodectl wait`: how long it waits."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.cli import wait


def test_a_time_longer_than_poll_can_wait_is_waited_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    job: Any = SimpleNamespace(session=ours)
    with ours, theirs:
        theirs.send(b"x")
        assert wait._poll([job], time.monotonic() + 25 * 86400) == [job]
        ours.recv(1)
        monkeypatch.setattr(wait, "_LONGEST_POLL", 1)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            wait._poll([job], began + 0.05)
        assert time.monotonic() >= began + 0.05
