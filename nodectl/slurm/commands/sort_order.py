"""Rows in the order of --sort: letters of --format between commas, with - in front for highest first. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nodectl.client.command import Failed
from nodectl.slurm.commands.column_format import Field, Row


def ordered(
    rows: Iterable[dict[str, Any]], order: str, fields: Iterable[Field], places: Mapping[str, Callable[[Any], int]]
) -> list[dict[str, Any]]:
    """Return the sorted rows. `places`: sort keys by letter, where the texts do not give the order. Raises Failed."""
    known = {field.letter: field for field in fields if field.letter}
    found = list(rows)
    for word in reversed([word.strip() for word in order.split(",") if word.strip()]):
        letter = word.lstrip("+-")
        if letter not in known:
            raise Failed(f"Invalid sort specification: {word[:20]}")
        found.sort(key=places.get(letter) or _value(known[letter]), reverse=word.startswith("-"))
    return found


def _value(field: Field) -> Callable[[Row], tuple[int, float, str]]:
    """Return the sort key of a field: numbers by value, before texts."""

    def value(row: Row) -> tuple[int, float, str]:
        text = str(field.text(row))
        return (0, float(text), "") if text.lstrip("-").isdecimal() else (1, 0.0, text)

    return value
