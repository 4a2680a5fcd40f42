"""Directories for outputs: one of a process that lives is nobody else's, one of a dead one goes with the next."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodectl.bulk import private_directory
from nodectl.client.command import Failed


def test_what_a_dead_process_has_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    left, left_fd = private_directory.make([str(tmp_path)], "x-")
    lives, lives_fd = private_directory.make([str(tmp_path)], "x-")
    other, other_fd = private_directory.make([str(tmp_path)], "y-")
    (Path(left) / "1.out").write_text("output")
    (Path(lives) / "1.out").write_text("output")
    (tmp_path / "x-file").write_text("")
    (tmp_path / "x-link").symlink_to(other)
    os.close(left_fd)
    os.close(other_fd)
    mine, fd = private_directory.make([str(tmp_path)], "x-")
    private_directory.sweep(str(tmp_path), "x-")
    assert {path.name for path in tmp_path.iterdir()} == {
        Path(lives).name, Path(other).name, Path(mine).name, "x-file", "x-link",
    }  # fmt: skip
    assert (Path(lives) / "1.out").exists()
    assert Path(mine).stat().st_mode & 0o777 == 0o700
    os.close(lives_fd)
    os.close(fd)


def test_a_directory_in_which_somebody_still_works_stays(tmp_path: Path) -> None:
    left, fd = private_directory.make([str(tmp_path)], "x-")
    (Path(left) / "directory").mkdir()
    os.close(fd)
    private_directory.sweep(str(tmp_path), "x-")
    assert (Path(left) / "directory").exists()


def test_no_place_is_taken_in_which_others_may_swap_it(tmp_path: Path) -> None:
    """Who may write there puts a directory of the same name in its stead, with links for the commands' outputs."""
    open_to_all, shared = tmp_path / "open", tmp_path / "shared"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    shared.mkdir()
    shared.chmod(0o1777)
    (tmp_path / "link").symlink_to(open_to_all)
    for place in (open_to_all, tmp_path / "link"):
        with pytest.raises(Failed, match="others may change what is there"):
            private_directory.make([str(place)], "x-")
    found, fd = private_directory.make([str(open_to_all), str(shared)], "x-")
    assert Path(found).parent == shared
    os.close(fd)
    assert list(open_to_all.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives directories away")
@pytest.mark.parametrize("where", [".", "within"])
def test_root_takes_no_place_of_another_user_nor_one_within(tmp_path: Path, where: str) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "within").mkdir(parents=True)
    os.chown(theirs, 65534, 65534)
    with pytest.raises(Failed, match="others may change what is there"):
        private_directory.make([str(theirs / where)], "x-")
    backup = theirs / where / "x-0"  # root's own directory, which the user has renamed
    backup.mkdir(0o700)
    (backup / "precious").touch()
    private_directory.sweep(str(theirs / where), "x-")
    assert (backup / "precious").exists()


def test_a_directory_that_others_may_read_was_none_of_these(tmp_path: Path) -> None:
    other = tmp_path / "x-0"
    other.mkdir(0o755)
    (other / "precious").touch()
    private_directory.sweep(str(tmp_path), "x-")
    assert (other / "precious").exists()


def test_the_first_place_that_can_have_it_has_it(tmp_path: Path) -> None:
    found, fd = private_directory.make(["/no/such/place", str(tmp_path)], "x-")
    assert Path(found).parent == tmp_path
    os.close(fd)
    with pytest.raises(Failed, match=r"make /no/such/place/x-.*: No such file"):
        private_directory.make(["/no/such/place"], "x-")
