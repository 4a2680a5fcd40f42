"""Where a cursor is in a command line, and what may stand there."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from nodectl.cli.catalogue import commands
from nodectl.cli.complete import grammar_of
from nodectl.cli.main import main
from nodectl.client.completion import typed, values
from nodectl.client.completion.grammar import Place, locate


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nodectl ru", ["nodectl", "ru"]),
        ("nodectl ", ["nodectl", ""]),
        ("nodectl run -o 'my fi", ["nodectl", "run", "-o", "my fi"]),
        ('nodectl run "a b" c\\ d', ["nodectl", "run", "a b", "c d"]),
        ("nodectl run it\\", ["nodectl", "run", "it"]),
        ("nodectl run '$(reboot) `x`", ["nodectl", "run", "$(reboot) `x`"]),
    ],
)
def test_a_line_is_split_up_to_its_cursor(line: str, words: list[str]) -> None:
    assert typed.split(line) == words


def test_of_a_list_what_is_there_is_not_offered_again() -> None:
    offered = [("quiet", ""), ("cores", "to cores"), ("compute", "")]
    assert typed.fitting(offered, "cores,c", listed=True) == [("cores,compute", "")]
    assert typed.fitting(offered, "cores,c", listed=False) == []


@pytest.mark.parametrize("word", ["7", "7_3", "1.batch", "--cpu-bind=cores,quiet", "gpu:a100", "größe"])
def test_names_are_offered(word: str) -> None:
    assert typed.is_harmless(word)


@pytest.mark.parametrize("word", ["$(reboot)", "`x`", "a;b", "a b", "a\nb", "\x1b[2J", "*", "~root", "a&b", "'", "#"])
def test_what_a_shell_would_take_for_more_than_a_word_is_not_offered(word: str) -> None:
    assert not typed.is_harmless(word)


def place(command: str, *words: str) -> Place:
    *before, current = words
    return locate(grammar_of(commands()[command]), before, current)


@pytest.mark.parametrize(
    ("words", "metavar", "partial"),
    [
        (("run", "--ntasks", "4"), "N", "4"),
        (("run", "-n", ""), "N", ""),
        (("run", "--chdir=/t"), "DIR", "/t"),
        (("run", "-n2", "pr"), "COMMAND", "pr"),
        (("run", "--", "-x"), "COMMAND", "-x"),
        (("queue", "--job", "7"), "JOBS", "7"),
        (("enter", ""), "JOB[.STEP]", ""),
        (("enter", "7", "ls"), "COMMAND", "ls"),
        (("update", "7", "Ti"), "KEY=VALUE", "Ti"),
        (("reserve", "create", "--users", "al"), "NAMES", "al"),
        (("spank", "try", "--us"), None, "--us"),
        (("ps", ""), None, ""),
    ],
)
def test_the_place_of_the_cursor_is_found(words: tuple[str, ...], metavar: str | None, partial: str) -> None:
    found = place(*words)
    assert (found.item.metavar if found.item else None, found.partial) == (metavar, partial)


def test_options_behind_the_program_are_the_programs() -> None:
    assert place("run", "-n2", "make", "--jo").in_program
    assert not place("run", "-n2", "--jo").in_program


@pytest.mark.parametrize("command", commands())
def test_every_argument_of_every_command_can_be_completed(command: str) -> None:
    grammar = grammar_of(commands()[command])
    inner = [one for _, one in grammar.commands.values()]
    for item in (item for one in (grammar, *inner) for item in (*one.options, *one.words)):
        if values.kind_of(item) == values.WORDS:
            assert all(word and not set(word) & set("[]\n\t ") for word, _ in values.known(command, item)), item


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command sets a clock that ends its process; here that is the tests', which may be slow."""
    monkeypatch.setattr(signal, "setitimer", lambda *_: (0.0, 0.0))


@pytest.mark.usefixtures("unhurried")
def test_the_partition_is_the_one_of_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "nodectl.toml"
    file.write_text('partition_name = "batch"\n')
    for words in (["run", "--partition", ""], ["submit", "-p", "b"]):
        assert main(["--config", str(file), "--socket", "/absent", "__complete", "zsh", *words]) == 0
        assert "\nbatch\t" in capsys.readouterr().out
