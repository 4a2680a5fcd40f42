"""`nodectl metrics` against a service that runs steps: as a text, as a file, on a socket."""

from __future__ import annotations

import contextlib
import http.client
import socket
import subprocess
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from rootful.hostile import as_user
from rootful.node import NOBODY, PATIENCE, Node, wait_until

SLOW = 100


def told(text: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
        for sample in family.samples
    }


class Unix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self._path)


def scraped(path: Path) -> str:
    connection = Unix(path)
    connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    return connection.getresponse().read().decode()


def test_numbers_are_those_of_what_ran(node: Node) -> None:
    before = told(node.nodectl("metrics", user=NOBODY).stdout)
    assert before["nodectl_jobs", "RUNNING"] == 0
    assert not any(name == "nodectl_steps_ended_total" for name, _ in before)
    assert node.run("-n2", "true", user=NOBODY).returncode == 0
    assert node.run("sh", "-c", "exit 3").returncode == 3
    wait_until(
        lambda: ("nodectl_steps_ended_total", "FAILED") in told(node.nodectl("metrics").stdout), "both are counted"
    )
    with node.popen("sleep", "1000") as running:
        wait_until(lambda: told(node.nodectl("metrics").stdout)["nodectl_steps_running", ""] == 1, "it runs")
        now = told(node.nodectl("metrics").stdout)
        running.terminate()
    assert (now["nodectl_steps_ended_total", "COMPLETED"], now["nodectl_steps_ended_total", "FAILED"]) == (1, 1)
    assert (now["nodectl_jobs", "RUNNING"], now["nodectl_launch_seconds_count", ""]) == (1, 2)
    assert now["nodectl_resident_memory_bytes", "daemon"] > 1 << 20
    assert now["nodectl_resident_memory_bytes", "forkserver"] > 1 << 20


def test_a_file_and_a_socket_say_the_same(node: Node) -> None:
    file, path = node.scratch / "nodectl.prom", node.scratch / "metrics.sock"
    assert node.nodectl("metrics", "--file", str(file), user=NOBODY).returncode == 0
    assert "nodectl_up 1.0\n" in file.read_text()
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))  # of one that was killed
    stale.close()
    with subprocess.Popen(node.command("metrics", "--listen", f"unix:{path}"), stderr=subprocess.PIPE) as server:
        wait_until(lambda: _answers(path), "it listens")
        assert told(scraped(path))["nodectl_up", ""] == 1
        node.stop()
        assert told(scraped(path)) == {("nodectl_up", ""): 0}
        node.start()
        assert told(scraped(path))["nodectl_up", ""] == 1
        server.terminate()
        assert server.wait() == 0
    assert not path.exists()
    refused = node.nodectl("metrics", "--listen", f"unix:{file}")
    assert refused.returncode == 1
    assert "is no socket" in refused.stderr


def test_a_user_who_asks_slowly_keeps_nobody_waiting(node: Node) -> None:
    path = node.scratch / "metrics.sock"

    def ask_slowly() -> None:
        for _ in range(SLOW):
            sock = socket.socket(socket.AF_UNIX)
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):  # as many as are let in
                sock.connect(str(path))
            sock.detach()

    with subprocess.Popen(node.command("metrics", "--listen", f"unix:{path}")) as server:
        try:
            wait_until(lambda: _answers(path), "it listens")
            with as_user(ask_slowly):
                wait_until(lambda: _answers(path), "it answers all the same")
        finally:
            server.terminate()


def _answers(path: Path) -> bool:
    try:
        return bool(scraped(path))
    except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
        return False
