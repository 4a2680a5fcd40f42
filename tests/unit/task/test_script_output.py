"""The output of a batch script, opened by its task: the directory may still be missing, and may never come."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodectl.kernel import _kernel, operations

NOWHERE = -1, -1, 0, "", memoryview(bytearray(2)), 0, 1
PROGRAM = [
    operations.environment({}),
    operations.argv(["echo", "there"]),
    operations.execute(["/bin/echo"], is_path=True, what="execute: ", behind=""),
]


def started(path: Path, *, of_script: bool) -> tuple[int, object]:
    """A task that prints into this file: its pid, and what must be kept until it has ended."""
    output = operations.stream(1, -1, str(path), shared=False, of_script=of_script, what="open: ", behind="")
    return _kernel.start([output, *PROGRAM], NOWHERE, -1)


def _state(pid: int) -> str:
    """S: it sleeps, as nothing but the wait for a directory lets it. Z: it has ended."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


def stopped_while_it_waits(start: Callable[[], tuple[int, object]]) -> Iterator[tuple[int, object]]:
    """Tasks, until one was stopped before it gave up waiting: however slow the machine is, one is."""
    while True:
        pid, memory = start()
        while _state(pid) not in "SZ":
            pass
        os.kill(pid, signal.SIGSTOP)
        _, status = os.waitpid(pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            yield pid, memory


def test_a_script_waits_for_the_directory_that_its_client_is_about_to_make(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "7" / "out"
    pid, memory = next(stopped_while_it_waits(lambda: started(path, of_script=True)))
    path.parent.mkdir(parents=True)
    os.kill(pid, signal.SIGCONT)
    assert os.waitpid(pid, 0)[1] == 0
    del memory
    assert path.read_text(encoding="utf-8") == "there\n"


def test_a_script_without_its_output_ends_as_slurms_does(tmp_path: Path) -> None:
    pid, memory = started(tmp_path / "none" / "out", of_script=True)
    assert os.waitpid(pid, 0)[1] == 53
    del memory


def test_a_script_does_not_wait_for_what_it_may_not_open(tmp_path: Path) -> None:
    pid, memory = started(tmp_path, of_script=True)
    assert os.waitpid(pid, 0)[1] == 53
    del memory


@pytest.mark.parametrize("name", ["none/out", "."])
def test_any_other_task_ends_with_status_1(tmp_path: Path, name: str) -> None:
    pid, memory = started(tmp_path / name, of_script=False)
    assert os.waitpid(pid, 0)[1] == 1 << 8
    del memory
