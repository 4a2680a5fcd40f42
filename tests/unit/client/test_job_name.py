"""How commands read names of jobs: each way of writing one, ranges, `last`, and what is refused."""

from __future__ import annotations

import argparse
from typing import Any, cast

import pytest

from nodectl.client.command import Failed
from nodectl.client.job_name import add_jobs, in_dependency, named, names_of, number_of, one, one_step, separated
from nodectl.client.session import Session
from nodectl.model.step_number import BATCH, FIRST


class Service:
    """Says that the newest job is 9, and that task 3 of array 7 is job 12."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        self.asked.append(method)
        if method == "Newest":
            return {"job": 9}
        return {"record": {"job": 12, "array_tasks": "" if parameters["job"] == "7_3" else "4-9"}}


def session() -> Session:
    return cast("Session", Service())


@pytest.mark.parametrize(
    "text",
    ["7", "7_3", "7_[0-4,9]", "7.0", "7.batch", "last", "last_3", "last_[1-3]", "last.0",
     "7_3.0", "7_3.batch", "7_3.extern", "7_[0-4].batch", "last_3.batch"],
)  # fmt: skip
def test_a_name_is_taken_as_it_is(text: str) -> None:
    assert names_of(text) == [text]


def test_a_range_names_each_of_its_jobs() -> None:
    assert names_of("7-9") == ["7", "8", "9"]
    assert names_of("7-7") == ["7"]


@pytest.mark.parametrize(
    "text",
    ["", "x", "0", "9-7", "7-", "-7", "7-x", "1-99999", "7_1-3", "7-9_1", "lastly", "last-9", "last_", "last.x", "LAST",
     "7.", "7_[3", "7_[0-4%2]", "7_3.", "7_3.x", "7_x.batch", "x_3.batch", "7-9.batch", "4294967296", "1-4294967296"],
)  # fmt: skip
def test_another_word_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        names_of(text)


def test_a_step_is_refused_where_jobs_alone_are_meant() -> None:
    for text in ("7.0", "7.batch"):
        with pytest.raises(ValueError, match=r"is no job, but a step; give its job: 7$"):
            names_of(text, steps=False)
    with pytest.raises(ValueError, match=r"is no job, but a step; give its job: last_3$"):
        names_of("last_3.batch", steps=False)
    with pytest.raises(ValueError, match=r"is no job; one is written"):
        names_of("x.0", steps=False)


def test_last_is_asked_for_once_and_replaced_wherever_it_stands() -> None:
    service = Service()
    found = named(cast("Session", service), ["last", "7", "last_3", "last.batch", "9"])
    assert found == ["9", "7", "9_3", (9, BATCH)]
    assert service.asked == ["Newest"]


def test_no_service_is_asked_where_no_name_is_last() -> None:
    service = Service()
    assert named(cast("Session", service), ["7", "8.0"]) == ["7", (8, 0)]
    assert service.asked == []


def test_tasks_of_an_array_are_named_apart_only_where_wanted() -> None:
    assert named(session(), ["7_[0-4:2]"]) == ["7_[0-4:2]"]
    assert named(session(), ["7_[0-4:2]"], apart=True) == ["7_0", "7_2", "7_4"]
    with pytest.raises(Failed, match="more than 10000 tasks"):
        named(session(), ["7_[0-999999]"], apart=True)


def test_a_command_for_one_job_refuses_several() -> None:
    assert one(session(), ["last"]) == "9"
    with pytest.raises(Failed, match="one job at a time, and these are 2"):
        one(session(), ["7_[1-2]"])


def test_a_task_has_a_number_once_it_is_a_job_of_its_own() -> None:
    assert (number_of(session(), "7"), number_of(session(), "7_3")) == (7, 12)
    with pytest.raises(Failed, match="job 7_4 waits"):
        number_of(session(), "7_4")


def test_a_step_is_named_by_its_job_too() -> None:
    assert [one_step(session(), [name]) for name in ("7.batch", "7_3", "last")] == [(7, BATCH), (12, FIRST), (9, FIRST)]


def test_a_step_of_a_task_is_the_step_of_the_job_that_the_task_has_become() -> None:
    """Lists print such names: `nodectl top`, the page and `nodectl acct`."""
    assert named(session(), ["7_3.batch", "7_3.0"]) == [(12, BATCH), (12, 0)]
    assert one_step(session(), ["7_3.batch"]) == (12, BATCH)
    with pytest.raises(Failed, match="job 7_4 waits: it has no steps yet"):
        named(session(), ["7_[3-4].batch"])


def test_a_dependency_may_name_the_last_job() -> None:
    written = "afterok:last:7,after:last+10?afterany:last_3:lastly,singleton"
    assert in_dependency(session(), written) == "afterok:9:7,after:9+10?afterany:9_3:lastly,singleton"
    service = Service()
    assert in_dependency(cast("Session", service), "afterok:7") == "afterok:7"
    assert service.asked == []


def test_jobs_between_commas_may_have_commas_in_brackets() -> None:
    assert separated("7, 8_[1,3] ,,last") == ["7", "8_[1,3]", "last"]


def test_the_words_of_a_command_line_become_one_list() -> None:
    parser = argparse.ArgumentParser()
    add_jobs(parser, "jobs", steps=True)
    assert parser.parse_args(["7-8", "last", "9.0"]).jobs == ["7", "8", "last", "9.0"]
