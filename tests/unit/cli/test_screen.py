"""Lists on a terminal and elsewhere: colours, pager, watching."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.client import screen
from nodectl.client.command import Failed
from nodectl.client.render import table
from nodectl.client.screen import painted

HEADER = ("JOB", "STATE", "NAME")
ROWS = [("7", "RUNNING", "a"), ("8", "PENDING", "bb"), ("9", "COMPLETED", "c")]
LINES = "import sys; from nodectl.client.screen import *; p = argparse.ArgumentParser(); add_screen_options(p);"
SHOW = f"{LINES} sys.exit(show(p.parse_args(sys.argv[1:]), lambda s: [str(s.width), *map(str, range(40))]))"


def test_states_are_coloured_and_columns_stand_as_without() -> None:
    plain = table.table(HEADER, ROWS)
    coloured = table.table(HEADER, ROWS, paint={"STATE": painted})
    assert coloured[0] == plain[0]
    assert coloured[1] == "7    \x1b[32mRUNNING\x1b[0m    a"
    assert coloured[3] == plain[3]
    for code in (32, 33):
        coloured = [line.replace(f"\x1b[{code}m", "").replace("\x1b[0m", "") for line in coloured]
    assert coloured == plain


def test_a_line_that_is_cut_within_a_state_ends_its_colour() -> None:
    assert table.table(HEADER, ROWS[:1], width=8, paint={"STATE": painted})[1] == "7    RU+"
    assert table.table(HEADER, ROWS[:1], width=13, paint={"STATE": painted})[1] == "7    \x1b[32mRUNNING\x1b[0m+"


@pytest.mark.parametrize(
    ("state", "colour"),
    [("RUNNING", 32), ("FAILED", 31), ("IDLE+DRAIN", 31), ("CANCELLED by 7", 35), ("COMPLETED", 0), ("", 0), ("?", 0)],
)
def test_a_colour_means_something(state: str, colour: int) -> None:
    assert painted(state) == (f"\x1b[{colour}m{state}\x1b[0m" if colour else state)


def at_terminal(*words: str, rows: int = 24, **variables: str) -> str:
    """What is shown on a terminal of 80 columns."""
    ours, theirs = os.openpty()
    os.set_blocking(ours, True)
    size = f"import fcntl, struct, termios; fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', {rows}, 80, 0, 0));"
    environment = {"PATH": "/usr/bin:/bin", "TERM": "xterm", **variables}
    with subprocess.Popen(
        [sys.executable, "-c", size + SHOW, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # all of its other end is closed
                break
            shown += data
    os.close(ours)
    assert process.returncode == 0
    return shown.decode()


def test_what_is_longer_than_the_terminal_goes_through_the_pager(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho paged $LESS; cat\n", encoding="utf-8")
    pager.chmod(0o755)
    paged = at_terminal(PAGER=str(pager))
    assert paged.startswith("paged FRX\r\n80\r\n0\r\n")
    assert paged.endswith("\r\n39\r\n")
    assert at_terminal(rows=60, PAGER=str(pager)).startswith("80\r\n")
    assert at_terminal("--no-pager", PAGER=str(pager)).startswith("80\r\n")
    assert at_terminal(PAGER="").startswith("80\r\n")
    assert at_terminal(PAGER="/no/such/pager").startswith("80\r\n")
    assert at_terminal(PAGER=str(pager), TERM="dumb").startswith("80\r\n")


def test_nothing_is_paged_or_cut_where_there_is_no_terminal() -> None:
    done = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("None\n0\n")


def test_what_is_watched_is_shown_again_until_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    answers: Iterator[list[str] | Failed] = iter([["first"], Failed("no service"), ["second"]])

    def make(_: screen.Screen) -> list[str]:
        answer = next(answers)
        if isinstance(answer, Failed):
            raise answer
        return answer

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert screen.show(argparse.Namespace(watch=0.5), make) == 0
    assert capsys.readouterr().out == "first\n\nno service\n\nsecond\n\n"
    assert slept == [0.5] * 3


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "soon", "1e9"])
def test_how_often_must_make_sense(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    screen.add_screen_options(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--watch", seconds])
    assert "no number of seconds from 0.1 to 86400" in capsys.readouterr().err
