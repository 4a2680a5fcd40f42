"""Advice goes by what a refusal is about, never by how its words begin."""

from __future__ import annotations

import pytest

from nodectl.client.advice import advice, refuse
from nodectl.client.command import BadOption, Failed
from nodectl.client.waiting import say


@pytest.mark.parametrize(
    "words",
    ["no job id can be drawn from the history: disk is full", "no step can be made now",
     "not in the queue of a printer", "Invalid node name service", "there is no reservation of memory"],
)  # fmt: skip
def test_a_failure_that_begins_as_another_one_gets_no_advice_about_that(words: str) -> None:
    assert advice(Failed(words), words) == ""


@pytest.mark.parametrize(
    ("subject", "what"), [("unknown", "`nodectl queue` lists jobs"), ("qos", "the key qos"), ("admins", "admin_group")]
)
def test_what_a_refusal_is_about_decides_whatever_its_words(subject: str, what: str) -> None:
    assert what in advice(Failed("in other words", subject=subject), "in other words")


def test_a_subject_of_a_later_service_gets_no_advice() -> None:
    assert advice(Failed("something", subject="quota"), "something") == ""


def test_an_option_that_is_named_is_explained() -> None:
    words = 'Invalid numeric value "two" for --ntasks.'
    assert advice(BadOption(words), words).startswith("--ntasks=")


def test_what_a_command_tells_of_others_moves_no_cursor(capfd: pytest.CaptureFixture[str]) -> None:
    """An administrator may be told of a user's job, in whose words names may stand."""
    refuse(Failed("no reservation \x1b[2J\u202e"))
    say("job 7: FAILED: \x1b]0;title\x07\udcff")
    told = capfd.readouterr().err
    assert told == "nodectl: error: no reservation \\x1b[2J\\u202e\nnodectl: job 7: FAILED: \\x1b]0;title\\x07\\udcff\n"
