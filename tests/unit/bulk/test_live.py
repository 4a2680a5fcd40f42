"""--line-buffer: what is printed of commands that run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodectl.bulk import outputs
from nodectl.bulk.commands import Command
from nodectl.bulk.live import Live
from nodectl.bulk.template import Template


def style(*, say: bool = False) -> outputs.Style:
    return outputs.Style(by_line=True, tag=lambda values, _number: values[0], say=say)


class Play:
    """Commands that write, and what has been printed since the last time."""

    def __init__(self, made: outputs.Outputs, capfd: pytest.CaptureFixture[str]) -> None:
        self.made = made
        self.capfd = capfd
        self.now = 0.0
        self.live = Live(made, lambda: self.now)
        self.commands: dict[str, Command] = {}

    def begin(self, value: str) -> Command:
        command = self.commands[value] = Command(len(self.commands) + 1, f"do {value}", (value,))
        self.made.place(command)
        self.live.begun(command)
        return command

    def write(self, value: str, text: str, *, error: bool = False) -> None:
        command = self.commands[value]
        with open(command.stderr if error else command.stdout, "a", encoding="utf-8") as file:
            file.write(text)

    def look(self, alone: Command | None = None) -> tuple[str, str]:
        self.now += 60
        self.live.look(alone)
        return self.capfd.readouterr()

    def end(self, value: str) -> tuple[str, str]:
        command = self.commands.pop(value)
        self.live.over(command)
        self.made.ended(command)
        self.made.show(command)
        return self.capfd.readouterr()


@pytest.fixture(params=["private", "results"])
def play(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Play:
    monkeypatch.chdir(tmp_path)
    if request.param == "private":
        return Play(outputs.Private(style(), [str(tmp_path)]), capfd)
    return Play(outputs.Results(style(), Template("out", quoting=False)), capfd)


def test_whole_lines_come_once_and_the_rest_at_the_end(play: Play) -> None:
    for value in "ab":
        play.begin(value)
        play.write(value, f"half of {value}")
    assert play.look() == ("", "")
    play.write("a", " is whole\nmore")
    play.write("b", ".\n", error=True)
    assert play.look() == ("a\thalf of a is whole\n", "b\t.\n")
    assert play.look() == ("", "")
    play.write("b", ", too\nand\nso on\n")
    assert play.look() == ("b\thalf of b, too\nb\tand\nb\tso on\n", "")
    assert play.end("a") == ("a\tmore", "")
    assert play.end("b") == ("", "")


def test_a_line_longer_than_what_is_read_at_once_stays_whole(play: Play) -> None:
    play.begin("a")
    long = "x" * 700_000
    for _ in range(2):
        play.write("a", long)
        assert play.look() == ("", "")
    play.write("a", "\nrest")
    assert play.look() == (f"a\t{long}{long}\n", "")
    assert play.end("a") == ("a\trest", "")


def test_with_an_order_only_the_first_is_shown(play: Play) -> None:
    for value in "ab":
        play.begin(value)
        play.write(value, "line\n")
    first, second = play.commands.values()
    assert play.look(first) == ("a\tline\n", "")
    play.end("a")
    assert play.look(second) == ("b\tline\n", "")


def test_what_begins_once_more_is_shown_once_more(play: Play) -> None:
    """On another node, for one."""
    command = play.begin("a")
    play.write("a", "one\ntwo\n")
    assert play.look() == ("a\tone\na\ttwo\n", "")
    Path(command.stdout).write_text("o")
    play.live.begun(command)
    assert play.look() == ("", "")
    play.write("a", "ne\n")
    assert play.look() == ("a\tone\n", "")
    assert play.end("a") == ("", "")


def test_it_does_not_look_all_the_time(play: Play) -> None:
    assert play.live.seconds is None
    play.begin("a")
    assert play.live.seconds == 0
    play.look()
    assert play.live.seconds
    play.write("a", "line\n")
    play.live.look()
    assert play.capfd.readouterr().out == ""
    assert play.look() == ("a\tline\n", "")


def test_what_an_earlier_run_has_left_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out/1/a").mkdir(parents=True)
    (tmp_path / "out/1/a/stdout").write_text("old\n")
    os.mkfifo(tmp_path / "out/1/a/stderr")  # the user's own
    play = Play(outputs.Results(style(), Template("out", quoting=False)), capfd)
    play.begin("a")
    assert play.look() == ("", "")
    (tmp_path / "out/1/a/stdout").write_text("new\n")
    assert play.look() == ("a\tnew\n", "")
    assert (tmp_path / "out/1/a/stderr").is_fifo()


def test_commands_that_share_a_file_have_their_turns_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """They get their places long before they begin."""
    monkeypatch.chdir(tmp_path)
    Path("x").write_text("old\n")
    play = Play(outputs.Results(style(), Template("{/}", quoting=False)), capfd)
    waiting = {value: Command(number, value, (value,)) for number, value in enumerate(("a/x", "b/x", "c/x"), 1)}
    for command in waiting.values():
        play.made.place(command)
    for value, command in waiting.items():
        play.commands[value], command.slot = command, 1
        play.live.begun(command)
        assert play.look() == ("", "")
        Path(command.stdout).write_text(f"{value} begins\n")
        assert play.look() == (f"{value}\t{value} begins\n", "")
        play.write(value, "end")
        assert play.end(value) == (f"{value}\tend", "")
    play.begin("d/x").slot = 1
    again = play.begin("e/x")
    again.slot = 2
    assert play.look() == ("", "")
    Path(again.stdout).write_text("e\n")
    play.end("d/x")  # which is heard of later
    assert play.look() == ("e/x\te\n", "")
    play.made.drop(again)
    assert play.made._earlier._files == {}


def test_the_slots_number_stands_in_tags_and_lines_while_the_command_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A command that runs once more may have another one."""
    tag = Template("{%}: {}", slot="MARK", quoting=False).line
    play = Play(
        outputs.Private(outputs.Style(by_line=True, tag=tag, say=True, slot_mark="MARK"), [str(tmp_path)]), capfd
    )
    command = play.begin("a")
    command.line = "do MARK"
    for slot in (2, 3):
        command.slot = slot
        play.live.begun(command)
        Path(command.stdout).write_text(f"{slot}\n")
        assert play.look() == (f"do {slot}\n{slot}: a\t{slot}\n", "")
    assert command.line == "do MARK"
    play.made.drop(command)


def test_the_command_comes_before_its_first_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    play = Play(outputs.Private(style(say=True), [str(tmp_path)]), capfd)
    for value in "ab":
        play.begin(value)
    play.write("a", "one\n")
    assert play.look() == ("do a\na\tone\n", "")
    play.write("a", "two\n")
    assert play.look() == ("a\ttwo\n", "")
    play.write("b", "one\n")
    assert [play.end(value) for value in "ab"] == [("", ""), ("do b\nb\tone\n", "")]
