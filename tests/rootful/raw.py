"""Talking to the daemon's socket by hand: bytes, descriptors, and what comes back."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from nodectl.model.wire import framing
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


def events(node: Node, **changes: object) -> Iterator[dict[str, Any]]:
    """Launches a step with no streams; what its client is told, to the end."""
    inbox = framing.Inbox(1 << 20)
    with open(os.devnull, "r+b") as nothing, connect(node) as sock:
        socket.send_fds(sock, [launch(**changes)], [nothing.fileno()] * 3)
        reply = framing.receive(sock, inbox)
    assert reply is not None
    assert "error" not in reply, reply
    news, orders = inbox.take_descriptors()
    try:
        while data := os.read(news, 1 << 16):
            inbox.feed(data)
            while (message := inbox.next()) is not None:
                parameters: Any = message["parameters"]
                yield parameters["event"]
    finally:
        os.close(news)
        os.close(orders)
