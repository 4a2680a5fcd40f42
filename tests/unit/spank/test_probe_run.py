"""The directory of a probe run, where other runs begin at the same time."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from nodectl.lab.spank import probe_run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(probe_run, "_RUN", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[str], None]) -> list[str]:
    """Once a first directory is made, and before anything else is done, `act` is what another process does. Returns
    the directories that are made.
    """
    make, made = tempfile.mkdtemp, list[str]()

    def mkdtemp(*, prefix: str, dir: str | None) -> str:  # noqa: A002  # as it is called
        made.append(make(prefix=prefix, dir=dir))
        if len(made) == 1:
            act(made[0])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    return made


def test_a_directory_that_another_run_removes_before_it_is_locked_is_made_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = between(monkeypatch, lambda _: probe_run._remove_dead())
    with probe_run.directory() as path:
        assert os.path.isdir(path)
        assert made == [made[0], path]
    assert not list(run.iterdir())


def test_a_directory_that_another_run_is_about_to_remove_is_not_used(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    def lock(path: str) -> None:
        held.append(os.open(path, os.O_RDONLY))
        fcntl.flock(held[0], fcntl.LOCK_EX)

    made = between(monkeypatch, lock)
    with probe_run.directory() as path:
        assert made == [made[0], path]
        os.close(held[0])
        probe_run._remove_dead()
        assert [str(one) for one in run.iterdir()] == [path]
