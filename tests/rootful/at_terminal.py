"""A nodectl command at a terminal of its own, driven as by a person: keys go in, and what is shown is waited for."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rootful.node import PATIENCE, Node

INTERRUPT, SUSPEND, QUIT, END = "\x03", "\x1a", "\x1c", "\x04"
# Makes its standard input the terminal of a session of its own, then becomes its arguments.
LOGIN = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
ECHOES = termios.ECHO | termios.ICANON | termios.ISIG


class AtTerminal:
    """A process that leads a session at a terminal of `rows` and `columns`. `screen` is all that it has shown."""

    def __init__(
        self, argv: list[str], *, rows: int = 24, columns: int = 80, user: pwd.struct_passwd | None = None, **how: Any
    ) -> None:
        self.ours, self.theirs = os.openpty()
        if user is not None:
            os.fchown(self.theirs, user.pw_uid, -1)
            how |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self.resize(rows, columns)
        self.screen = ""
        self._seen = 0
        self.process = subprocess.Popen(
            [sys.executable, "-IS", "-c", LOGIN, *argv],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            start_new_session=True,
            **how,
        )

    def resize(self, rows: int, columns: int) -> None:
        """As a window that is dragged; the kernel tells the foreground."""
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: str) -> None:
        """As from the keyboard."""
        data = keys.encode()
        while data:
            data = data[os.write(self.ours, data) :]

    def line(self, text: str) -> None:
        """Types a line."""
        self.type(text + "\r")

    def wait_for(self, pattern: str, patience: float = PATIENCE) -> re.Match[str]:
        """Until this has been shown behind what was waited for before."""
        end = time.monotonic() + patience
        while (found := re.compile(pattern).search(self.screen, self._seen)) is None:
            assert time.monotonic() < end, f"not shown: {pattern!r}; but {self.screen[self._seen :][-2000:]!r}"
            has_ended = self.process.poll() is not None  # before the look: it may write and end at any time
            assert self.read(0.1) or not has_ended, (
                f"not shown before the end: {pattern!r}; but {self.screen[self._seen :][-2000:]!r}"
            )
        self._seen = found.end()
        return found

    def read(self, patience: float) -> bool:
        """Takes what is shown. False where that is nothing."""
        if not select.select([self.ours], [], [], patience)[0]:
            return False
        try:
            data = os.read(self.ours, 65536)
        except OSError:
            return False
        self.screen += data.decode(errors="replace")
        return True

    def wait_for_end(self, patience: float = PATIENCE) -> int:
        """The exit status, when it has ended and all has been shown."""
        end = time.monotonic() + patience
        while self.process.poll() is None:
            self.read(0.05)
            assert time.monotonic() < end, f"it does not end: {self.screen[-2000:]!r}"
        while self.read(0):
            pass
        return self.process.returncode

    def modes(self) -> list[Any]:
        """Of the terminal."""
        return termios.tcgetattr(self.theirs)

    def is_raw(self) -> bool:
        """True while every key is passed on and nothing is echoed."""
        return not self.modes()[3] & ECHOES

    def signal(self, number: int) -> None:
        """To the process."""
        self.process.send_signal(number)

    def close(self) -> None:
        """Ends what is left of it."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        for fd in (self.ours, self.theirs):
            os.close(fd)


@contextlib.contextmanager
def at_terminal(argv: list[str], **how: Any) -> Iterator[AtTerminal]:
    """Any command."""
    found = AtTerminal(argv, **how)
    try:
        yield found
    finally:
        found.close()


@contextlib.contextmanager
def run_at_terminal(node: Node, *words: str, user: pwd.struct_passwd | None = None, **how: Any) -> Iterator[AtTerminal]:
    """`nodectl run` with these words."""
    how.setdefault("env", node.environment({"TERM": "xterm", "PS1": "$ "}))
    with at_terminal(node.command("run", *words), user=user, cwd=str(node.scratch), **how) as found:
        yield found


def is_in_the_foreground(node: Node, name: str) -> bool:
    """Whether the terminal's keys are for the program of this name."""
    (pid,) = (pid for pid, found in node.processes() if found == name)
    facts = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    group, of_terminal = facts[2], facts[5]
    return group == of_terminal
