"""What commands have written: where it is, and how much of it is printed."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from nodectl.bulk import outputs
from nodectl.bulk.commands import Command
from nodectl.bulk.template import Template
from nodectl.client.command import Failed


def results(names: list[str]) -> outputs.Results:
    return outputs.Results(outputs.Style(), Template("out", quoting=False), names)


def test_the_name_of_a_column_does_not_lead_out_of_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "within" / "base"
    base.mkdir(parents=True)
    monkeypatch.chdir(base)
    for number, name in enumerate(["../../escaped", "..", "/tmp/x", "plain"], 1):
        command = Command(number, "echo v", ("v",))
        results([name]).place(command)
        assert Path(os.path.realpath(command.stdout)).parts[: len(base.parts) + 1] == (*base.parts, "out")
    assert {path.name for path in (base / "out").iterdir()} == {"..\\_..\\_escaped", "\\.\\.", "\\_tmp\\_x", "plain"}


def test_a_pipe_in_the_place_of_a_file_holds_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command, kept = Command(1, "echo v", ("v",)), results([])
    kept.place(command)
    os.mkfifo(tmp_path / "out/1/v/seq")
    os.mkfifo(tmp_path / "out/1/v/stdout")
    with pytest.raises(Failed, match="seq: No such device"):
        kept.ended(command)
    assert command.sizes == (0, 0)


def test_a_directory_that_is_closed_to_readers_takes_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept, plain = results([]), os.open
    command, other = Command(1, "echo v", ("v",)), Command(2, "echo w", ("w",))

    def closed(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECTORY:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))  # root may open them all
        return plain(path, flags, mode)

    monkeypatch.setattr(os, "open", closed)
    for one in (command, other):
        kept.place(one)
        kept.ended(one)
    kept.settle()
    kept.close()
    assert [(tmp_path / f"out/1/{value}/seq").read_text() for value in "vw"] == ["1", "2"]


def test_a_directory_that_cannot_be_made_is_named_in_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is a value, and a terminal obeys what it reads."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").touch()
    with pytest.raises(Failed, match=r"out/1/\\x1b]0;pwned\\x07: Not a directory"):
        results([]).place(Command(1, "echo", ("\x1b]0;pwned\x07",)))


def test_what_is_written_after_its_command_has_ended_is_not_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a command has left behind could write faster than it is printed, and would never let it end."""
    private = outputs.Private(outputs.Style(), [str(tmp_path)])
    command = Command(1, "echo v", ("v",))
    private.place(command)
    Path(command.stdout).write_text("whole\n")
    private.ended(command)
    with open(command.stdout, "a", encoding="utf-8") as file:
        file.write("more\n" * 100_000)
    private.show(command)
    private.close()
    assert capfd.readouterr().out == "whole\n"
    assert list(tmp_path.iterdir()) == []


def silent(private: outputs.Private, number: int, *, alone: bool = True) -> Command:
    """A command that has printed nothing."""
    command = Command(number, "true", ())
    private.place(command)
    Path(command.stdout).touch(0o600)
    Path(command.stderr).touch(0o600)
    command.alone = alone
    return command


def end(private: outputs.Private, command: Command) -> None:
    private.ended(command)
    private.show(command)


def test_files_that_stay_empty_serve_the_next_command(tmp_path: Path) -> None:
    private = outputs.Private(outputs.Style(), [str(tmp_path)])
    first = silent(private, 1)
    files = first.stdout, first.stderr
    end(private, first)
    second, third = silent(private, 2), silent(private, 3)
    assert (second.stdout, second.stderr) == files
    assert third.stdout not in files
    private.close()
    assert list(tmp_path.iterdir()) == []


def leave_behind(command: Command) -> None:
    command.alone = False


def print_something(command: Command) -> None:
    Path(command.stderr).write_text("x")


def put_a_link(command: Command) -> None:
    Path(command.stdout).unlink()
    Path(command.stdout).symlink_to("/dev/null")


def keep_it_by_another_name(command: Command) -> None:
    os.link(command.stdout, f"{command.stdout}.mine")


def close_it(command: Command) -> None:
    Path(command.stdout).chmod(0o400)


@pytest.mark.parametrize("act", [leave_behind, print_something, put_a_link, keep_it_by_another_name, close_it])
def test_files_that_may_be_anybody_elses_serve_nobody(
    tmp_path: Path, act: Callable[[Command], None], capfd: pytest.CaptureFixture[str]
) -> None:
    private = outputs.Private(outputs.Style(), [str(tmp_path)])
    first = silent(private, 1)
    names = first.stdout, first.stderr
    act(first)
    end(private, first)
    assert not any(os.path.lexists(name) for name in names)
    assert silent(private, 2).stdout not in names
    private.close()
    capfd.readouterr()


def test_a_disk_with_room_for_a_part_only_is_told_as_full(tmp_path: Path) -> None:
    """The output that was printed last may have left so much behind. A limit of files stands for the disk."""
    private = outputs.Private(outputs.Style(), [str(tmp_path)])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(Failed, match="may be incomplete: No space left on device"):
            private.check()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    private.check()
