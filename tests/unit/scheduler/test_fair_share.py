"""What users used counts half after each half-life, without anybody adding to it."""

from __future__ import annotations

import pytest

from nodectl.scheduler.fair_share import FairShare

DAY = 86_400.0


def test_use_counts_half_after_a_half_life() -> None:
    shares = FairShare(DAY)
    shares.begin(1, 4, 0.0)
    shares.end(1, 4, 100.0)
    assert shares.used(1, 100.0) == pytest.approx(400, rel=1e-3)
    assert shares.used(1, 100.0 + DAY) == pytest.approx(200, rel=1e-3)


def test_one_long_job_is_charged_like_many_short_ones() -> None:
    one, many = FairShare(DAY), FairShare(DAY)
    one.begin(1, 2, 0.0)
    for hour in range(48):
        many.begin(1, 2, hour * 3600.0)
        many.end(1, 2, (hour + 1) * 3600.0)
    assert one.used(1, 48 * 3600.0) == pytest.approx(many.used(1, 48 * 3600.0))


def test_without_a_half_life_use_counts_for_ever() -> None:
    shares = FairShare(0)
    shares.begin(1, 2, 0.0)
    shares.end(1, 2, 10.0)
    assert shares.used(1, 1e9) == 20.0


def test_who_used_more_has_less() -> None:
    shares = FairShare(DAY, [(1, 900.0, 0.0), (2, 100.0, 0.0)])
    factors = shares.factors((1, 2, 3), 0.0)
    assert factors[1] < factors[2] < factors[3] == 1.0


def test_the_clock_may_be_set_back() -> None:
    shares = FairShare(DAY)
    shares.begin(1, 2, 1000.0)
    shares.begin(1, 2, 500.0)
    assert shares.used(1, 400.0) == 0.0
    assert shares.used(1, 510.0) == pytest.approx(40, rel=1e-3)


def test_accounts_live_on_in_their_rows_and_small_ones_are_forgotten() -> None:
    shares = FairShare(DAY, [(1, 1000.0, 0.0), (2, 1.0, 0.0)])
    rows = shares.rows(DAY * 2)
    assert [row[0] for row in rows] == [1]
    assert FairShare(DAY, rows).used(1, DAY * 3) == pytest.approx(125)


def test_rows_that_are_no_numbers_are_left_out() -> None:
    assert FairShare(DAY, [(1, float("nan"), 0.0), (2, float("inf"), 0.0)]).rows(0.0) == []
