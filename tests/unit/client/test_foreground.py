"""A command in the foreground of a terminal: it reads there, has its signals to itself, and gives the terminal back."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import sysconfig
import time

import pytest

CODE = """
import sys; sys.path[:0] = [{path!r}]
import os, signal, time
from nodectl.client.foreground import Foreground
signal.signal(signal.SIGCHLD, lambda *_: None)
signal.signal(signal.SIGINT, lambda *_: print("ours", flush=True))
one = Foreground(sys.argv[1:], os.environ)
while not one.look():
    signal.sigtimedwait([], 0.05)
print("status", one.status, "front", os.tcgetpgrp(0) == os.getpgrp(), flush=True)
"""
PATIENCE = 45


class Terminal:
    """The user's end of a terminal in which a command runs."""

    def __init__(self, *words: str) -> None:
        code = CODE.format(path=sysconfig.get_paths()["purelib"])
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(sys.executable, [sys.executable, "-ISc", code, *words])
        self.said = ""

    def until(self, word: str) -> None:
        end = time.monotonic() + PATIENCE
        while word not in self.said:
            ready, _, _ = select.select([self.fd], [], [], max(end - time.monotonic(), 0))
            assert ready, self.said
            self.said += os.read(self.fd, 4096).decode()

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def end(self) -> None:
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def test_a_command_reads_from_the_terminal_and_gives_it_back() -> None:
    terminal = Terminal("sh", "-c", "echo ready; read x; echo got $x; exit 3")
    terminal.until("ready")
    terminal.type("it\n")
    terminal.until("status 3 front True")
    assert "got it" in terminal.said
    terminal.end()


def test_an_interrupt_of_the_terminal_is_the_commands_alone() -> None:
    terminal = Terminal("sh", "-c", "trap 'exit 7' INT; echo ready; while :; do sleep 0.1; done")
    terminal.until("ready")
    terminal.type("\x03")
    terminal.until("status 7 front True")
    assert "ours" not in terminal.said
    terminal.end()


@pytest.mark.parametrize(
    ("words", "status"), [(["/nonexistent"], 127), (["/etc"], 126), (["sh", "-c", "kill -9 $$"], 137)]
)
def test_an_end_without_an_exit_code_is_told_as_a_shell_does(words: list[str], status: int) -> None:
    code = CODE.format(path=sysconfig.get_paths()["purelib"]).replace("os.tcgetpgrp(0) == os.getpgrp()", "True")
    done = subprocess.run(
        [sys.executable, "-ISc", code, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert f"status {status} front True" in done.stdout
