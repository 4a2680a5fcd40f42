"""Where root's command may keep outputs: nowhere that another user could lead it elsewhere from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodectl.client.safe_way import stranger_on

OTHER = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes things that belong to others")


def made(path: Path, owner: int = 0, mode: int = 0o755) -> Path:
    path.mkdir()
    path.chmod(mode)
    os.chown(path, owner, owner)
    return path


def test_what_root_has_made_is_safe_and_what_is_missing_too(tmp_path: Path) -> None:
    made(tmp_path / "out")
    (tmp_path / "link").symlink_to("out/./../out")
    assert stranger_on(str(tmp_path / "out/1/a")) == ""
    assert stranger_on(str(tmp_path / "link/1/a")) == ""


def test_a_directory_of_another_user_is_not(tmp_path: Path) -> None:
    theirs = made(tmp_path / "theirs", OTHER)
    made(theirs / "1")
    assert stranger_on(str(theirs / "1/a")) == str(theirs)
    (tmp_path / "link").symlink_to(theirs)
    assert stranger_on(str(tmp_path / "link/1/a")) == str(theirs)


def test_a_link_of_another_user_is_not_wherever_it_leads(tmp_path: Path) -> None:
    shared = made(tmp_path / "shared", mode=0o1777)
    mine = made(shared / "mine")
    assert stranger_on(str(mine / "a")) == ""
    (shared / "out").symlink_to(mine)
    os.lchown(shared / "out", OTHER, OTHER)
    assert stranger_on(str(shared / "out/a")) == str(shared / "out")
    (mine / "stdout").symlink_to(mine / "seq")
    os.lchown(mine / "stdout", OTHER, OTHER)
    assert stranger_on(str(mine / "stdout")) == str(mine / "stdout")


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_directory_in_which_others_may_rename_is_not(tmp_path: Path, mode: int) -> None:
    shared = made(tmp_path / "shared", mode=mode)
    made(shared / "mine")
    assert stranger_on(str(shared / "mine/a")) == str(shared)


def test_links_that_lead_round_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert stranger_on(str(tmp_path / "a/x")) in (str(tmp_path / "a"), str(tmp_path / "b"))


def test_what_is_missing_may_be_a_strangers_by_the_time_it_is_used(tmp_path: Path) -> None:
    made(tmp_path / "out")
    assert stranger_on(str(tmp_path / "out"), whole=True) == ""
    with pytest.raises(FileNotFoundError):
        stranger_on(str(tmp_path / "out/1"), whole=True)
