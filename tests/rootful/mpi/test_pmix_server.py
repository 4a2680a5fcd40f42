"""The processes of a PMIx server, whose library may be held up."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from needs import lacks_library, need
from nodectl.mpi import own_server
from rootful.mpi_programs import SOURCES
from rootful.node import wait_until

pytestmark = [pytest.mark.rootful, pytest.mark.skipif(lacks_library("libpmix.so.2"), reason="no libpmix here")]


PLACES = (Path("/tmp"), Path("/dev/shm"))


def directories() -> set[Path]:
    """The directories of servers of root's. Other tests run theirs as users."""
    found = set()
    for path in [path for place in PLACES for path in place.glob("nodectl-mpi-*")]:
        with contextlib.suppress(FileNotFoundError):  # another test's, removed meanwhile
            if path.lstat().st_uid == 0:
                found.add(path)
    return found


class Server:
    """A server of a step of one task, and the stepd's ends of its pipes."""

    def __init__(self, environment: dict[str, str]) -> None:
        made = own_server("pmix_server", announces=True)
        life, self.life = os.pipe()
        self.words, words = os.pipe()
        step = {"TASKS": "1", "JOB": "1.0", "LIFE": str(life), "WORDS": str(words)}
        given = {f"NODECTL_MPI_{name}": text for name, text in step.items()}
        self.before = directories()
        self.process = subprocess.Popen(
            made.argv, env={**made.environment, **given, **environment}, pass_fds=(life, words)
        )
        os.close(life)
        os.close(words)

    def said(self) -> list[str]:
        """The server's words until it is ready, or has ended."""
        words = b""
        while not words.endswith(b"ready\n"):
            assert select.select([self.words], [], [], 60)[0], "the server has said something"
            if not (more := os.read(self.words, 4096)):
                break
            words += more
        return words.decode().splitlines()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Server, int]]:
    """A server whose library's initialization waits for a connection, and the port."""
    need("cc")
    library, port = tmp_path / "held.so", tmp_path / "port"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SOURCES / "held.c"], check=True)
    server = Server({"LD_PRELOAD": str(library), "HELD_PORT": str(port)})
    try:
        wait_until(port.exists, "the library listens")
        yield server, int(port.read_text())
    finally:
        if server.life >= 0:
            os.close(server.life)
        server.process.wait(timeout=60)
        os.close(server.words)


def test_a_stranger_holds_up_no_server_that_begins(held: tuple[Server, int]) -> None:
    server, port = held
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        assert server.said()[-1] == "ready"
        assert stranger.recv(1) == b"", "the stranger is cut off"


def test_a_server_whose_library_is_held_up_ends_with_its_step_and_leaves_nothing(held: tuple[Server, int]) -> None:
    server, _ = held
    assert directories() > server.before
    os.close(server.life)
    server.life = -1
    assert server.process.wait(timeout=60) == 1
    assert directories() == server.before
