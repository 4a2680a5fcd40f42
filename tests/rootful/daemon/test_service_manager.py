"""A service manager that reads nothing for a while, and a daemon that has no descriptor left to tell it anything."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator

import pytest

from descriptors import no_number_left
from rootful.node import Node, wait_until

WATCHDOG_USEC = 40_000  # twice in which it is to be told


class Manager:
    """The socket of a service manager."""

    def __init__(self, node: Node) -> None:
        self.address = str(node.dir / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(self.address)

    def fill(self) -> None:
        """Leaves no room for another datagram."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as other:
            try:
                while True:
                    other.sendto(b"STATUS=full", self.address)
            except BlockingIOError:
                return

    def read(self) -> list[str]:
        """All that is there, without what `fill` has sent."""
        found = []
        try:
            while True:
                found.append(self._socket.recv(4096).decode())
        except BlockingIOError:
            return [state for state in found if state != "STATUS=full"]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def manager(node: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    made = Manager(node)
    environment = {**node.environment(), "NOTIFY_SOCKET": made.address, "WATCHDOG_USEC": str(WATCHDOG_USEC)}
    monkeypatch.setattr(node, "environment", lambda: environment)
    node.start()
    monkeypatch.undo()
    yield made
    made.close()


def told(manager: Manager, wanted: str) -> None:
    """Waits until this is among what the manager is told."""
    heard: list[str] = []

    def is_told() -> bool:
        heard.extend(manager.read())
        return any(state.startswith(wanted) for state in heard)

    wait_until(is_told, f"{wanted} is told")


def test_a_manager_that_reads_nothing_keeps_no_call_waiting(node: Node, manager: Manager) -> None:
    told(manager, "READY=1")
    manager.fill()
    for _ in range(20):  # among them the time for the watchdog comes more than once
        assert node.run("true").returncode == 0
    told(manager, "WATCHDOG=1")


def test_states_reach_a_manager_that_reads_later_in_their_order(node: Node, manager: Manager) -> None:
    told(manager, "READY=1")
    assert node.daemon is not None
    manager.fill()
    node.daemon.send_signal(signal.SIGHUP)
    heard: list[str] = []

    def has_both() -> bool:
        heard.extend(state.partition("\n")[0] for state in manager.read())
        return {"RELOADING=1", "READY=1"} <= set(heard)

    assert node.run("true").returncode == 0  # the signal came first

    wait_until(has_both, "both are told")
    assert [state for state in heard if state != "WATCHDOG=1"] == ["RELOADING=1", "READY=1"]


def test_a_daemon_without_a_descriptor_feeds_the_watchdog(node: Node, manager: Manager) -> None:
    told(manager, "READY=1")
    assert node.daemon is not None
    with no_number_left(node.daemon.pid):
        manager.read()
        told(manager, "WATCHDOG=1")
        manager.read()
        told(manager, "WATCHDOG=1")
