"""The table of `nodectl top`, and its picture."""

from __future__ import annotations

from typing import Any

import pytest

from nodectl.client.render.occupants import occupation
from nodectl.placement.machine.spec import named
from nodectl.view.live.view import Row
from nodectl.view.top import columns, picture


def row(job: int, **others: Any) -> Row:
    values: dict[str, Any] = {
        "job": job, "step": 0, "name": f"{job}.0", "user": "alice", "title": "solve", "state": "RUNNING", "ntasks": 1,
        "cpus": 2, "cpu_list": "0-1", "elapsed": 90_000.0, "gres": "", "command": "./solve all of it",
        "cpu": 1.5, "memory": 3 << 30, "pressure": {"cpu": 12.0, "io": 3.0},
    }  # fmt: skip
    return Row(**{**values, **others})


WAITING: dict[str, Any] = {"step": None, "state": "PENDING", "cpu": None, "memory": None, "pressure": {}}


@pytest.mark.parametrize("width", [40, 79, 120, 199])
def test_columns_fit_and_narrow_terminals_keep_what_matters(width: int) -> None:
    rows = [row(7, user="a_long_name_of_a_user", title="x" * 50), row(8, **WAITING)]
    shown = columns.fitting(rows, width, "CPU%")
    assert sum(wide + columns.GAP for _, wide in shown) <= width
    titles = [column.title for column, _ in shown]
    assert {"STEP", "CPU%", "MEM"} <= set(titles)
    if width >= 79:
        assert {"USER", "NAME", "STATE", "TIME", "CPUS", "STALL%"} <= set(titles)
    assert ("COMMAND OR REASON" in titles) == (width >= 120)


def test_reason_is_seen_on_a_narrow_terminal_before_what_says_less() -> None:
    rows = [row(7), row(8, reason="Resources: wants 8 CPUs, 2 are free", **WAITING)]
    shown = {column.title: wide for column, wide in columns.fitting(rows, 79, "STEP")}
    assert list(shown)[:3] == ["", "STEP", "STATE"]
    assert shown["COMMAND OR REASON"] >= 26
    assert {"USER", "NAME", "CPU%", "MEM"} <= shown.keys()


def test_cells_that_are_cut_get_the_room_that_reasons_do_not_need() -> None:
    def shown(width: int) -> dict[str, int]:
        rows = [row(7, user="a_long_name_of_a_user", gres="gpu:0/shard:3/mem:61440M", command="./solve")]
        return {column.title: wide for column, wide in columns.fitting(rows, width, "STEP")}

    assert {"USER": 21, "DEVICES": 24}.items() <= shown(200).items()
    assert {"USER": 8}.items() <= shown(79).items()
    assert sum(wide + columns.GAP for wide in shown(200).values()) <= 200


def test_a_long_command_cuts_no_name_on_a_wide_terminal() -> None:
    def shown(width: int, name: int, **others: Any) -> dict[str, int]:
        rows = [row(7, title="n" * name, command="./solve " + "x" * 200), row(8, **WAITING, **others)]
        wide = {column.title: wide for column, wide in columns.fitting(rows, width, "STEP")}
        assert sum(wide.values()) + columns.GAP * len(wide) <= width
        return wide

    assert shown(200, 32)["NAME"] == 32
    assert shown(200, 300)["COMMAND OR REASON"] == 40
    assert 20 < shown(170, 60)["NAME"] < 60  # as much as there is room for
    assert shown(200, 300, reason="Resources: " + "y" * 70)["COMMAND OR REASON"] == 70


def test_last_column_has_the_words_of_a_reason_and_how_far_a_bulk_is() -> None:
    waits = row(8, reason="Priority: 1 job before it in line", **WAITING)
    assert columns.last_words(waits) == "1 job before it in line"
    assert columns.last_words(row(8, reason="Priority", **WAITING)) == "Priority"
    assert columns.last_words(row(7, reason="3 of 6 done")) == "3 of 6 done; ./solve all of it"


def test_only_waiting_jobs_have_no_columns_of_running_ones() -> None:
    titles = {column.title for column, _ in columns.fitting([row(8, reason="Priority", **WAITING)], 79, "STEP")}
    assert not {"CPU%", "MEM", "TIME", "STALL%"} & titles


def test_columns_that_say_nothing_are_left_out() -> None:
    def titles(*rows: Row) -> set[str]:
        return {column.title for column, _ in columns.fitting(rows, 200, "STEP")}

    assert not {"DEVICES", "LIMIT", "I/O/s"} & titles(row(7))
    assert {"DEVICES", "I/O/s"} <= titles(row(7), row(8, gres="gpu:2", read=5.0, written=0.0))


def test_what_waits_stands_last_and_the_greatest_first() -> None:
    rows = [row(7, cpu=0.5), row(8, **WAITING), row(9, cpu=None), row(10, cpu=2.0)]

    def order(by: str, **how: bool) -> list[int]:
        return [found.job for found in columns.arranged(rows, by, "", **how)]

    assert order("CPU%") == [10, 7, 9, 8]
    assert order("STEP") == [7, 9, 10, 8]
    assert order("STEP", turned=True) == [10, 9, 7, 8]


def test_tasks_of_an_array_stand_in_the_order_of_their_names() -> None:
    rows = [
        row(13, name="13_10.batch"), row(14, name="13_2.batch"), row(15, name="13_1.batch"), row(9),
        row(16), row(12, name="12_[1-9]", **WAITING), row(17, name="12_0", **WAITING),
    ]  # fmt: skip
    names = [one.name for one in columns.arranged(rows, "STEP", "")]
    assert names == ["9.0", "13_1.batch", "13_2.batch", "13_10.batch", "16.0", "12_0", "12_[1-9]"]


def test_filter_finds_users_names_states_and_jobs() -> None:
    rows = [row(7), row(18, user="bob", **WAITING)]

    def found(words: str) -> list[int]:
        return [one.job for one in columns.arranged(rows, "STEP", words)]

    assert (found("BOB"), found("waits"), found("alice runs"), found("bob runs")) == ([18], [18], [7], [])


@pytest.mark.parametrize(
    ("count", "words"),
    [(None, "-"), (0, "0.0K"), (1536, "1.5K"), (10 << 20, "10M"), (999 << 20, "999M"), (1000 << 20, "1.0G")],
)
def test_amounts_are_short(count: int | None, words: str) -> None:
    assert columns.amount(count) == words


def test_the_worst_stall_is_named() -> None:
    assert (columns.pressure(row(7)), columns.pressure(row(7, pressure={"io": 0.1}))) == ("cpu 12", "0")


@pytest.mark.parametrize("machine", ["1s:4c:2t", "2s:128c:2t"])
def test_letters_of_jobs_are_coloured_and_nothing_else(machine: str) -> None:
    steps = [
        {"job": 7, "step": 0, "user": "a", "name": "x", "ntasks": 1, "cpus": "3", "tasks": [{"task": 0, "cpus": "1"}]},
        {"job": 8, "step": 0, "user": "b", "name": "y", "ntasks": 1, "cpus": "c"},
    ]
    for eight in (True, False):
        drawn = picture.draw(named(machine), occupation(steps), 100, eight=eight)
        coloured = [drawn.plain[span.start : span.end] for span in drawn.spans]
        assert coloured in (["A0", "A", "B", "B"], ["A", "B"])
        assert len({str(span.style) for span in drawn.spans}) == 2
