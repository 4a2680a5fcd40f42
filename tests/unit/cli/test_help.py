"""`nodectl help`, the groups of commands, and the words of other tools."""

from __future__ import annotations

import contextlib

import pytest

from nodectl.cli import main
from nodectl.cli.catalogue import commands, groups
from nodectl.cli.other_words import MEANT, ours
from nodectl.client.command import GlobalOptions, user_file


def test_every_command_stands_in_one_group() -> None:
    listed = [command.name for _, found in groups() for command in found]
    assert listed == list(commands())
    assert all(found for _, found in groups())


@pytest.mark.parametrize(("words", "same"), [(["help"], ["--help"]), (["help", "wait"], ["wait", "--help"])])
def test_help_prints_what_the_option_prints(
    words: list[str], same: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for asked in (words, same):
        with contextlib.suppress(SystemExit):
            main.main(asked)
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert texts[0].startswith("Usage: nodectl")


def test_help_fits_a_terminal_of_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in (["help"], *(["help", name] for name in commands())):
        with contextlib.suppress(SystemExit):
            main.main(words)
        long = [line for line in capsys.readouterr().out.splitlines() if len(line) > 80]
        assert not long, words


def test_no_word_of_another_tool_hides_a_command_and_each_names_one() -> None:
    known = commands()
    assert not MEANT.keys() & known.keys()
    for word in MEANT:
        named = [part.split("`")[0] for part in ours(word).split("`nodectl ")[1:]]
        assert named
        assert all(name.split()[0] in known or name == "--version" for name in named), word
        assert ours(word).count("`") % 2 == 0


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("logs", "log"),
        ("jobs", "queue"),
        ("kill", "cancel"),
        ("stop", "cancel"),
        ("sbatch", "submit"),
        ("add", "submit"),
    ],
)
def test_a_word_of_another_tool_is_answered_with_ours(
    word: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run_command(GlobalOptions(), word, ["7"]) == 2
    assert f"no command '{word}'; here it is `nodectl {command}`\n" in capsys.readouterr().err


def test_a_tilde_is_replaced_where_a_shell_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert user_file("~/out-%j") == "/home/ann/out-%j"
    assert user_file("~root/x") == "/root/x"
    assert user_file("~unknown-user/x") == "~unknown-user/x"
    assert user_file("a~/x") == "a~/x"
