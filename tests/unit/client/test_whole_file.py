"""Files that a command writes at one go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.client import whole_file


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_it_takes_the_place_of_a_planted_link(tmp_path: Path, directory: int) -> None:
    (tmp_path / "victim").write_text("precious", encoding="utf-8")
    (tmp_path / "file").symlink_to("victim")
    whole_file.write(directory, "file", 0o750, [b"one ", b"two"])
    assert (tmp_path / "victim").read_text(encoding="utf-8") == "precious"
    assert (tmp_path / "file").read_bytes() == b"one two"
    assert (tmp_path / "file").lstat().st_mode & 0o777 == 0o750


def test_what_could_not_be_read_leaves_all_as_it_was(tmp_path: Path, directory: int) -> None:
    def read() -> Iterator[bytes]:
        yield b"begun"
        raise OSError("it cannot be read")

    (tmp_path / "file").write_bytes(b"before")
    with pytest.raises(OSError, match="it cannot be read"):
        whole_file.write(directory, "file", 0o755, read())
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"before"


def test_a_synced_file_is_whole_on_the_disk_before_it_takes_the_place_of_the_old_one(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[object] = []
    monkeypatch.setattr(os, "fsync", lambda fd: happened.append((os.fstat(fd).st_ino, os.fstat(fd).st_size)))
    rename = os.rename

    def renamed(*names: Any, **how: Any) -> None:
        happened.append("renamed")
        rename(*names, **how)

    monkeypatch.setattr(os, "rename", renamed)
    whole_file.write(directory, "file", 0o600, [b"one ", b"two"], synced=True)
    file, at = (tmp_path / "file").stat(), tmp_path.stat()
    assert happened == [(file.st_ino, len("one two")), "renamed", (at.st_ino, at.st_size)]
