"""Directories for outputs: one of a process that lives is nobody else's, one of a dead one goes with the next."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodectl.client.bulk import private_directory
from nodectl.client.command import Failed


def test_what_a_dead_process_has_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    left, left_fd = private_directory.make([str(tmp_path)], None, "x-")
    lives, lives_fd = private_directory.make([str(tmp_path)], None, "x-")
    other, other_fd = private_directory.make([str(tmp_path)], None, "y-")
    (Path(left) / "1.out").write_text("output")
    (Path(lives) / "1.out").write_text("output")
    (tmp_path / "x-file").write_text("")
    (tmp_path / "x-link").symlink_to(other)
    os.close(left_fd)
    os.close(other_fd)
    mine, fd = private_directory.make([str(tmp_path)], None, "x-")
    private_directory.sweep(str(tmp_path), "x-")
    assert {path.name for path in tmp_path.iterdir()} == {
        Path(lives).name, Path(other).name, Path(mine).name, "x-file", "x-link",
    }  # fmt: skip
    assert (Path(lives) / "1.out").exists()
    assert Path(mine).stat().st_mode & 0o777 == 0o700
    os.close(lives_fd)
    os.close(fd)


def test_a_directory_in_which_somebody_still_works_stays(tmp_path: Path) -> None:
    left, fd = private_directory.make([str(tmp_path)], None, "x-")
    (Path(left) / "directory").mkdir()
    os.close(fd)
    private_directory.sweep(str(tmp_path), "x-")
    assert (Path(left) / "directory").exists()


def test_the_first_place_that_can_have_it_has_it(tmp_path: Path) -> None:
    found, fd = private_directory.make(["/no/such/place", str(tmp_path)], None, "x-")
    assert Path(found).parent == tmp_path
    os.close(fd)
    with pytest.raises(Failed, match=r"make /no/such/place/x-.*: No such file"):
        private_directory.make(["/no/such/place"], None, "x-")
