"""Shapes: what passes, what does not, and which parameter is blamed."""

from __future__ import annotations

import pytest

from nodectl.model.wire.shape import BadShape, Optional, array, boolean, check, integer, mapping, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.model.wire.shape import Check

SMALL = integer(1, 10)
WORDS = array(text(3), most=2)
TABLE = mapping(text(3), most=2)


@pytest.mark.parametrize(
    ("rule", "value", "wrong"),
    [
        (SMALL, 1, ""),
        (SMALL, 10, ""),
        (SMALL, 0, "0 is not from 1 to 10"),
        (SMALL, 11, "11 is not from 1 to 10"),
        (SMALL, 10**30, f"{10**30} is not from 1 to 10"),
        (SMALL, True, "not a whole number"),
        (SMALL, 1.0, "not a whole number"),
        (SMALL, "1", "not a whole number"),
        (boolean, False, ""),
        (boolean, 0, "not true or false"),
        (boolean, "true", "not true or false"),
        (text(3), "", ""),
        (text(3), "abc", ""),
        (text(3), "a\udcff", ""),  # a byte that is no UTF-8
        (text(3), "abcd", "longer than 3 characters"),
        (text(3), "a\0", "holds a NUL byte"),
        (text(3), "\ud800", "holds a character that is no byte and no Unicode"),
        (text(3), "a\udbff", "holds a character that is no byte and no Unicode"),
        (text(3), 1, "not a string"),
        (text(3), ["a"], "not a string"),
        (WORDS, [], ""),
        (WORDS, ["a", "b"], ""),
        (WORDS, ["a", "b", "c"], "more than 2 elements"),
        (WORDS, ["a", 1], "element 1 is not a string"),
        (WORDS, ["long!"], "element 0: longer than 3 characters"),
        (WORDS, {"a": 1}, "not a list"),
        (WORDS, "ab", "not a list"),
        (TABLE, {}, ""),
        (TABLE, {"a": "b"}, ""),
        (TABLE, {"a": 1}, "a: not a string"),
        (TABLE, {"": "b"}, "'' is no name"),
        (TABLE, {"a=b": "c"}, "'a=b' is no name"),
        (TABLE, {"a\0": "c"}, "'a\\x00' is no name"),
        (TABLE, {"\ud800": "c"}, "'\\ud800' is no name"),
        (TABLE, {"a": "b", "c": "d", "e": "f"}, "more than 2 entries"),
        (TABLE, [], "not an object"),
    ],
)
def test_a_check_says_what_is_wrong(rule: Check, value: object, wrong: str) -> None:
    assert rule(value) == wrong


SHAPE: dict[str, Check | Optional] = {"job": SMALL, "name": Optional(text(3))}


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ({"job": 1}, {"job": 1}),
        ({"job": 1, "name": None}, {"job": 1}),
        ({"job": 1, "name": ""}, {"job": 1, "name": ""}),
    ],
)
def test_what_is_of_the_shape_passes_without_its_nulls(parameters: object, found: object) -> None:
    assert check(parameters, SHAPE) == found


@pytest.mark.parametrize(
    ("parameters", "blamed", "reason"),
    [
        ({}, "job", "job: missing"),
        ({"job": None}, "job", "job: missing"),
        ({"job": 0}, "job", "job: 0 is not from 1 to 10"),
        ({"job": 1, "nmae": "x"}, "nmae", "nmae: no such parameter"),
        ({"job": 1, "x" * 500: 1}, "x" * 64, "x" * 64 + ": no such parameter"),
        ({"job": 1, "name": 5}, "name", "name: not a string"),
        ([], "parameters", "parameters: not an object"),
        (None, "parameters", "parameters: not an object"),
        ("text", "parameters", "parameters: not an object"),
    ],
)
def test_a_refusal_names_the_parameter(parameters: object, blamed: str, reason: str) -> None:
    with pytest.raises(BadShape) as caught:
        check(parameters, SHAPE)
    assert (caught.value.parameter, str(caught.value)) == (blamed, reason)
