"""What is made from tables of nodectl is what the tables give now."""

from __future__ import annotations

import pytest

import generate


@pytest.mark.parametrize("name", generate.FILES)
def test_file_that_is_made_from_tables_is_current(name: str) -> None:
    text = (generate.ROOT / name).read_text(encoding="utf-8")
    assert text == generate.FILES[name](text), "run .venv/bin/python3 tests/generate.py"


def test_every_explanation_is_of_a_field_that_a_client_sets() -> None:
    tables = {name for name, _ in generate.explanations()}
    assert tables <= {"Passed", "Revised", "Limits", "LaunchRequest", "PartOfStep", "JobOptions"}


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (bool, "bool"),
        (list[str], "[]string"),
        (list[list[object]], "[][]object"),
        (dict[str, list[int]], "[string][]int"),
    ],
)
def test_type_of_a_table_has_its_notation_in_the_interface(kind: object, written: str) -> None:
    assert generate.varlink_type(kind) == written
