"""The flight recorder's end: a trace lies in memory, so it does not grow for ever."""

from __future__ import annotations

import os
import time
from pathlib import Path

from nodectl.kernel import _kernel

MOST = 16 << 20


def write(fd: int) -> bool:
    return _kernel.write_row(fd, time.monotonic_ns(), '"call":"x"', "0", "")


def test_trace_ends_for_all_processes_of_a_step_at_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "1.0.trace"
    path.write_bytes(b"\n" * (MOST - 4000))
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if write(fd) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    size = path.stat().st_size
    assert MOST - 4000 < size <= MOST
    while write(fd):
        assert path.stat().st_size <= MOST
    assert path.stat().st_size > MOST - 4096
    os.close(fd)


def test_a_step_has_a_room_of_its_own_for_its_trace_in_all_its_processes(tmp_path: Path) -> None:
    path = tmp_path / "1.0.trace"
    pid = os.fork()
    if pid == 0:
        _kernel.limit_trace(4096)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        child = os.fork()
        while write(fd):
            """Both write as long as there is room."""
        if child:
            os.waitpid(child, 0)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert 2048 < path.stat().st_size <= 4096 + 1024  # a line of the other's may come between look and write


def test_trace_that_is_no_file_has_no_end() -> None:
    reader, writer = os.pipe()
    assert write(writer)
    assert os.read(reader, 65536).endswith(b"}\n")
    os.close(reader)
    os.close(writer)
