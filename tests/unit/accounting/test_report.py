"""Sums by user and period, and their picture."""

from __future__ import annotations

import csv
import io
import json
import time
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.cli.report import as_csv, as_json, listing, picture
from nodectl.client.render import stacked_bars
from nodectl.model.accounting.report import Sum, over_all, percentile, report
from unit.accounting.made_up import record, rows, task

DAY = 86_400
MONDAY = time.mktime((2026, 11, 16, 0, 0, 0, 0, 0, -1))
NOW = MONDAY + 3 * DAY


def step(job: int, user: str, start: float, seconds: float, **values: Any) -> dict[str, Any]:
    return record(
        job, user=user, submitted=start - 60, started=start, ended=start + seconds,
        tasks=[task(user_seconds=seconds, system_seconds=0.0, max_rss_kib=50 << 10)], **values,
    )  # fmt: skip


def test_a_job_counts_in_each_day_for_the_time_that_it_ran_there() -> None:
    jobs = rows([step(1, "alice", MONDAY + DAY - 3600, 7200), step(2, "bob", MONDAY + 100, 3600)])
    first, second, third, _ = report(jobs, "day", MONDAY, NOW)
    assert [period.name for period in (first, second, third)] == ["2026-11-16", "2026-11-17", "2026-11-18"]
    assert list(first.users) == ["alice", "bob"]
    assert first.users["alice"].cpu_hours == pytest.approx(2.0)
    assert second.users["alice"].cpu_hours == pytest.approx(2.0)
    assert (first.users["alice"].jobs, second.users["alice"].jobs) == (1, 0)
    assert first.users["alice"].efficiency == pytest.approx(0.5)
    assert first.users["alice"].median_wait == 60
    assert third.users == {}
    assert over_all([first, second, third])["alice"].cpu_hours == pytest.approx(4.0)


def test_weeks_begin_on_monday_and_months_on_the_first() -> None:
    jobs = rows([step(1, "alice", MONDAY - 3600, 7200)])
    weeks = report(jobs, "week", MONDAY - DAY, NOW)
    assert [week.name for week in weeks] == ["2026-11-09", "2026-11-16"]
    assert [week.total.cpu_hours for week in weeks] == [pytest.approx(2.0), pytest.approx(2.0)]
    [month] = report(jobs, "month", MONDAY - DAY, NOW)
    assert (month.name, month.total.jobs) == ("2026-11", 1)
    [whole] = report(jobs, "total", MONDAY, NOW)
    assert whole.total.cpu_hours == pytest.approx(2.0)
    assert whole.total.jobs == 0  # it began before


def test_memory_asked_for_and_used_is_weighed_by_time() -> None:
    [(day)] = report(rows([step(1, "alice", MONDAY, 36_000, memory=102)]), "total", MONDAY, NOW)
    assert day.total.gib_hours_asked == pytest.approx(102 / 1024 * 10)
    assert day.total.gib_hours_used == pytest.approx(50 / 1024 * 10)


def test_a_job_that_runs_counts_up_to_now_and_says_nothing_of_efficiency() -> None:
    running = record(1, state="RUNNING", started=None, submitted=NOW - 1800, ended=None, tasks=[])
    [whole] = report(rows([running]), "total", MONDAY, NOW)
    assert whole.total.cpu_hours == pytest.approx(1.0)
    assert whole.total.efficiency is None


@given(
    st.lists(st.tuples(st.floats(0, 5 * DAY), st.floats(1, 2 * DAY), st.sampled_from("abc")), max_size=20),
    st.sampled_from(["day", "week", "month", "total"]),
)
def test_no_time_is_lost_or_told_twice(ran: list[tuple[float, float, str]], by: str) -> None:
    now = MONDAY + 8 * DAY
    jobs = rows([step(number, user, MONDAY + at, length) for number, (at, length, user) in enumerate(ran, 1)])
    whole = Sum()
    for one in over_all(report(jobs, by, MONDAY, now)).values():
        whole.add(one)
    assert whole.jobs == len(ran)
    assert whole.allocated == pytest.approx(sum(2 * length for _, length, _ in ran), rel=1e-4)
    assert whole.used == pytest.approx(sum(length for _, length, _ in ran), rel=1e-4)


def test_percentiles_are_values_that_there_were() -> None:
    assert percentile([], 50) is None
    assert percentile([3.0], 95) == 3.0
    assert percentile([5.0, 1.0, 2.0], 50) == 2.0
    assert percentile(list(range(100)), 95) == 94


def test_text_json_and_csv_tell_the_same() -> None:
    periods = report(
        rows([step(1, "alice", MONDAY, 3600), step(2, "=bob", MONDAY, 1800)]), "day", MONDAY, MONDAY + DAY - 1
    )
    lines = listing(periods, 4)
    assert lines[1].split() == [
        "2026-11-16", "alice", "1", "2.00", "66.7%", "50.0%", "00:01:00", "00:01:00", "0.10", "0.05",
    ]  # fmt: skip
    assert lines[3].split()[:5] == ["2026-11-16", "all", "2", "3.00", "100.0%"]
    assert lines[-1] == "3.00 CPU-hours of 96.00 that this machine has in that time: 3.1%"
    found = json.loads(json.dumps(as_json(periods)))
    assert [row["user"] for row in found["rows"]] == ["alice", "=bob", "all"]
    assert found["total"][0]["cpu_hours"] == 2
    read = list(csv.DictReader(io.StringIO(as_csv(periods))))
    assert [(row["user"], float(row["cpu_hours"])) for row in read] == [("alice", 2.0), ("'=bob", 1.0), ("all", 3.0)]


def test_nothing_ran() -> None:
    assert listing(report([], "day", MONDAY, NOW), 4)[0] == "no job ran"


def test_picture_is_a_document_with_a_bar_for_what_each_user_had() -> None:
    jobs = rows([step(number, f"user{number % 12}", MONDAY + 3600, 3600) for number in range(1, 25)])
    document = ElementTree.fromstring(picture(report(jobs, "day", MONDAY, NOW), "day"))  # noqa: S314  # ours
    rectangles = [one for one in document.iter() if one.tag.endswith("rect")]
    tips = ["".join(one.itertext()) for one in rectangles if len(one)]
    assert len(tips) == 12
    assert all(tip.startswith("2026-11-16: user") for tip in tips)
    assert any("4 others" in "".join(one.itertext()) for one in document.iter() if one.tag.endswith("text"))


@pytest.mark.parametrize(
    "bars",
    [
        [],
        [("a", {})],
        [("a", {"<&>\x00\x1b": 1.0})],
        [(str(n), {"u": 1e-9 * n}) for n in range(400)],
        [("a", {"u": 1e12})],
    ],
)
def test_any_sums_make_a_picture(bars: list[tuple[str, dict[str, float]]]) -> None:
    document = ElementTree.fromstring(stacked_bars.draw("title", "unit", bars))  # noqa: S314
    width, height = float(document.attrib["width"]), float(document.attrib["height"])
    for one in document.iter():
        if one.tag.endswith("rect"):
            assert float(one.attrib.get("y", 0)) >= 0
            assert float(one.attrib.get("x", 0)) + float(one.attrib["width"]) <= width + 1
            assert float(one.attrib.get("y", 0)) + float(one.attrib["height"]) <= height + 1
