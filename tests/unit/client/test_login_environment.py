"""The environment of a login: what profiles print, do and leave behind costs nobody a submission."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nodectl.client import login_environment, waiting

Login = Callable[..., dict[str, str]]


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Login:
    """The environment by the login shell whose profile is this, of what `start` adds."""

    def load(profile: str, seconds: float = 60, **start: str) -> dict[str, str]:
        shell = tmp_path / "shell"
        shell.write_text(f'#!/bin/sh\n{profile}\nexec /bin/sh "$@"\n', encoding="utf-8")
        shell.chmod(0o755)
        account = {"HOME": str(tmp_path), "USER": "u", "LOGNAME": "u", "SHELL": str(shell), "PATH": "/usr/bin:/bin"}
        monkeypatch.setattr(login_environment, "_of_account", lambda: account)
        return login_environment.with_login(start, waiting.say, seconds)

    return load


def test_profiles_add_to_it_and_what_the_script_was_given_stays(login: Login) -> None:
    found = login("echo welcome; echo A=no; export PATH=/opt/bin:$PATH LINES='1\n2' MINE=profile", MINE="script")
    assert found["PATH"] == "/opt/bin:/usr/bin:/bin"
    assert (found["LINES"], found["MINE"]) == ("1\n2", "script")
    assert not {"A", "PWD", "TERM", "SHLVL", "_"} & found.keys()


@pytest.mark.parametrize(
    ("profile", "seconds", "why"),
    [
        ("exit 1", 60, "it ended before"),
        ("exec sleep 1000", 0, "it took too long (--get-user-env=SECONDS gives it more time)"),
        ("exec yes", 60, "it printed too much"),
    ],
)
def test_a_login_that_tells_nothing_costs_a_line(
    login: Login, capfd: pytest.CaptureFixture[str], profile: str, seconds: float, why: str
) -> None:
    found = login(profile, seconds, MINE="script")
    assert (found["USER"], found["PATH"], found["MINE"]) == ("u", "/usr/bin:/bin", "script")
    assert why in capfd.readouterr().err


def test_a_missing_shell_costs_a_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    account = {"HOME": "/nonexistent", "USER": "u", "LOGNAME": "u", "SHELL": "/nonexistent", "PATH": "/bin"}
    monkeypatch.setattr(login_environment, "_of_account", lambda: account)
    assert login_environment.with_login({}, waiting.say)["HOME"] == "/nonexistent"
    assert "No such file or directory" in capfd.readouterr().err


def test_nobody_waits_for_what_a_profile_leaves_with_its_output_open(login: Login, tmp_path: Path) -> None:
    found = login(f"sleep 1000 & echo $! > {tmp_path}/pid; export A=1")
    assert found["A"] == "1"
    os.kill(int((tmp_path / "pid").read_text(encoding="ascii")), 9)  # it is still there


def test_all_that_a_profile_waits_for_ends_with_its_time(login: Login, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    login(f"exec 3> {fifo}; sleep 1000 | sleep 1000", 0.0)
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b"", "all who had it open are gone"
    os.close(reader)
