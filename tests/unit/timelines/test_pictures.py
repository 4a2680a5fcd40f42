"""The picture of a launch, and two launches beside each other."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from nodectl.view.timelines import comparison, picture
from nodectl.view.timelines.scale import Scale, fitting, shown
from unit.timelines.traces import TRACE, launch, line, task

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    """What is written in a picture."""
    return ["  ".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314  # ours


def test_every_process_and_call_is_named_with_its_time() -> None:
    found = texts(picture.draw([launch()]))
    assert "Launch of step 7.0: so<lve, 2 tasks of alice" in found
    assert {"daemon", "stepd", "task 0", "task 1"} <= set(found)
    assert "slurm_spank_user_init  mark  100 us" in found
    assert "fork  2 times  300 us" in found
    assert found.count("exec  the program begins") == 2
    assert "slurm_spank_exit  mark  100 us  rc -1: no\\x1b[31m & so on" in found


def test_colours_say_as_whom_and_who_does_it() -> None:
    classes = re.findall(r'<rect class="(\w+ \w+)"[^>]*><title>(\w+)', picture.draw([launch()]))
    assert {("root hook", "task_p_slurmd_launch_request"), ("effective hook", "slurm_spank_user_init"),
            ("root own", "fork"), ("user waits", "gate"), ("user own", "exec")} <= set(classes)  # fmt: skip


def test_of_many_tasks_each_has_a_row_and_the_picture_stays_bounded() -> None:
    many = launch([*TRACE[:2], *(row for number in range(300) for row in task(number, 600 + 10 * number))])
    found = texts(picture.draw([many]))
    assert {"task 0", "task 1", "task 60"} <= set(found)
    assert "and 238 tasks more" in found
    assert found.count("become_user  20 us") == 1
    assert "task 299" not in found


def test_of_thousands_of_calls_those_are_drawn_that_can_be_told_apart() -> None:
    calls = [line(10 * number, 5, "fork", "stepd", 20, task=number) for number in range(5000)]
    calls[2500] = {**calls[2500], "rc": -1}
    svg = picture.draw([launch(calls)])
    assert svg.count("<rect") < 1000
    assert "fork [2500]" in svg
    assert "fork  5000 times  25.00 ms  rc -1" in texts(svg)


def test_words_that_fit_neither_behind_nor_before_bars_stand_above_them() -> None:
    calls = [line(100 * number, 5, "slurm_spank_task_post_fork", "stepd", 20, plugin="p" * 40) for number in range(9)]
    svg = picture.draw([launch(calls)])
    places = [(float(x), float(y)) for x, y in re.findall(r'<text x="([\d.]+)" y="([\d.]+)">slurm_spank', svg)]
    bars = [float(y) for y in re.findall(r'<rect class="root hook" x="[\d.]+" y="([\d.]+)"[^>]*><title>', svg)]
    assert [x for x, _ in places] == [96.0]
    assert places[0][1] < min(bars)


def test_an_hour_in_which_a_program_ran_is_cut_out() -> None:
    hour = 3_600_000_000
    long = launch([*TRACE[:-1], line(hour, 100, "slurm_spank_exit", "stepd", 20, plugin="mark")])
    assert [end - begin for begin, end in shown(long)] == [1_800_000, 100_000]
    svg = picture.draw([long])
    assert "3600.00 s no calls" in texts(svg)
    places = [float(x) for x in re.findall(r'<rect class="root hook" x="([\d.]+)"', svg)]
    assert max(places) - min(places) > 1000, "what was before and after it fills the picture"


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**6)), min_size=1, max_size=20))
def test_times_stand_in_their_order_within_the_picture(times: list[tuple[int, int]]) -> None:
    made = launch([line(at, us, f"call{place}", "stepd", 20) for place, (at, us) in enumerate(times)])
    scale = Scale(made, fitting([made], 1000))
    found = [
        scale.x(at) for at in sorted({edge for call in made.processes[0].calls for edge in (call.begin, call.end)})
    ]
    assert all(before <= after for before, after in pairwise(found))
    assert found[0] == 0
    assert found[-1] <= 1000.001
    assert all(0 <= x <= 1000.001 for x, _ in scale.ticks())


def test_two_launches_are_drawn_with_one_scale() -> None:
    quick = launch([row for row in TRACE if row["t"] <= 5_001_000_000], job=8)
    found = texts(picture.draw([launch(), quick]))
    assert [text[:22] for text in found if "aunch of" in text] == ["A: Launch of step 7.0:", "B: Launch of step 8.0:"]
    assert fitting([launch(), quick], 1000) == fitting([launch()], 1000) > fitting([quick], 1000)


def test_comparison_has_each_call_once_and_its_difference() -> None:
    slower = [{**row, "us": row["us"] + 50} if row["call"] == "fork" else row for row in TRACE]
    slower.insert(1, line(250, 10, "slurm_spank_init", "stepd", 20, plugin="new"))
    found = [" ".join(row.split()) for row in comparison.compared(launch(), launch(slower, job=8))]
    assert "until the first program 1.60 ms 1.60 ms same" in found
    assert "2 300 us 2 400 us +100 us stepd fork" in found
    assert "- - 1 10 us - stepd slurm_spank_init new" in found
    calls = [row.split()[-1] for row in found if " stepd " in row]
    assert calls == ["new", "mark", "fork", "mark"], "in the order of the launch"
    assert all(len(row) <= 80 for row in comparison.compared(launch(), launch(slower), 80))


def test_epilogs_that_run_side_by_side_have_lanes_of_their_own() -> None:
    made = launch([
        line(0, 1, "slurm_spank_init", "stepd", 20),
        line(2, 9, "task_epilog", "stepd", 20, task=0),
        line(3, 1, "task_epilog", "stepd", 20, task=1),
        line(5, 1, "slurm_spank_task_exit", "stepd", 20, task=1),
        line(12, 1, "slurm_spank_exit", "stepd", 20),
    ])  # fmt: skip
    assert [(process.name, process.lane) for process in made.processes] == [("stepd", 0), ("stepd, beside it", 1)]
    first, second = ([call.name for call in process.calls] for process in made.processes)
    assert first == ["slurm_spank_init", "task_epilog", "slurm_spank_exit"]
    assert second == ["task_epilog", "slurm_spank_task_exit"]
