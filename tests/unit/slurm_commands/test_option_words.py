"""Command lines of squeue, scancel and so on, as getopt_long(3) reads them."""

from __future__ import annotations

import pytest

from nodectl.client.command import BadUsage
from nodectl.slurm.commands.option_words import (
    ARGUMENT,
    MAYBE_ARGUMENT,
    Option,
    help_of,
    read,
    settings_of,
    without_meaning,
)

TABLE = (
    Option("format", "o", ARGUMENT, "columns"),
    Option("noheader", "h", text="no headers"),
    Option("name", "n", ARGUMENT, "names"),
    Option("nodelist", "w", ARGUMENT),
    Option("long", "l", text="more"),
    Option("compress", "C", MAYBE_ARGUMENT),
    Option("nodes", "", ARGUMENT, same="nodelist"),
)


def test_options_may_stand_behind_words_and_letters_together() -> None:
    given = read(["7", "-hlo", "%i", "8", "--name=a,b", "-nc", "--", "-x"], TABLE)
    assert given.words == ["7", "8", "-x"]
    assert given.value("format") == "%i"
    assert "noheader" in given
    assert given.listed("name") == ["a", "b", "c"]


def test_a_long_name_may_be_cut_short_as_long_as_it_means_one_thing() -> None:
    assert "noheader" in read(["--noh"], TABLE)
    with pytest.raises(BadUsage, match="ambiguous"):
        read(["--no"], TABLE)


def test_an_argument_that_may_be_missing_is_no_word_behind_it() -> None:
    given = read(["-C", "file", "--compress=lz4"], TABLE)
    assert given.options["compress"] == ["", "lz4"]
    assert given.words == ["file"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--wrong"], "unrecognized option '--wrong'"),
        (["-x"], "invalid option -- 'x'"),
        (["-o"], "option requires an argument -- 'o'"),
        (["--format"], "option '--format' requires an argument"),
        (["--long=1"], "option '--long' doesn't allow an argument"),
    ],
)
def test_what_makes_no_sense_ends_with_one(words: list[str], told: str) -> None:
    with pytest.raises(BadUsage) as wrong:
        read(words, TABLE)
    assert str(wrong.value) == told
    assert wrong.value.status == 1


def test_options_without_meaning_are_known_by_name() -> None:
    assert without_meaning(read(["-w", "n1", "-h"], TABLE), TABLE) == ["nodelist"]


def test_two_names_of_one_option_are_one() -> None:
    given = read(["--nodes=n1", "-w", "n2", "--node", "n3"], TABLE)
    assert given.listed("nodelist") == ["n1", "n2", "n3"]
    assert without_meaning(given, TABLE) == ["nodelist"]


def test_help_tells_every_option_once() -> None:
    lines = help_of("squeue [OPTIONS]", TABLE, TABLE[4:5])
    assert lines[0] == "Usage: squeue [OPTIONS]"
    assert lines[-4:-2] == ["Help options:", f"  {'-l, --long':28} more"]
    assert lines[-1].endswith(": --nodelist --compress")


def test_settings_are_how_often_or_which_value() -> None:
    lines = settings_of(read(["-ll", "-o", "%i"], TABLE), TABLE)
    assert [line.split() for line in lines][:1] == [["format", "=", "%i"]]
    assert ["long", "=", "2"] in [line.split() for line in lines]
