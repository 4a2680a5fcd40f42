"""The holder of a cluster: what is no reason for it to end, since all agents end with it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
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
    kills = True
    def start(self, nodes, words):
        if words[0] != "sh":  # the sweeper
            with open(sys.argv[1] + ".swept", "a") as file:
                print(*nodes.names, words[-1].count("agent.sweeper"), file=file)
            return [begin(["true"], {"PATH": os.environ["PATH"]}, range(len(nodes.names)))]
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
def begun(place: Path, count: int, soft: int, hard: int, log: str = "/dev/null") -> Iterator[subprocess.Popen[bytes]]:
    """A holder of so many agents, once all have joined; its socket is `sock`."""
    reader, told = os.pipe()
    words = [sys.executable, "-P", "-c", HOLDER, str(place / "sock"), str(told), str(count), str(soft), str(hard)]
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
            yield holder
    finally:
        holder.kill()
        holder.wait()


@contextlib.contextmanager
def held(place: Path, count: int, soft: int, hard: int, log: str = "/dev/null") -> Iterator[str]:
    """The socket of such a one, which is told to stop at the end."""
    with begun(place, count, soft, hard, log) as holder:
        yield str(place / "sock")
        assert ask(str(place / "sock"), b"stop\n") == b""
        assert holder.wait(ENOUGH) == 0


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


def test_it_sweeps_where_what_kept_the_agents_has_died(tmp_path: Path) -> None:
    with begun(tmp_path, 2, 64, 64) as holder:
        for child in Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        assert holder.wait(ENOUGH) == 0
    assert (tmp_path / "sock.swept").read_text() == "n0 n1 1\n"


def test_it_does_not_where_it_has_ended_them(tmp_path: Path) -> None:
    with held(tmp_path, 2, 64, 64):
        pass
    assert not (tmp_path / "sock.swept").exists()
