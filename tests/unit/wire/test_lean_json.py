"""The JSON of the wire agrees with the standard library's, and says what is wrong in one line."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.model.wire import lean_json

# Lone surrogates too: that is how bytes that are no UTF-8 travel.
ANY_TEXT = st.text(st.characters(exclude_categories=()))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=30,
)
BROKEN = (
    '"', "", "{", "[", "[1,", "[1,]", '{"a"}', '{"a":}', '{"a":1,}', "{a:1}", "{'a':1}", '"\\x"', '"\\u12"', '"\t"',
    "tru", "nul", "01", "1.", ".5", "+1", "1e", "-", "NaN", "Infinity", "-Infinity", "[NaN]", "//", "\ufeff{}", "\0",
)  # fmt: skip


@given(VALUES)
def test_what_is_written_is_what_the_standard_library_writes(value: object) -> None:
    assert lean_json.dumps(value) == json.dumps(value, separators=(",", ":"))


@given(VALUES)
def test_what_is_read_is_what_the_standard_library_reads(value: object) -> None:
    for text in (json.dumps(value), json.dumps(value, indent=1), json.dumps(value, ensure_ascii=False)):
        assert lean_json.loads(text) == json.loads(text)


@given(st.text('{}[]",:0123456789.eE+-truefalsn \\u\n'))
def test_the_two_accept_the_same_texts(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(lean_json.BadJson):
            lean_json.loads(text)
    else:
        assert lean_json.loads(text) == expected


@pytest.mark.parametrize("text", BROKEN)
def test_broken_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(lean_json.BadJson) as caught:
        lean_json.loads(text)
    assert str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000])
def test_deep_nesting_is_refused_and_leaves_the_reader_usable(text: str) -> None:
    with pytest.raises(lean_json.BadJson):
        lean_json.loads(text)
    assert lean_json.loads('{"a":[1]}') == {"a": [1]}


def test_what_follows_a_value_is_refused_with_its_place() -> None:
    with pytest.raises(lean_json.BadJson, match="character 2"):
        lean_json.loads("{}{}")


def test_a_number_of_too_many_digits_is_refused() -> None:
    with pytest.raises(lean_json.BadJson):
        lean_json.loads("9" * 10_000)


def test_a_million_characters_come_back() -> None:
    value = {"text": "x" * (1 << 20), "list": list(range(100_000))}
    assert lean_json.loads(lean_json.dumps(value)) == value


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {1, 2}, b"bytes", {(1, 2): 3}])
def test_what_json_cannot_hold_is_not_written(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        lean_json.dumps(value)


@given(st.binary())
def test_bytes_travel_as_lone_surrogates(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    assert lean_json.load_object(lean_json.dumps({"t": text}).encode("ascii")) == {"t": text}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"a":"\xff"}', "not UTF-8 at byte 6"),
        (b"[]", "not a JSON object"),
        (b"1", "not a JSON object"),
        (b"null", "not a JSON object"),
    ],
)
def test_only_an_object_in_utf8_is_an_object(data: bytes, reason: str) -> None:
    with pytest.raises(lean_json.BadJson, match=reason):
        lean_json.load_object(data)


@pytest.mark.parametrize("number", ["0.5", "1e3", "4.9406564584124654e-324", "0." + "5" * 4000])
def test_a_fraction_in_a_call_is_not_read(number: str) -> None:
    found: Any = lean_json.load_call(f'{{"a":[{number}]}}'.encode())
    (value,) = found["a"]
    assert isinstance(value, lean_json.Fraction)
    assert repr(value) == number[:40]


@pytest.mark.parametrize("number", ["9" * 41, "-" + "9" * 40, "1" * 4000])
def test_a_call_with_a_number_that_takes_long_to_read_is_refused_before_it_is_read(number: str) -> None:
    with pytest.raises(lean_json.BadJson, match="digits") as caught:
        lean_json.load_call(f'{{"a":[{number}]}}'.encode())
    assert len(str(caught.value)) < 80


def test_a_call_is_read_as_everything_else_is() -> None:
    text = json.dumps({"a": [1, -(2**64), None, True, "\udcff"], "b": {"c": "9" * 100}}).encode()
    assert lean_json.load_call(text) == json.loads(text)
