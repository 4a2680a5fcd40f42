"""What a task prolog may say to its task, and how scripts are run."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import descriptors
from nodectl.launch.confine import scripts


@pytest.mark.parametrize(
    ("output", "environment", "printed"),
    [
        (b"", {"A": "1"}, b""),
        (b"print hello world\n", {"A": "1"}, b"hello world\n"),
        (b"print   spaced\n", {"A": "1"}, b"spaced\n"),
        (b"print\n", {"A": "1"}, b"\n"),
        (b"print no newline", {"A": "1"}, b"no newline\n"),
        (b"export B=2\n", {"A": "1", "B": "2"}, b""),
        (b"export A=new value with spaces\n", {"A": "new value with spaces"}, b""),
        (b"export  B=2\n", {"A": "1", "B": "2"}, b""),
        (b"export B=x=y\n", {"A": "1", "B": "x=y"}, b""),
        (b"export B=\n", {"A": "1", "B": ""}, b""),
        (b"export B\n", {"A": "1"}, b""),
        (b"export =x\n", {"A": "1"}, b""),
        (b"export B=a\0b\n", {"A": "1"}, b""),
        (b"export B=\xff\n", {"A": "1", "B": "\udcff"}, b""),
        (b"unset A\n", {}, b""),
        (b"unset A \n", {}, b""),
        (b"unset NOSUCH\n", {"A": "1"}, b""),
        (b" export B=2\n", {"A": "1"}, b""),  # only at the start of a line
        (b"exported B=2\nprinting\nunsetA\nprinted x\n", {"A": "1"}, b""),
        (b"print 1\nexport B=2\nnoise\nunset A\nprint 2\n", {"B": "2"}, b"1\n2\n"),
        (b"export A=2\nunset A\nexport A=3\n", {"A": "3"}, b""),
    ],
)
def test_lines_are_obeyed_in_order(output: bytes, environment: dict[str, str], printed: bytes) -> None:
    found = {"A": "1"}
    assert scripts.apply_prolog(output, found) == printed
    assert found == environment


def script(directory: Path, text: str) -> str:
    path = directory / "script"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


PATH = {"PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("text", "status", "output"),
    [
        ("echo out; echo err >&2", 0, b"out\nerr\n"),
        ("exit 3", 3, b""),
        ("kill -9 $$", 1, b""),
        ("echo $X", 0, b"x\n"),
        ("head -c 3000000 /dev/zero; echo done >&2", 0, None),
    ],
)
def test_a_script_gives_its_status_and_output(tmp_path: Path, text: str, status: int, output: bytes | None) -> None:
    found = scripts.run(script(tmp_path, text), {**PATH, "X": "x"})
    assert found[0] == status
    assert output is None or found[1] == output
    assert len(found[1]) < 2 << 20


@pytest.mark.parametrize(
    "text", ["sleep 60", "while :; do echo chatter; done", "sleep 60 & wait", "trap '' TERM; sleep 60"]
)
def test_a_script_ends_when_its_time_is_over_whatever_it_does(tmp_path: Path, text: str) -> None:
    started = time.monotonic()
    status, _ = scripts.run(script(tmp_path, text), PATH, timeout=0.3)
    assert status == 1
    assert time.monotonic() - started < 30


def test_a_script_that_has_not_begun_when_its_time_is_over_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_group = os.setpgid
    # The script's process stands still before it makes its group.
    monkeypatch.setattr(os, "setpgid", lambda pid, group: set_group(pid, group) if pid else time.sleep(3600))
    status, output = scripts.run(script(tmp_path, "sleep 1000"), {}, timeout=0.01)
    assert (status, output) == (1, b"")


def test_what_a_script_leaves_behind_is_ended_and_not_waited_for(tmp_path: Path) -> None:
    started = time.monotonic()
    status, output = scripts.run(script(tmp_path, "sleep 60 & echo $!"), PATH)
    assert status == 0
    assert time.monotonic() - started < 30
    deadline = time.monotonic() + 30
    while alive(int(output)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("path", ["/no/such/script", "/"])
def test_a_script_that_cannot_be_run_has_the_shells_status_for_that(path: str) -> None:
    assert scripts.run(path, PATH)[0] == 127


def test_a_script_starts_with_default_signals(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        status, output = scripts.run(script(tmp_path, "grep -E 'Sig(Ign|Blk)' /proc/self/status"), PATH)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert status == 0
    assert [int(line.split()[1], 16) for line in output.splitlines()] == [0, 0]


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    with descriptors.none_left():
        scripts.run(script(tmp_path, "echo x"), PATH)
