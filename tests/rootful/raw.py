"""Talking to the daemon's socket by hand: bytes, descriptors, and what comes back."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from nodectl.wire import framing
from rootful.node import Node

REQUEST: dict[str, object] = {"argv": ["true"], "environment": {"PATH": "/usr/bin:/bin"}, "cwd": "/", "ntasks": 1}


def connect(node: Node) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(str(node.socket))
    return sock


def exchange(node: Node, data: bytes, fds: list[int] | None = None) -> tuple[Mapping[str, object] | None, bool]:
    """Sends bytes; the first reply (None: none came), and whether the daemon then ended the connection."""
    with connect(node) as sock:
        try:
            if fds is None:
                sock.sendall(data)
            else:
                socket.send_fds(sock, [data], fds)
            reply = framing.receive(sock, framing.Inbox(1 << 20))
        except (BrokenPipeError, ConnectionResetError):
            return None, True
        try:
            framing.send(sock, {"method": "org.nodectl.Hello"})
            return reply, framing.receive(sock, framing.Inbox(1 << 20)) is None
        except (BrokenPipeError, ConnectionResetError):
            return reply, True


def call(method: str, **members: object) -> bytes:
    return framing.encode({"method": method, **members})


def launch(**changes: object) -> bytes:
    request = {name: value for name, value in {**REQUEST, **changes}.items() if value is not ...}
    return call("org.nodectl.Launch", parameters={"request": request})
