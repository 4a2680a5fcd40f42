"""A field of a request and of a step is declared once, and from its declaration comes what each side makes of it."""

# Not `from __future__ import annotations`: the types of a table are objects.
from itertools import combinations

import pytest

from nodectl.model.fields import Field, Passed, Revised, StepFields, empty, field, names, passed
from nodectl.model.request_fields import JobOptions, LaunchRequest, Limits, PartOfStep
from nodectl.model.step import Step
from nodectl.model.wire.shape import BadShape, check
from nodectl.model.wire.table import shape_of

TABLES = (Passed, Revised, Limits, LaunchRequest, PartOfStep, JobOptions)
LEAST = {"argv": ["true"], "environment": {}, "cwd": "/", "ntasks": 3}


class Sample:
    number: int = field(1, 9, needed=True)
    word: str = field(3)
    flag: bool = field()
    words: list[str] = field(2, 3)
    rows: list[list[int]] = field(2, 1, 0, 9)
    by_name: dict[str, int] = field(1, -1, 5)


def test_no_field_is_declared_in_two_tables_of_a_request() -> None:
    for one, other in combinations((Passed, Revised, Limits, LaunchRequest), 2):
        assert not one.__annotations__.keys() & other.__annotations__.keys()


@pytest.mark.parametrize("table", TABLES)
def test_every_field_that_a_client_sets_has_its_limits(table: type) -> None:
    for name in names(table):
        assert isinstance(getattr(table, name), Field), name


def test_step_has_what_is_passed_on_to_it_and_no_field_of_a_request_alone() -> None:
    assert set(Step.FIELDS) == names(StepFields).keys() >= {*names(Passed), *names(Revised)}
    alone = LaunchRequest.__annotations__.keys() | Limits.__annotations__.keys()
    assert alone & set(Step.FIELDS) <= {"layout", "part", "uid", "gid"}  # these have another type, or meaning


def test_request_that_asks_for_nothing_gives_the_defaults() -> None:
    found = passed(LEAST)
    assert found.keys() == names(Passed).keys()
    assert (found["argv"], found["ntasks"]) == (["true"], 3)
    assert (found["umask"], found["label"], found["stdin"], found["pty"]) == (0o022, False, "", [])


def test_what_a_request_asks_for_is_the_steps() -> None:
    asked = {**LEAST, "umask": 0, "label": True, "stdin": "none", "pty": [0, 1, 2, 3, 4], "name": "x", "mem": 5}
    found = passed(asked)
    assert found == {**passed(LEAST), "umask": 0, "label": True, "stdin": "none", "pty": [0, 1, 2, 3, 4]}


def test_two_steps_share_no_default() -> None:
    one, other = empty(StepFields), empty(StepFields)
    assert one == other
    assert not [name for name, value in one.items() if isinstance(value, (list, dict)) and value is other[name]]


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({}, "number"),
        ({"number": 10}, "number"),
        ({"number": True}, "number"),
        ({"word": "four"}, "word"),
        ({"word": 4}, "word"),
        ({"flag": 1}, "flag"),
        ({"words": ["a", "b", "c"]}, "words"),
        ({"words": ["four"]}, "words"),
        ({"rows": [[1, 2]]}, "rows"),
        ({"rows": [[10]]}, "rows"),
        ({"by_name": {"a": 6}}, "by_name"),
        ({"by_name": {"a": 1, "b": 1}}, "by_name"),
        ({"other": 1}, "other"),
    ],
)
def test_value_beyond_its_limits_is_refused_by_the_name_of_its_field(given: dict[str, object], wrong: str) -> None:
    with pytest.raises(BadShape) as caught:
        check({"number": 1, **given} if given else {}, shape_of(Sample))
    assert caught.value.parameter == wrong


def test_values_within_their_limits_are_taken_and_all_but_the_needed_ones_may_be_absent() -> None:
    most = {"number": 9, "word": "abc", "flag": False, "words": ["abc", ""], "rows": [[0], []], "by_name": {"a": -1}}
    assert check(most, shape_of(Sample)) == most
    assert check({"number": 1, "word": None}, shape_of(Sample)) == {"number": 1}


def test_field_with_a_check_of_its_own_has_no_other() -> None:
    shape = shape_of(Sample, {"word": lambda value: "" if value == "long word" else "not it"})
    assert check({"number": 1, "word": "long word"}, shape)
    with pytest.raises(BadShape, match="not it"):
        check({"number": 1, "word": "abc"}, shape)
