"""The holder of a cluster: what is no reason for it to end, since all agents end with it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ENOUGH = 20.0  # seconds, for a machine that is busy
HOLDER = """
import json, os, resource, sys
from nodectl.cluster.engine.engine import Nodes, begin
from nodectl.cluster.start.holder import Holder, become

class Engine:
    def start(self, nodes, words):
        return [begin([*words, str(rank)], {"PATH": os.environ["PATH"]}, (rank,)) for rank, _ in enumerate(nodes.names)]
    def cancel(self, nodes):
        pass
    def why(self, name, said):
        return said

class Place:
    socket, remove = sys.argv[1], staticmethod(lambda: None)

told, count, soft, hard = map(int, sys.argv[2:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
nodes = Nodes(7, tuple(f"n{rank}" for rank in range(count)))
agent = "echo a line for people >&2; read secret; echo joined $0; read end"
become(Holder(Engine(), nodes, bytes(32), Place, told), ["sh", "-c", agent])
"""


@contextlib.contextmanager
def held(place: Path, count: int, soft: int, hard: int, log: str = "/dev/null") -> Iterator[str]:
    """A holder of so many agents, once all have joined: its socket."""
    reader, told = os.pipe()
    path = str(place / "sock")
    words = [sys.executable, "-P", "-c", HOLDER, path, str(told), str(count), str(soft), str(hard)]
    with open(log, "wb") as stderr:
        holder = subprocess.Popen(words, stderr=stderr, pass_fds=[told], stdin=subprocess.DEVNULL)
    os.close(told)
    try:
        with open(reader, encoding="ascii") as lines:
            joined: set[str] = set()
            while len(joined) < count:
                line = lines.readline()
                assert line, "it has ended"
                joined |= {name for name in [json.loads(line).get("joined")] if name}
            yield path
            answer = ask(path, b"stop\n")
            assert answer == b""
            assert holder.wait(ENOUGH) == 0
    finally:
        holder.kill()
        holder.wait()


def visit(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(ENOUGH)
    sock.connect(path)
    return sock


def ask(path: str, word: bytes) -> bytes:
    with visit(path) as sock:
        sock.sendall(word)
        return sock.recv(1 << 16)


def test_a_log_on_a_full_disk_does_not_end_it(tmp_path: Path) -> None:
    with held(tmp_path, 2, 64, 64, log="/dev/full") as path:
        assert json.loads(ask(path, b"status\n"))["joined"] == ["n0", "n1"]


def test_it_holds_more_hosts_than_the_usual_limit_has_descriptors_for(tmp_path: Path) -> None:
    with held(tmp_path, 12, 32, 256) as path:
        assert len(json.loads(ask(path, b"status\n"))["joined"]) == 12


def test_visitors_for_whom_no_descriptor_is_left_wait(tmp_path: Path) -> None:
    with held(tmp_path, 1, 14, 14) as path, contextlib.ExitStack() as visitors:
        all_of_them = [visitors.enter_context(visit(path)) for _ in range(8)]
        all_of_them[-1].sendall(b"status\n")
        assert not select.select(all_of_them, [], [], 0.5)[0], "nobody was turned away, and the last one waits"
        for sock in all_of_them[:-1]:
            sock.close()
        assert json.loads(all_of_them[-1].recv(1 << 16))["joined"] == ["n0"]
