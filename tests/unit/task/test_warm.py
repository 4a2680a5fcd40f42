"""What the warm interpreter reads of a task, and which programs it can be."""

from __future__ import annotations

import ast
import errno
import os
import socket
import sys
from pathlib import Path

import pytest

import descriptors
from nodectl.launch.task import warm
from nodectl.launch.task.warm import Declined, Taken, command_of, variables_of


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["python3", "a.py", "-u", "x"], (False, "", ["a.py", "-u", "x"])),
        (["python3", "-u", "-u", "a.py"], (True, "", ["a.py"])),
        (["python3", "-m", "json.tool", "-h"], (False, "-m", ["json.tool", "-h"])),
        (["python3", "-u", "-c", "pass", ""], (True, "-c", ["pass", ""])),
    ],
)
def test_program_of_words(words: list[str], wanted: tuple[bool, str, list[str]]) -> None:
    assert command_of(words) == wanted


@pytest.mark.parametrize(
    "words",
    [["python3"], ["python3", "-u"], ["python3", "-"], ["python3", "-c"], ["python3", "-m"], ["python3", "-O", "a.py"],
     ["python3", "-uc", "pass"], ["python3", "-I", "-c", "pass"], ["python3", "--version"]],
)  # fmt: skip
def test_programs_that_need_an_interpreter_of_their_own(words: list[str]) -> None:
    with pytest.raises(Declined, match=r"^options$"):
        command_of(words)


def test_variables_that_an_interpreter_reads_when_it_begins() -> None:
    given = {b"PYTHONPATH": b"a", b"LC_ALL": b"C", b"LANG": b"C", b"LD_PRELOAD": b"x", b"PATH": b"y", b"OMP": b"1"}
    assert variables_of(given).keys() == {b"PYTHONPATH", b"LC_ALL", b"LANG", b"LD_PRELOAD"}


TEXTS = (
    b"1 2 3 4", b"100", b"90", b"leads", b"18", b"5", b"10 12 ", b"", b"0 2 ", b"0 -1 -1 7 64 128 ", b"3",
    b"python3", b"a.py", b"", b"A=1=2", b"B=", b"\xff=\xfe",
)  # fmt: skip


def test_texts_of_a_task() -> None:
    taken = Taken(b"".join(text + b"\0" for text in TEXTS), [])
    assert (taken.identity, taken.pid, taken.group, taken.leads, taken.dies) == ((1, 2, 3, 4), 100, 90, True, False)
    assert (taken.umask, taken.nice, taken.blocked, taken.ignored, taken.cpus) == (18, 5, {10, 12}, set(), {0, 2})
    assert taken.limits == [(0, -1, -1), (7, 64, 128)]
    assert (taken.words, taken.rest) == (["python3", "a.py", ""], ["a.py", ""])
    assert taken.environment == {b"A": b"1=2", b"B": b"", b"\xff": b"\xfe"}


@pytest.mark.parametrize("count", range(len(TEXTS) - 6))
def test_texts_that_are_cut_off_are_refused(count: int) -> None:
    with pytest.raises((ValueError, IndexError, Declined)):
        Taken(b"".join(text + b"\0" for text in TEXTS[:count]), [])


def test_a_fork_that_fails_costs_the_interpreter_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """It serves all tasks of a step, and is asked for each of them."""

    def fail() -> int:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fail)
    ours, theirs = socket.socketpair()
    words, writer = os.pipe()
    with ours, theirs:
        interpreter = warm.Warm(os.dup(theirs.fileno()), writer)
        identity = " ".join(map(str, interpreter._identity)).encode()
        variables = tuple(name + b"=" + value for name, value in interpreter._variables.items())
        text = os.memfd_create("text")
        os.write(text, b"".join(one + b"\0" for one in (identity, *TEXTS[1:14], *variables)))
        with descriptors.none_left(), pytest.raises(OSError, match="unavailable"):
            interpreter._fork(warm.TAKEN, "1", "", [text, 0, 0, 0, 0, 0])
    for fd in (words, writer, text):
        os.close(fd)


def test_streams_are_those_of_a_new_interpreter() -> None:
    """Where nothing is a terminal: the rootful tests compare the others."""
    for number, name in enumerate(("<stdin>", "<stdout>", "<stderr>")):
        made = warm.stream(number, ("utf-8", "strict"), True)
        assert (made.name, made.mode, made.fileno()) == (name, "w" if number else "r", number)
        made.detach()  # type: ignore[attr-defined]  # a TextIOWrapper


def test_interpreter_runs_with_python_3_9_and_the_standard_library_alone() -> None:
    """The user's python3 executes the file, whatever version that is."""
    tree = ast.parse(Path(warm.__file__).read_text(encoding="utf-8"), feature_version=(3, 9))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).partition(".")[0])
    assert imported <= sys.stdlib_module_names
