"""What commands ask the holder on their machine."""

from __future__ import annotations

import json
import socket
from typing import Any

from nodectl.cluster.start.place import HoldersPlace
from nodectl.config.own_node import NotOurs


def ask_status(job: int) -> dict[str, Any] | None:
    """Nodes, and who has joined; None where there is no holder."""
    answer = _ask(job, b"status\n")
    found: dict[str, Any] | None = json.loads(answer) if answer else None
    return found


def stop(job: int) -> bool:
    """Returns when nothing is left of the cluster; False where there is no holder."""
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
