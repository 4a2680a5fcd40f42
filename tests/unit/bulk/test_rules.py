"""--halt, --timeout and exit statuses; what is shown of how far it is."""

from __future__ import annotations

import os
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.bulk.commands import Command
from nodectl.bulk.halt import halt
from nodectl.bulk.median import Median
from nodectl.bulk.options import BulkParser, seconds, slots, time_limit
from nodectl.bulk.progress import Progress
from nodectl.bulk.rules import Rules
from nodectl.bulk.tally import Ending, Tally
from nodectl.client.command import BadOption

# What GNU parallel 20221122 -j1 makes of 'exit {}' ::: 0 3 0 4 5 6: how many it runs, and its own exit status.
PARALLELS = [
    ("now,fail=1", 2, 3), ("soon,fail=1", 2, 3), ("now,fail=2", 4, 2), ("now,success=1", 1, 0), ("now,done=1", 1, 0),
    ("soon,done=2", 2, 1), ("now,fail=50%", 5, 50), ("50%", 5, 50), ("now,success=50%", 6, 67), ("1", 2, 3),
    ("2", 2, 3), ("-1", 1, 0), ("-2", 1, 0), ("never", 6, 4), ("0", 6, 4),
]  # fmt: skip


@pytest.mark.parametrize(("text", "runs", "status"), PARALLELS)
def test_it_halts_where_parallel_halts(text: str, runs: int, status: int) -> None:
    codes = (0, 3, 0, 4, 5, 6)
    rule, tally, reached = halt(text), Tally(), False
    for number, code in enumerate(codes, 1):
        tally.note(Ending({"status": code << 8}), Command(number, f"exit {code}", ()))
        if rule.left(tally.failed, tally.succeeded, len(codes)) == 0:
            reached = True
            break
    assert tally.done == runs
    assert rule.exit_status(tally.failed, len(codes), tally.last, reached=reached) == status


def test_people_are_told_how_many_failed_and_which_was_the_first() -> None:
    tally = Tally()
    tally.note(Ending({"status": 0}), Command(1, "true", ()))
    assert tally.words(1) == "1 of 1 command ended, none failed"
    tally.note(Ending({"status": 9}), Command(3, "stuck\n", ()))
    tally.note(Ending({"status": 256}), Command(2, "false", ()))
    assert tally.words(5) == "3 of 5 commands ended, 2 failed; the first was number 3 (signal 9): stuck\\n"
    assert tally.words(None).startswith("3 commands ended, 2 failed; ")


def test_more_than_a_hundred_failures_are_a_hundred_and_one() -> None:
    assert [halt("never").exit_status(failed, 999, 1, reached=False) for failed in (0, 7, 100, 101, 500)] == [
        0, 7, 100, 101, 101,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "now", "now,fail", "now,fail=", "now,fail=0", "later,fail=1", "now,lost=1", "now,fail=x", "3"]
)
def test_what_is_no_rule_of_halting_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid value"):
        halt(text)


@pytest.mark.parametrize(
    ("event", "seen"),
    [
        ({"status": 0}, (0, 0, 0)),
        ({"status": 3 << 8}, (3, 0, 3)),
        ({"status": 9}, (0, 9, 137)),
        ({"status": 15, "timed_out": True}, (-1, 15, 143)),
        ({"status": 0, "timed_out": True}, (-1, 15, 0)),
        ({"status": 2 << 8, "failed": "execve: No such file"}, (127, 0, 127)),
        ({"status": 13 << 8, "failed": "execve: Permission denied"}, (126, 0, 126)),
    ],
)
def test_an_end_is_noted_as_parallel_notes_it(event: dict[str, object], seen: tuple[int, int, int]) -> None:
    ending = Ending(event)
    assert (ending.exit_value, ending.signal, ending.status) == seen
    assert ending.failed is (seen != (0, 0, 0))


@given(st.lists(st.floats(0.001, 10_000), min_size=1, max_size=60))
def test_the_median_is_told_within_some_percent(values: list[float]) -> None:
    median = Median()
    for value in values:
        median.add(value)
    assert median.value() == pytest.approx(statistics.median_low(values), rel=0.02)


def test_a_time_limit_in_percent_needs_some_run_times() -> None:
    rules = Rules(timeout=time_limit("200%"))
    for _ in range(3):
        assert (rules.too_few, rules.seconds()) == (True, 0.0)
        rules.took(2.0)
    assert not rules.too_few
    assert rules.seconds() == pytest.approx(4.0, rel=0.02)


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("0.5", 0.5), (".5", 0.5), ("2m", 120), ("1.5h", 5400), ("1d", 86400)]
)
def test_times_are_seconds_or_have_a_unit(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", ".", "x", "1x", "-1", "1e9", "nan", "m", "1..2"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid time"):
        seconds(text)


def test_progress_tells_rate_and_time_left_in_one_line() -> None:
    now = 100.0
    progress = Progress(None, 1000, bar=True, clock=lambda: now)
    now += 10
    line = progress.line(250, 3, 2)
    assert line == "[#######.......................] 25%, 250/1000 done, 3 failed, 2 running, 25/s, 30 s left"
    assert Progress(None, None, clock=lambda: now).line(0, 0, 0) == "0 done, 0 failed, 0 running, 0/s"


@pytest.mark.parametrize(
    ("text", "number"),
    [("3", 3), ("0", 0), ("+0", 8), ("+3", 11), ("-3", 5), ("-8", 1), ("-99", 1), ("50%", 4), ("1%", 1), ("250%", 20)],
)
def test_slots_are_counted_from_the_cpus(monkeypatch: pytest.MonkeyPatch, text: str, number: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    assert slots(text) == number


@pytest.mark.parametrize("text", ["", "+", "-", "+-1", "--1", "0%", "x", "1.5", "+1%"])
def test_what_is_no_number_of_slots_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid value"):
        slots(text)


@pytest.mark.parametrize("words", [["-L2"], ["-L", "2"], ["--max-lines=2"], ["-N2"], ["--max-args", "2"]])
def test_lines_for_each_command_are_values_for_each_command(words: list[str]) -> None:
    assert BulkParser().parse([*words, "echo"]).values["per_command"] == 2


@pytest.mark.parametrize(
    ("words", "instead"),
    [(["--pipe"], "split"), (["-X"], "-N 100"), (["--sshlogin=a"], "--nodes"), (["--memfree", "1G"], "--mem"),
     (["--load=50%"], "CPUs"), (["--shuf"], "shuf(1)")],
)  # fmt: skip
def test_an_option_of_parallel_that_bulk_lacks_is_refused_with_what_to_do(words: list[str], instead: str) -> None:
    with pytest.raises(BadOption, match="bulk has no ") as refused:
        BulkParser().parse([*words, "echo"])
    assert instead in str(refused.value)
