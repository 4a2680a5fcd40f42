"""What hooks write to stderr, read while others write it, and what is left of it when its reader dies."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl import messages
from nodectl.launch.stepd import plugin_output
from nodectl.launch.stepd.plugin_output import PluginOutput, log_rest

STDERR = 2
# Children of a hook that write on their own, and say so by their end.
WRITER = "import os\nfor number in range({lines}): os.write(2, b'%d of {name}\\n' % number)"


@contextlib.contextmanager
def output(tmp_path: Path) -> Iterator[PluginOutput]:
    """As this process's stderr. No fixture: pytest captures anew when a test begins."""
    before = os.dup(STDERR)
    directory = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    made = PluginOutput(directory, "1.0")
    try:
        yield made
    finally:
        os.dup2(before, STDERR)
        for fd in (before, directory, *made.private()):
            os.close(fd)


def logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(messages, "to_log", lambda line, *_, **__: said.append(line))
    log_rest(f"{tmp_path}/1.0")
    return said


def test_no_line_is_lost_that_is_written_while_others_are_read(tmp_path: Path) -> None:
    with output(tmp_path) as read:
        names, lines = "abc", 20_000
        writers = [
            subprocess.Popen([sys.executable, "-IS", "-c", WRITER.format(lines=lines, name=name)]) for name in names
        ]
        taken: list[str] = []
        while any(writer.poll() is None for writer in writers):
            taken += read.take()
        while more := read.take():
            taken += more
        assert [writer.returncode for writer in writers] == [0] * len(names)
        told = sum(int(line.split()[2]) for line in taken if line.startswith("... and "))
        whole = sum(len(f"{number} of a\n") for number in range(lines)) * len(names)
        assert sum(len(line) + 1 for line in taken if not line.startswith("... and ")) + told >= whole


def test_each_line_is_taken_once(tmp_path: Path) -> None:
    with output(tmp_path) as read:
        os.write(STDERR, b"one\ntwo\n")
        assert read.take() == ["one", "two"]
        assert read.take() == []
        os.write(STDERR, b"three")
        assert read.take() == ["three"]


def test_file_of_a_chatty_plugin_stays_small(tmp_path: Path) -> None:
    with output(tmp_path) as read:
        for _ in range(100):
            os.write(STDERR, b"x" * 60_000 + b"\n")
            assert read.take() == ["x" * 60_000]
        assert (tmp_path / "1.0.stderr").stat().st_size <= plugin_output._LONGEST + 2 * 60_001


def test_of_much_at_once_the_beginning_is_told_and_how_much_more(tmp_path: Path) -> None:
    with output(tmp_path) as read:
        os.write(STDERR, b"y" * 100_000)
        assert read.take() == ["y" * 65_536, f"... and {100_000 - 65_536} bytes more"]
        assert read.take() == []


def test_what_was_not_taken_when_the_stepd_died_is_logged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with output(tmp_path) as read:
        os.write(STDERR, b"told\n")
        read.take()
        os.write(STDERR, b"not told\n")
        assert logged(tmp_path, monkeypatch) == ["nodectl stepd: step 1.0: not told"]
        assert logged(tmp_path, monkeypatch) == []
        os.write(STDERR, b"of a task that lives on\n")
        assert logged(tmp_path, monkeypatch) == ["nodectl stepd: step 1.0: of a task that lives on"]


def test_file_of_an_older_stepd_is_logged_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "1.0.stderr").write_text("from before the update\n")
    assert logged(tmp_path, monkeypatch) == ["nodectl stepd: step 1.0: from before the update"]


def test_plugin_that_empties_its_stderr_loses_what_it_wrote_alone(tmp_path: Path) -> None:
    with output(tmp_path) as read:
        os.write(STDERR, b"gone\n")
        os.ftruncate(STDERR, 0)
        assert read.take() == []
        os.write(STDERR, b"long enough to be seen again\n")
        assert read.take() != []


def test_a_line_that_comes_between_the_look_at_the_size_and_the_read_is_taken_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with output(tmp_path) as read:
        os.write(STDERR, b"one\n")
        real = os.pread

        def late(*arguments: int) -> bytes:
            os.write(STDERR, b"two\n")
            return real(*arguments)

        with monkeypatch.context() as patched:
            patched.setattr(os, "pread", late)
            assert read.take() == ["one"]
        assert read.take() == ["two"]
