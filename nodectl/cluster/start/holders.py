"""Requests to the holder on this machine, by commands."""

from __future__ import annotations

import json
import socket
from typing import Any

from nodectl.cluster.start.place import HoldersPlace
from nodectl.model.config.own_node import NotOurs


def ask_status(job: int) -> dict[str, Any] | None:
    """Return the nodes and the joined nodes; None where no holder runs."""
    answer = _ask(job, b"status\n")
    found: dict[str, Any] | None = json.loads(answer) if answer else None
    return found


def stop(job: int) -> bool:
    """Stop the cluster; return when nothing is left. Return False where no holder runs."""
    return _ask(job, b"stop\n") is not None


def _ask(job: int, word: bytes) -> bytes | None:
    try:
        place = HoldersPlace(job)
    except (OSError, NotOurs):
        return None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.connect(place.socket)
            sock.sendall(word)
            with sock.makefile("rb") as answer:
                return answer.read()
    except OSError:
        return None
    finally:
        place.leave()
