"""A word that is misspelt: the complaint is one line, and names the word that was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.cli import main
from nodectl.cli.catalogue import commands, parser_of
from nodectl.client.command_parser import subcommands
from nodectl.model import exit_statuses


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["rn"], "no command 'rn'; the nearest is run"),
        (["quue"], "no command 'quue'; the nearest is queue"),
        (["xyzzy"], "no command 'xyzzy'\n"),
        (["--sokcet=x", "ps"], "unknown option --sokcet=x; the nearest is --socket"),
        (["ps", "--jsno"], "nodectl ps: error: unrecognized option '--jsno'; the nearest is --json"),
        (["queue", "--state=PD", "7"], "one word too many: 7; jobs are named by -j: nodectl queue -j 7\n"),
        (["node", "drian"], "invalid choice: 'drian'"),
        (["node", "drian"], "; the nearest is drain"),
        (["reserve", "create", "--usres=me", "--end=0:10", "--users=me"], "'--usres'; the nearest is --users"),
        (["acct", "--units=kb"], "invalid choice: 'kb'"),
    ],
)
def test_the_word_that_was_meant_is_named(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main.main(words)
    except SystemExit as ended:
        status = int(str(ended.code))
    said = capsys.readouterr().err
    assert status == 2
    assert told in said
    assert said.splitlines()[-1].startswith("Try 'nodectl")
    assert len(said.splitlines()) == 2


COMMANDS = commands()
ARGPARSED = [name for name, command in COMMANDS.items() if not command.reads_words]


@pytest.mark.parametrize("command", ARGPARSED)
def test_help_tells_every_exit_status(command: str) -> None:
    text = " ".join(parser_of(COMMANDS[command]).format_help().split())
    for status, meaning in exit_statuses.of_command(command):
        assert f"{status} {meaning}" in text.replace("- ", "-")


def test_statuses_are_told_of_commands_that_there_are() -> None:
    assert exit_statuses.OF_COMMANDS.keys() <= COMMANDS.keys()


def test_the_documents_tell_the_statuses_of_run() -> None:
    document = (Path(__file__).resolve().parents[3] / "docs/commands.md").read_text(encoding="utf-8")
    rows = "".join(f"| {status} | {meaning} |\n" for status, meaning in exit_statuses.of_command("run"))
    assert f"| exit status | meaning |\n|---|---|\n{rows}" in document


def test_own_commands_of_a_command_are_found() -> None:
    assert list(subcommands(parser_of(COMMANDS["node"]))) == ["list", "show", "drain", "resume"]
    assert subcommands(parser_of(COMMANDS["ps"])) == {}
