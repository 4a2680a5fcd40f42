"""The last lines of a file, and a file that grows, is truncated, replaced, or made late."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

from nodectl.client import followed_file
from nodectl.client.command import Failed
from nodectl.client.followed_file import FollowedFile


@pytest.mark.parametrize(
    ("text", "lines", "shown"),
    [
        ("a\nb\nc\n", 2, "b\nc\n"),
        ("a\nb\nc", 2, "b\nc"),
        ("a\nb\nc\n", 9, "a\nb\nc\n"),
        ("a\nb\nc\n", 3, "a\nb\nc\n"),
        ("a\nb\n", 0, ""),
        ("", 3, ""),
        ("\n\n\n", 1, "\n"),
        ("long line\n" * 50, 30, "long line\n" * 30),
    ],
)
def test_so_many_lines_are_shown_as_are_asked_for(
    text: str, lines: int, shown: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(followed_file, "_CHUNK", 16)  # a line may begin in an earlier piece
    (tmp_path / "file").write_text(text)
    assert FollowedFile(str(tmp_path / "file"), lines).copy()
    assert capfdbinary.readouterr().out.decode() == shown


def woken(file: FollowedFile) -> None:
    """Until the kernel tells a change."""
    assert select.select([file.watcher], [], [], 60)[0]
    file.changed()


def test_a_file_that_is_made_late_grows_and_is_truncated_is_followed_by_events(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "file"
    file = FollowedFile(str(path), None)
    file.watch()
    assert not file.copy()
    path.write_text("one\n")
    woken(file)
    assert file.copy()
    with path.open("a") as more:
        more.write("two\n")
    woken(file)
    file.copy()
    assert capfdbinary.readouterr().out == b"one\ntwo\n"
    path.write_text("new\n")
    woken(file)
    file.copy()
    said = capfdbinary.readouterr()
    assert said.out == b"new\n"
    assert b"was truncated" in said.err


def test_a_file_that_is_replaced_is_shown_from_its_beginning(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "file"
    path.write_text("old, and longer\n")
    file = FollowedFile(str(path), None)
    file.watch()
    file.copy()
    (tmp_path / "next").write_text("new\n")
    os.rename(tmp_path / "next", path)
    woken(file)
    file.copy()
    said = capfdbinary.readouterr()
    assert said.out == b"old, and longer\nnew\n"
    assert b"was replaced" in said.err
    with path.open("a") as more:
        more.write("more\n")
    woken(file)
    file.copy()
    assert capfdbinary.readouterr().out == b"more\n"


def test_what_is_no_regular_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Failed, match="is no regular file"):
        FollowedFile(str(tmp_path / "pipe"), None).copy()


@pytest.mark.parametrize("kind", ["none", "fifo", "directory"])
def test_a_path_moves_no_cursor_of_its_reader(tmp_path: Path, kind: str) -> None:
    """It is another user's where root looks at a job."""
    path = f"{tmp_path}/\x1b[2J\nsaid"
    if kind != "none":
        (os.mkfifo if kind == "fifo" else os.mkdir)(path)
    with pytest.raises(Failed) as refused:
        followed_file.last_lines(path, 1, 1 << 16)
    assert str(refused.value).isprintable()


def test_the_last_lines_of_a_huge_file_without_lines_take_no_longer_than_those_of_a_small_one(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 42)
        file.seek(0, os.SEEK_END)
        file.write(b"\nend")
    assert followed_file.last_lines(str(tmp_path / "huge"), 1, 1 << 16) == b"end"
    assert len(followed_file.last_lines(str(tmp_path / "huge"), 2, 1 << 16)) == 1 << 16


@pytest.mark.parametrize("path", ["/proc/kmsg", "/proc/self/status", "/sys/kernel/mm/transparent_hugepage/enabled"])
def test_a_file_of_the_kernels_is_not_opened_even_behind_a_link(path: str, tmp_path: Path) -> None:
    if not os.path.exists(path):
        pytest.skip(f"no {path} here")
    (tmp_path / "out").symlink_to(path)
    with pytest.raises(Failed, match="is a file of the kernel's"):
        followed_file.last_lines(str(tmp_path / "out"), 1, 1 << 16)


def test_control_characters_of_another_users_file_are_shown_as_text(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They could type into the terminal of an administrator who looks at the output of a user's job."""
    monkeypatch.setattr(followed_file, "_CHUNK", 3)  # a character may begin in an earlier piece
    (tmp_path / "file").write_bytes("a\tb \x1b]0;title\x07é\x9b1m\r\n\u202eend\n".encode() + b"\xff\n")
    assert FollowedFile(str(tmp_path / "file"), None, as_text=True).copy()
    shown = "a\tb \\x1b]0;title\\x07é\\x9b1m\\r\n\\u202eend\n\\xff\n"
    assert capfdbinary.readouterr().out == shown.encode()
    assert FollowedFile(str(tmp_path / "file"), None).copy()
    assert capfdbinary.readouterr().out == (tmp_path / "file").read_bytes()
