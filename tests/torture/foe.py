"""What a hostile client needs: who it is, where the node is, and descriptors to send."""

from __future__ import annotations

import contextlib
import pwd
import random
import socket
from pathlib import Path
from typing import Any

from nodectl.model.wire import framing
from rootful.raw import call
from torture.odd import Odd

HOSTILE = pwd.getpwnam("bin")  # a third ordinary account that every Linux has
HELLO = call("org.nodectl.Hello")
_MOST_REPLY = 4 << 20


class Foe:
    """One client. `unanswered` is a file whose close(2) never ends, "" where there is none."""

    def __init__(self, node_socket: Path, steps: Path, unanswered: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.socket = node_socket
        self.steps = steps
        self.unanswered = unanswered
        self.odd = Odd(self.rng, unanswered)

    def connect(self, path: Path | None = None) -> socket.socket:
        """A connection that waits for nothing longer than a moment."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(2)
        sock.connect(str(path or self.socket))
        return sock

    def ask(self, message: bytes) -> dict[str, Any]:
        """What a call is answered with; nothing where it was refused, or not answered soon."""
        with self.connect() as sock, contextlib.suppress(OSError, framing.BrokenWire):
            sock.sendall(message)
            reply = framing.receive(sock, framing.Inbox(_MOST_REPLY)) or {}
            parameters: dict[str, Any] = reply.get("parameters", {}) if "error" not in reply else {}  # type: ignore[assignment]
            return parameters
        return {}
