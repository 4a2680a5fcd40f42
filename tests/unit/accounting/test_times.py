"""Times as people type them, and as sacct prints them."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.model import words
from nodectl.model.accounting.times import midnight, moment
from nodectl.model.words import cpu_time

NOW = time.mktime((2026, 11, 22, 12, 30, 15, 0, 0, -1))


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("now", (2026, 11, 22, 12, 30, 15)),
        ("now-2days", (2026, 11, 20, 12, 30, 15)),
        ("now - 90", (2026, 11, 22, 12, 28, 45)),
        ("now+1hour", (2026, 11, 22, 13, 30, 15)),
        ("now-1w", (2026, 11, 15, 12, 30, 15)),
        ("today", (2026, 11, 22, 0, 0, 0)),
        ("yesterday", (2026, 11, 21, 0, 0, 0)),
        ("midnight", (2026, 11, 22, 0, 0, 0)),
        ("noon", (2026, 11, 22, 12, 0, 0)),
        ("teatime", (2026, 11, 22, 16, 0, 0)),
        ("09:30", (2026, 11, 22, 9, 30, 0)),
        ("9:30:01pm", (2026, 11, 22, 21, 30, 1)),
        ("12:00 AM", (2026, 11, 22, 0, 0, 0)),
        ("11/05", (2026, 11, 5, 0, 0, 0)),
        ("11/05/25-10:20", (2025, 11, 5, 10, 20, 0)),
        ("11.05", (2026, 11, 5, 0, 0, 0)),
        ("2026-10", (2026, 10, 1, 0, 0, 0)),
        ("2026-10-03", (2026, 10, 3, 0, 0, 0)),
        ("2026-10-03T04:05:06", (2026, 10, 3, 4, 5, 6)),
        ("2026-10-03 noon", (2026, 10, 3, 12, 0, 0)),
        ("yesterday 16:00", (2026, 11, 21, 16, 0, 0)),
        ("1960-01-01", (1970, 1, 1, 0, 0, 0)),
    ],
)
def test_moments_are_those_of_the_day(text: str, at: tuple[int, int, int, int, int, int]) -> None:
    assert moment(text, NOW) == time.mktime((*at, 0, 0, -1))


@pytest.mark.parametrize(
    "text",
    ["", "x", "25:00", "10:61", "2026-13-01", "2026-02-30", "now-", "now-2fortnights", "13:00pm", "0:00am",
     "9999999999-01-01", "2026-10-03T", "1" * 5000, "now-99999999999999", "11/05/25/26"],
)  # fmt: skip
def test_no_moments_are_refused(text: str) -> None:
    if text == "2026-10-03T":
        assert moment(text, NOW) == moment("2026-10-03", NOW)
        return
    with pytest.raises(ValueError, match="is no time"):
        moment(text, NOW)


@given(st.text(max_size=30))
def test_any_text_is_a_moment_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        moment(text, NOW)


@given(st.floats(0, 4e9))
def test_what_is_shown_can_be_typed(at: float) -> None:
    shown = int(at) or 1
    assert abs(moment(words.moment(shown), NOW) - shown) in (0, 3600, 1800, 7200)  # an hour that comes twice


def test_cpu_time_is_printed_as_sacct_does() -> None:
    assert [cpu_time(seconds) for seconds in (0, 0.5, 61.25, 3599.9996, 3661, 90_061)] == [
        "00:00.000", "00:00.500", "01:01.250", "01:00:00", "01:01:01", "1-01:01:01",
    ]  # fmt: skip


def test_a_pattern_of_the_users_is_followed() -> None:
    assert words.moment(NOW, pattern="%d.%m.%Y") == "22.11.2026"
    assert words.moment(0, "Unknown") == "Unknown"
    assert midnight(NOW) == moment("today", NOW)


@pytest.mark.parametrize("text", ["now-999999999weeks", "1900-01-01", "0001-01-01"])
def test_nothing_was_before_the_epoch(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert moment(text, NOW) == 0.0
