"""The figures and the picture of a play, from stories that are written down by hand."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from nodectl.lab.simulation import gantt, picture, report
from nodectl.lab.simulation.gantt import Bar, Chart
from nodectl.lab.simulation.story import Played, Run, Share, Story, Violation

SVG = "{http://www.w3.org/2000/svg}"


def one_run(start: float, end: float, *cores: int, how: str = "COMPLETED") -> Run:
    return Run(start, {0: Share(cores, len(cores), 100)}, end, how)


def played() -> Played:
    """Four cores; ann has all of them from 0 to 100, ben two from 100 to 200 with a pause of 50 in it."""
    first = Story(1, "1", "ann", 0, 0, 4, 100, [one_run(0, 100, 0, 1, 2, 3)], "COMPLETED", "", 100)
    second = Story(2, "2", "ben", 0, 20, 2, 0, [one_run(100, 200, 0, 2)], "COMPLETED", "", 200)
    second.runs[0].pauses.append((120, 170))
    return Played("select/mine", "two", (("n<1>", 4, 4, 400),), [first, second], end=200)


def test_waits_run_from_when_a_job_might_have_started() -> None:
    found = report.figures(played())
    assert found["wait"] == {"mean": 40, "median": 0, "p95": 80, "max": 80}
    assert found["makespan"] == 200
    assert found["utilisation"] == pytest.approx((400 + 100) / 800)
    assert found["memory_utilisation"] == pytest.approx((100 * 100 + 100 * 100) / (200 * 400))
    assert [(user["user"], user["cpu_seconds"]) for user in found["users"]] == [("ann", 400), ("ben", 100)]


def test_slowdown_is_bounded_for_short_jobs() -> None:
    story = Story(1, "1", "ann", 0, 0, 1, 0, [one_run(9, 10, 0)], "COMPLETED", "", 10)
    assert report.slowdown(story, 10) == 1.0
    story.end = story.runs[0].end = 100.0
    story.runs[0].start = 80.0
    assert report.slowdown(story, 100) == 5.0


def test_a_suspended_job_uses_no_cpus() -> None:
    assert report.utilisation(played()) == [(0, 1.0), (100, 0.5), (120, 0.0), (170, 0.5), (200, 0.0)]


def test_who_waits_is_counted() -> None:
    assert report.waiting(played()) == [(0, 0), (20, 1), (100, 0)]


def test_the_report_has_one_column_for_each_plugin() -> None:
    other = played()
    other.plugin = "select/other"
    other.violations = [
        Violation(3, "core given twice", (1, 2), f"core {core // 2} of n1 to jobs 1 and 2") for core in range(60)
    ]
    lines = report.text([report.figures(played()), report.figures(other)])
    assert next(line for line in lines if "select/other" in line).split() == ["select/mine", "select/other"]
    assert next(line.split()[-2:] for line in lines if line.startswith("rules broken")) == ["0", "60"]
    assert sum("core given twice" in line and line.endswith(" (2 times)") for line in lines) == 20
    assert "and 10 more broken rules" in lines


def elements(document: str, name: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(document).iter(SVG + name))  # noqa: S314 - what we have just written


def test_each_job_is_a_bar_that_tells_of_itself() -> None:
    document = gantt.draw([picture.chart(played())])
    titles = [title.text or "" for title in elements(document, "title")]
    assert sum("job 1 of ann: 4 CPUs, 100 MiB" in text for text in titles) == 1
    # Two cores apart, three pieces of time.
    assert sum("job 2 of ben" in text for text in titles) == 6
    assert sum(text.endswith("suspended") for text in titles) == 2
    assert "n&lt;1&gt;" in document


def test_a_bar_is_as_wide_as_its_time_and_as_high_as_its_cores() -> None:
    bars = [Bar(0, 50, ((0, 4),), "ann", "1", "one"), Bar(50, 100, ((2, 4),), "ben", "2", "two")]
    boxes = {
        title.text: {name: float(box.get(name, "0")) for name in ("x", "y", "width", "height")}
        for box in elements(gantt.draw([Chart("c", [("n1", 4)], bars)]), "rect")
        for title in box
    }
    assert boxes["two"]["x"] == boxes["one"]["width"] == boxes["two"]["width"]
    assert boxes["two"]["height"] * 2 == boxes["one"]["height"]
    assert boxes["two"]["y"] == boxes["two"]["height"]


def test_a_bar_over_two_nodes_is_cut_between_them() -> None:
    chart = Chart("c", [("n1", 2), ("n2", 2)], [Bar(0, 1, ((1, 4),), "ann", "1", "one")])
    assert sum(title.text == "one" for title in elements(gantt.draw([chart]), "title")) == 2


def test_two_charts_have_one_scale() -> None:
    short = Chart("short", [("n1", 1)], [Bar(0, 10, ((0, 1),), "ann", "1", "one")])
    long = Chart("long", [("n1", 1)], [Bar(0, 40, ((0, 1),), "ann", "1", "four")])
    widths = {
        title.text: float(box.get("width", "0")) for box in elements(gantt.draw([short, long]), "rect") for title in box
    }
    assert widths["four"] == pytest.approx(4 * widths["one"])


def test_names_that_are_no_plain_text_do_no_harm() -> None:
    bar = Bar(0, 1, ((0, 1),), '"><script>\x1b[31m', "1\x00", "a\nb</title>")
    document = gantt.draw([Chart("]]>&", [("n\x07", 1)], [bar], marks=[(0.5, "<x>")])])
    assert not elements(document, "script")
    assert "\x1b" not in document
    assert "\x00" not in document


@pytest.mark.parametrize("nodes", [1, 3, 41, 5000])
def test_a_picture_has_room_for_any_table(nodes: int) -> None:
    bars = [Bar(n, n + 1.0, ((n, n + 1),), f"u{n}", str(n), "t") for n in range(nodes)]
    document = gantt.draw([Chart("many", [(f"n{n}", 1) for n in range(nodes)], bars)])
    height = float(ElementTree.fromstring(document).get("height", "0"))  # noqa: S314 - as above
    assert 100 < height < 1200


def test_nothing_can_be_drawn_too() -> None:
    assert elements(gantt.draw([Chart("none", [("n1", 1)], [])]), "rect")


def test_a_curve_of_many_steps_is_drawn_as_means() -> None:
    values = [(float(n), float(n % 2)) for n in range(10_001)]
    drawn = gantt._averaged(values, 0.0, 10_000.0, 100)
    assert len(drawn) <= 101
    assert all(value == pytest.approx(0.5) for _, value in drawn[:100])
