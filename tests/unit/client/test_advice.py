"""Advice goes by what a refusal is about, never by how its words begin."""

from __future__ import annotations

import pytest

from nodectl.client.advice import advice
from nodectl.client.command import BadOption, Failed


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
