"""A user who attacks the service harms nobody else, and does not keep it from being restarted."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import time
from pathlib import Path

import pytest

from rootful.hostile import as_user, lingering
from rootful.raw import call
from vm import service
from vm.service import UNIT

pytestmark = pytest.mark.all

SOCKET = "/run/nodectl/nodectl.sock"
CROWD = 60
_SECONDS = 300  # at most
_PAUSE = 0.05
_LONGEST_BUFFER = 1 << 20


def attack(fds: list[int], until: Path) -> None:
    """As the user: connections with descriptors that nobody can close, with half a message, with millions of values."""
    if os.fork():
        return
    end = time.monotonic() + _SECONDS
    kept: list[socket.socket] = []
    values = b'{"method":"org.nodectl.Launch","parameters":{"request":[' + b"[]," * 50_000 + b"[]]}}\0"
    while time.monotonic() < end and not until.exists():
        sock = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            sock.settimeout(1)
            sock.connect(SOCKET)
            turn = len(kept) % 3
            data = (call("org.nodectl.Hello"), b'{"half', values)[turn]
            socket.send_fds(sock, [data[:_LONGEST_BUFFER]], fds)
            kept.append(sock)
        if len(kept) > CROWD:
            kept.pop(0).close()
            time.sleep(_PAUSE)  # the machine is emulated; what counts is what hangs
    os._exit(0)


def test_the_service_serves_others_and_restarts_while_a_user_attacks(tmp_path: Path) -> None:
    bob = pwd.getpwnam("bob")
    until = tmp_path / "over"
    tmp_path.chmod(0o755)
    for directory in tmp_path.parents[:2]:
        directory.chmod(0o755)
    began = service.since()
    with lingering() as make:
        mine = [make() for _ in range(4)]
        try:
            with as_user(lambda: attack(mine, until), bob.pw_uid, bob.pw_gid):
                for fd in mine:
                    os.close(fd)
                for _ in range(3):
                    assert service.nodectl("run", "echo", "served", user="alice") == "served\n"
                    service.systemctl("restart", UNIT)
                    assert service.is_active()
                assert service.nodectl("run", "echo", "served", user="alice") == "served\n"
        finally:
            until.touch()
    log = service.logged(began)
    assert "Watchdog timeout" not in log
    assert "stop-sigterm" not in log  # systemd's word for a daemon that does not end
    assert service.nodectl("run", "echo", "served", user="bob") == "served\n"
