"""How far a play has got, in a line of a terminal: nowhere else, and gone at the end."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest

from nodectl.cli.main import main
from nodectl.lab import progress_line
from nodectl.lab.progress_line import ProgressLine

TRY = ["select", "try", "select/linear", "--nodes", "2*4c", "--generate", "40"]
CLEAR = "\r\x1b[K"


@contextmanager
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Our end of the terminal that stderr is; in the test itself, as pytest has a stderr of its own for each phase."""
    ours, theirs = os.openpty()
    monkeypatch.setenv("TERM", "vt100")
    with os.fdopen(theirs, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        yield ours
    os.close(ours)


def shown(ours: int, last: str) -> str:
    """What comes until that has come: a terminal takes its time."""
    text = ""
    while not text.endswith(last):
        text += os.read(ours, 65536).decode()
    return text


def test_a_play_tells_how_many_jobs_have_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_line, "_FIRST", 0.0)
    with at_terminal(monkeypatch) as terminal:
        assert main(TRY) == 0
        assert re.fullmatch(rf"({re.escape(CLEAR)}select/linear: \d+ of \d+ jobs have ended)+{re.escape(CLEAR)}",
                            shown(terminal, f"ended{CLEAR}"))  # fmt: skip
    assert "jobs have ended" not in capsys.readouterr().out


def test_what_is_done_soon_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    with at_terminal(monkeypatch) as terminal:
        with ProgressLine(lambda: now) as line:
            line.tell("soon")
            now = 2.0
            line.tell("late")
            line.tell("too often")
        assert shown(terminal, f"late{CLEAR}") == f"{CLEAR}late{CLEAR}"


def test_a_file_gets_none_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    stderr: TextIO
    with (tmp_path / "stderr").open("w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        line = ProgressLine(lambda: now)
        now = 60.0
        line.tell("late")
        line.hide()
    assert (tmp_path / "stderr").read_text() == ""
