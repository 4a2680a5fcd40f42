"""Cores that are kept for users in a span of time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.scheduler import reservation
from nodectl.scheduler.decisions import NotAdmitted
from nodectl.scheduler.reservation import REPEATS, occurrence
from nodectl.scheduler.scheduler import Scheduler
from nodectl.selection.records import ReservationRequest
from unit.scheduler.bench import NOW, PLAIN, Bench


def request(start: float = 1000, end: float = 2000, cores: int = 4, **fields: Any) -> ReservationRequest:
    return ReservationRequest("team", NOW + start, NOW + end, core_cnt=cores, users=("u1000",), **fields)


def test_others_keep_off_when_they_would_run_into_it() -> None:
    bench = Bench()
    bench.scheduler.reserve(request(), bench.at)
    before, into, beside = bench.submit(8, limit=1000), bench.submit(8, limit=1001), bench.submit(4, limit=1050)
    assert bench.look() == [before]
    assert bench.scheduler.expected_start(into, bench.at) == NOW + 2000
    bench.at += 900
    bench.end(before)
    assert bench.look() == [beside]
    bench.end(beside)
    assert not bench.look()
    assert bench.reason(into) == "Reservation"
    assert bench.scheduler.next_time(bench.at) == NOW + 1000
    assert not bench.look(100)
    assert bench.scheduler.next_time(bench.at) == NOW + 2000
    assert bench.look(1000) == [into]
    assert not bench.scheduler.reservations


def test_its_users_run_inside() -> None:
    bench = Bench()
    made = bench.scheduler.reserve(request(), bench.at)
    assert sum(mask.bit_count() for mask in made.held.values()) == 4
    inside, open_end = bench.submit(2, reservation="team", limit=500), bench.submit(2, reservation="team", limit=0)
    assert not bench.look()
    assert bench.reason(inside) == "Reservation"
    assert bench.scheduler.explain(inside, bench.at).expected_start == NOW + 1000
    assert bench.look(1000) == [inside, open_end]
    assert open_end.time_limit == 1000
    late = bench.submit(1, reservation="team", limit=900)
    bench.at += 200
    bench.end(inside)
    assert not bench.look()
    said = bench.scheduler.explain(late, bench.at)
    assert (said.reason, said.what_would_help) == ("Reservation", ("a time limit of at most 00:13:20",))
    held = made.held["n1"]
    assert bench.selection.nodes.cpu_mask(bench.selection.nodes[0], open_end.job_resrcs.core_bitmap) & ~held == 0  # type: ignore[union-attr]


def test_who_may_not_have_it_is_refused() -> None:
    bench = Bench()
    bench.scheduler.reserve(request(), bench.at)
    for wrong, words in (
        ({"user": 2000}, "Access denied"), ({"reservation": "no"}, "no reservation no"),
        ({"limit": 1001}, "00:16:40 long, the job asks for 00:16:41: name a shorter --time"),
    ):  # fmt: skip
        with pytest.raises(NotAdmitted, match=words):
            bench.submit(**{"reservation": "team", **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"name": "team"}, "exists already"), ({"name": "../x"}, "name"), ({"end_time": NOW + 10}, "time"),
     ({"end_time": NOW - 5, "start_time": NOW - 10}, "time"), ({"users": ()}, "no user"),
     ({"node_list": "elsewhere"}, "elsewhere"), ({"core_cnt": 5}, "busy")],
)  # fmt: skip
def test_what_cannot_be_reserved_is_refused(wrong: dict[str, Any], words: str) -> None:
    bench = Bench()
    bench.scheduler.reserve(request(), bench.at)
    other = request()
    other.name = "other"
    for name, value in wrong.items():
        setattr(other, name, value)
    with pytest.raises(NotAdmitted, match=words):
        bench.scheduler.reserve(other, bench.at)
    assert list(bench.scheduler.reservations) == ["team"]


def test_running_jobs_keep_what_they_have() -> None:
    bench = Bench()
    bench.run(5, limit=0)
    with pytest.raises(NotAdmitted, match="busy"):
        bench.scheduler.reserve(request(), bench.at)
    bench.scheduler.reserve(request(cores=3), bench.at)


def test_it_lives_through_a_restart_and_can_be_given_up() -> None:
    bench = Bench()
    made = bench.scheduler.reserve(request(0, 1000), bench.at)
    bench.scheduler = Scheduler(bench.selection, PLAIN, reservations=[made])
    job = bench.submit(8)
    assert not bench.look()
    bench.scheduler.delete_reservation("team")
    assert bench.look() == [job]
    with pytest.raises(KeyError):
        bench.scheduler.delete_reservation("team")


def test_a_job_of_a_reservation_that_was_given_up_waits_and_says_so() -> None:
    bench = Bench()
    bench.scheduler.reserve(request(), bench.at)
    job = bench.submit(reservation="team", limit=10)
    bench.scheduler.delete_reservation("team")
    assert not bench.look()
    assert bench.scheduler.explain(job, bench.at).words == "reservation team is over"
    bench.scheduler.update(job, {"reservation": ""}, bench.at)
    assert bench.look() == [job]


@contextlib.contextmanager
def in_berlin() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def berlin() -> Iterator[None]:
    with in_berlin():
        yield


def at(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M"))


def again(flag: str, start: str, hours: float, name: str = "team", cores: int = 4) -> ReservationRequest:
    begin = at(start)
    return ReservationRequest(name, begin, begin + hours * 3600, core_cnt=cores, users=("u1000",), flags=(flag,))


def times(flag: str, start: str, hours: float, after: str) -> str:
    begin, end = occurrence(again(flag, start, hours), at(after))
    assert end > at(after)
    return f"{time.strftime('%F %R', time.localtime(begin))}-{time.strftime('%R', time.localtime(end))}"


@pytest.mark.usefixtures("berlin")
def test_reservations_come_again_at_the_same_time_of_the_day() -> None:
    first = "2026-10-23 09:00"  # a Friday; on Sunday clocks are set back
    assert times("DAILY", first, 3, "2026-10-23 11:59") == "2026-10-23 09:00-12:00"
    assert times("DAILY", first, 3, "2026-10-24 12:00") == "2026-10-25 09:00-12:00"
    assert times("WEEKDAY", first, 3, "2026-10-23 12:00") == "2026-10-26 09:00-12:00"
    assert times("WEEKDAY", "2026-10-24 09:00", 3, "2026-10-20 00:00") == "2026-10-26 09:00-12:00"
    assert times("WEEKLY", first, 3, "2026-10-23 12:00") == "2026-10-30 09:00-12:00"
    assert times("WEEKLY", first, 3, "2046-10-23 12:00") == "2046-10-26 09:00-12:00"


@pytest.mark.usefixtures("berlin")
def test_jobs_keep_off_the_next_occurrence_and_its_users_run_in_it() -> None:
    bench = Bench()
    bench.at = at("2026-10-19 08:00")
    bench.scheduler.reserve(again("DAILY", "2026-10-19 09:00", 2, cores=8), bench.at)
    bench.at = at("2026-10-19 10:30")
    late = bench.submit(1, reservation="team", limit=3600)  # half an hour is left today
    other = bench.submit(1, limit=23 * 3600)
    assert not bench.look()
    bench.at = at("2026-10-19 11:00")
    assert not bench.look()  # 23 hours reach into tomorrow's
    assert bench.scheduler.next_time(bench.at) == at("2026-10-20 09:00")
    bench.scheduler.update(other, {"time_limit": 22 * 3600}, bench.at)
    assert bench.look() == [other]
    bench.at = at("2026-10-20 09:00")
    bench.end(other)
    assert bench.look() == [late]
    assert [one.start_time for one in bench.scheduler.reservations.values()] == [bench.at]


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("other", "meets"),
    [
        (("WEEKLY", "2026-10-20 09:00", 2), False),  # a Tuesday
        (("WEEKLY", "2027-10-18 10:00", 2), True),  # a Monday a year later
        (("DAILY", "2026-10-13 08:00", 1), False),
        (("WEEKDAY", "2026-10-14 08:00", 1.5), True),
        (("", "2027-11-01 10:00", 1), True),
        (("", "2027-11-02 10:00", 1), False),
    ],
)
def test_two_reservations_never_have_the_same_cores_at_a_time(other: tuple[str, str, float], meets: bool) -> None:
    for first, second in ((("WEEKLY", "2026-10-19 09:00", 2.0), other), (other, ("WEEKLY", "2026-10-19 09:00", 2.0))):
        bench = Bench()
        now = at("2026-10-12 00:00")
        bench.scheduler.reserve(again(*first, name="first", cores=8), now)
        if meets:
            with pytest.raises(NotAdmitted):
                bench.scheduler.reserve(again(*second, name="second", cores=8), now)
        else:
            bench.scheduler.reserve(again(*second, name="second", cores=8), now)


@pytest.mark.usefixtures("berlin")
def test_a_reservation_ends_before_it_comes_again() -> None:
    bench = Bench()
    now = at("2026-10-12 00:00")
    with pytest.raises(NotAdmitted, match="ends before it comes again"):
        bench.scheduler.reserve(again("DAILY", "2026-10-19 09:00", 25), now)
    bench.scheduler.reserve(again("WEEKLY", "2026-10-19 09:00", 25), now)


@pytest.mark.usefixtures("berlin")
def test_the_next_daemon_has_it_also_where_it_ended_meanwhile() -> None:
    bench = Bench()
    made = bench.scheduler.reserve(again("WEEKLY", "2026-10-19 09:00", 2, cores=8), at("2026-10-12 00:00"))
    after = Scheduler(bench.selection, PLAIN, reservations=[made])
    now = at("2026-10-21 00:00")
    list(after.schedule(now))
    assert [one.start_time for one in after.reservations.values()] == [at("2026-10-26 09:00")]


def test_gpus_of_a_reservation_stay_free_for_its_jobs() -> None:
    bench = Bench()  # 8 cores, 4 GPUs
    running = bench.run(gres={"gpu": 1}, limit=5000)
    bench.scheduler.reserve(request(cores=1, gpus=2), bench.at)
    short = bench.submit(gres={"gpu": 3}, limit=1000)
    assert bench.look() == [short]
    bench.end(short)
    fits, too_many = bench.submit(gres={"gpu": 1}, limit=1500), bench.submit(gres={"gpu": 1}, limit=1500)
    assert bench.look() == [fits]
    said = bench.scheduler.explain(too_many, bench.at)
    assert (said.reason, said.expected_start) == ("Reservation", NOW + 2000)
    assert said.words == "of 4 GPUs, reservation team keeps 2 and other jobs use 2"
    inside = bench.submit(gres={"gpu": 2}, limit=500, reservation="team")
    assert bench.look(1000) == [inside]
    bench.end(fits)
    assert bench.look() == [too_many]
    bench.end(running)
    bench.end(inside)
    assert bench.submit(gres={"gpu": 2}, limit=100) not in bench.look()  # the reservation's own are still to come
    assert bench.scheduler.next_time(bench.at) == NOW + 2000
    assert len(bench.look(1000)) == 1


def test_more_gpus_than_there_are_cannot_be_reserved() -> None:
    bench = Bench()
    bench.run(gres={"gpu": 2}, limit=1500)
    bench.scheduler.reserve(request(cores=1, gpus=2, start=1200), bench.at)
    other = ReservationRequest("other", NOW + 1400, NOW + 3000, core_cnt=1, users=("u1000",), gpus=1)
    with pytest.raises(
        NotAdmitted, match="4 GPUs, and in this time other reservations keep 2 and running jobs may use 2"
    ):
        bench.scheduler.reserve(other, bench.at)
    other.start_time = NOW + 1500
    bench.scheduler.reserve(other, bench.at)


def test_a_gpu_of_which_many_jobs_have_parts_is_one_gpu_to_a_reservation() -> None:
    bench = Bench(nodes="1s:16c:1t,mem=8G,gpu=4,shard=16,gpumem=16000")  # four shards of each GPU
    bench.scheduler.reserve(request(cores=1, gpus=1), bench.at)
    parts = [bench.submit(1, gres={"shard": 1}, limit=5000) for _ in range(13)]
    assert bench.look() == parts[:12], "of three GPUs all parts, and none of the last one"
    assert bench.reason(parts[12]) == "Reservation"
    assert bench.scheduler.explain(parts[12], bench.at).words == (
        "of 4 GPUs, reservation team keeps 1 and other jobs use 3"
    )
    inside = bench.submit(1, gres={"gpu": 1}, limit=500, reservation="team")
    assert bench.look(1000) == [inside]


def test_parts_of_one_gpu_leave_the_others_to_a_new_reservation() -> None:
    bench = Bench(nodes="1s:8c:1t,mem=8G,gpu=4,shard=16,gpumem=16000")
    for _ in range(4):
        bench.run(1, gres={"gpumem": 1}, limit=5000)
    with pytest.raises(NotAdmitted, match="running jobs may use 1"):
        bench.scheduler.reserve(request(cores=1, gpus=4), bench.at)
    bench.scheduler.reserve(request(cores=1, gpus=3), bench.at)


def test_the_line_is_compared_with_reservations_and_running_jobs_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(nodes="1s:8c:1t,mem=8G,gpu=4")
    bench.run(1, gres={"gpu": 2}, limit=5000)
    bench.scheduler.reserve(request(cores=1, gpus=2), bench.at)
    waiting = [bench.submit(1, gres={"gpu": 1}, limit=5000 + number) for number in range(20)]
    sums = Mock(wraps=reservation._gpus_of)
    monkeypatch.setattr(reservation, "_gpus_of", sums)
    assert not bench.look()
    assert {job.state_reason for job in waiting} == {"Reservation"}
    assert sums.call_count == 1


@pytest.mark.usefixtures("berlin")
def test_an_occurrence_on_the_day_on_which_clocks_change_moves_none_of_the_others() -> None:
    bench = Bench()
    bench.at = at("2026-03-20 12:00")
    made = bench.scheduler.reserve(again("DAILY", "2026-03-21 02:30", 0.5, cores=8), bench.at)
    first = (made.start_time, made.end_time)
    seen: dict[str, str] = {}
    while bench.at < at("2027-04-01 00:00"):
        bench.look(12 * 3600)
        (one,) = bench.scheduler.reservations.values()
        assert one.start_time < one.end_time
        assert bench.at < one.end_time <= bench.at + 49 * 3600
        day = time.localtime(one.start_time)
        seen[time.strftime("%F", day)] = (
            f"{time.strftime('%R', day)}-{time.strftime('%R', time.localtime(one.end_time))}"
        )
        # What is planned for a later time is reckoned from the same times.
        month = bench.at + 30 * 86_400
        assert bench.scheduler._reservations._times("team", month) == occurrence(made, month)
    assert set(seen.values()) == {"02:30-03:00"}
    assert len(seen) == 375, "two days have no half hour like this"
    assert not {"2026-03-29", "2027-03-28"} & set(seen)
    assert (made.start_time, made.end_time) == first, "the record, which is on the disk, keeps the times asked for"


@pytest.mark.usefixtures("berlin")
def test_reservations_that_follow_each_other_never_meet_on_the_day_on_which_clocks_change() -> None:
    """On 29 March the clock goes from 2:00 to 3:00."""
    night = "2026-03-28 "
    first, second, third = (
        again("DAILY", f"{night}01:00", 1.5),
        again("DAILY", f"{night}02:30", 1),
        again("DAILY", f"{night}03:30", 1),
    )
    spans = [occurrence(one, at("2026-03-28 20:00")) for one in (first, second, third)]
    three = at("2026-03-29 03:00")
    assert spans == [(three - 3600, three), (three, three + 1800), (three + 1800, three + 5400)]
    bench = Bench()
    for number, start in enumerate(("01:00", "02:30", "03:30")):
        hours = 1.5 if start == "01:00" else 1
        bench.scheduler.reserve(
            again("DAILY", f"{night}{start}", hours, name=f"r{number}", cores=8), at("2026-03-20 00:00")
        )


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("flag", ["DAILY", "WEEKLY"])
def test_reservations_that_meet_but_for_the_day_on_which_clocks_change_are_refused(flag: str) -> None:
    bench = Bench()
    bench.scheduler.reserve(again("WEEKLY", "2026-03-22 02:15", 0.5, cores=8), at("2026-03-20 00:00"))
    begin = "2026-03-23" if flag == "DAILY" else "2026-03-29"
    with pytest.raises(NotAdmitted, match=r"nodes are busy|nothing can be reserved"):
        bench.scheduler.reserve(
            again(flag, f"{begin} 01:00" if flag == "WEEKLY" else f"{begin} 02:15", 1.5 if flag == "WEEKLY" else 0.5,
                  name="other", cores=8), at("2026-03-20 00:00"),
        )  # fmt: skip


@pytest.mark.usefixtures("berlin")
def test_a_clock_that_was_wrong_for_a_while_costs_no_occurrence() -> None:
    bench = Bench()
    bench.at = at("2026-10-19 08:00")
    bench.scheduler.reserve(again("DAILY", "2026-10-19 09:00", 2, cores=8), bench.at)
    for now, start in (("2036-01-01 00:00", "2036-01-01 09:00"), ("2026-10-19 08:01", "2026-10-19 09:00")):
        bench.at = at(now)
        bench.look()
        assert [one.start_time for one in bench.scheduler.reservations.values()] == [at(start)]


@settings(max_examples=200, deadline=None)
@given(
    flag=st.sampled_from(sorted(REPEATS)),
    begin=st.integers(0, 365 * 96),
    quarters=st.integers(1, 4 * 23),
    later=st.integers(0, 400 * 96),
)
def test_occurrences_stand_at_the_same_time_of_the_day_all_year(
    flag: str, begin: int, quarters: int, later: int
) -> None:
    with in_berlin():
        start = at("2026-01-01 00:00") + begin * 900
        one = ReservationRequest("team", start, start + quarters * 900, flags=(flag,))
        after = start + later * 900
        first, last = occurrence(one, after)
        assert first < last
        assert last > after
        clock, told = time.localtime(start), time.localtime(first)
        if (told.tm_hour, told.tm_min) != (clock.tm_hour, clock.tm_min):
            assert (told.tm_hour, told.tm_min, clock.tm_hour) == (3, 0, 2), "the hour that is left out"
            assert (told.tm_mon, told.tm_wday) == (3, 6)
        if flag == "WEEKLY":
            assert told.tm_wday == clock.tm_wday
        if flag == "WEEKDAY":
            assert told.tm_wday < 5
        # None stands between: the one before has ended.
        assert occurrence(one, first - 1)[0] <= first
        if first > start:
            days = {"DAILY": 3, "WEEKDAY": 8, "WEEKLY": 15}[
                flag
            ]  # one that is in the hour left out does not take place
            assert last - after <= days * 86_400 + 3600
