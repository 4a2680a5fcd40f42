"""Points in time in sbatch's words."""

from __future__ import annotations

import time

import pytest

from nodectl.model.moments import moment

NOW = time.mktime((2026, 11, 22, 12, 30, 15, 0, 0, -1))


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("now", (2026, 11, 22, 12, 30, 15)),
        ("now+60", (2026, 11, 22, 12, 31, 15)),
        ("now+1hour", (2026, 11, 22, 13, 30, 15)),
        ("now + 2 days", (2026, 11, 24, 12, 30, 15)),
        ("now+3weeks", (2026, 12, 13, 12, 30, 15)),
        ("now+5m", (2026, 11, 22, 12, 35, 15)),
        ("16:00", (2026, 11, 22, 16, 0, 0)),
        ("12:30", (2026, 11, 23, 12, 30, 0)),  # has passed
        ("4:05:06PM", (2026, 11, 22, 16, 5, 6)),
        ("4 pm", (2026, 11, 22, 16, 0, 0)),
        ("12:00 am", (2026, 11, 23, 0, 0, 0)),
        ("midnight", (2026, 11, 23, 0, 0, 0)),
        ("noon", (2026, 11, 23, 12, 0, 0)),
        ("noon-tomorrow", (2026, 11, 23, 12, 0, 0)),
        ("teatime", (2026, 11, 22, 16, 0, 0)),
        ("today", (2026, 11, 22, 0, 0, 0)),
        ("tomorrow", (2026, 11, 23, 0, 0, 0)),
        ("16:00 tomorrow", (2026, 11, 23, 16, 0, 0)),
        ("tomorrow 16:00", (2026, 11, 23, 16, 0, 0)),
        ("2026-12-24", (2026, 12, 24, 0, 0, 0)),
        ("2026-12-24T18:00", (2026, 12, 24, 18, 0, 0)),
        ("2026-12-24T18:00:07", (2026, 12, 24, 18, 0, 7)),
        ("12/24", (2026, 12, 24, 0, 0, 0)),
        ("12/24-18:00", (2026, 12, 24, 18, 0, 0)),
        ("12-24", (2026, 12, 24, 0, 0, 0)),
        ("12/24/27", (2027, 12, 24, 0, 0, 0)),
        ("12.24.27", (2027, 12, 24, 0, 0, 0)),
        ("2026-12-24 6:30 PM", (2026, 12, 24, 18, 30, 0)),
        ("2026-12-24 midnight", (2026, 12, 24, 0, 0, 0)),
        ("12/24-midnight", (2026, 12, 24, 0, 0, 0)),
        ("12/24/26T18:00", (2026, 12, 24, 18, 0, 0)),
        ("12.24-18:00", (2026, 12, 24, 18, 0, 0)),
        ("12.24.26-18:00", (2026, 12, 24, 18, 0, 0)),
    ],
)
def test_each_way_to_name_a_time_is_read(text: str, date: tuple[int, ...]) -> None:
    assert time.localtime(moment(text, NOW))[:6] == date


@pytest.mark.parametrize(
    "text",
    ["", "soon", "now+", "now-1", "now+1fortnight", "now+9999999999999", "25:00", "12:60", "13pm", "0 am", "12", "::",
     "2026-13-01", "2026-12", "12/24T18:00x", "tomorrow today", "16:00 17:00", "99999-01-01", "+1hour",
     "\u0663:00", "now+m", "9" * 5000, "2026-12-24T18:00T19:00", "2026-02-30",
     "yesterday", "now-2days", "now+12000days"],
)  # fmt: skip
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid time specification"):
        moment(text, NOW)


def test_what_has_been_may_be_as_long_ago_as_anyone_likes() -> None:
    assert moment("now-120000days", NOW, past=True) == 0
