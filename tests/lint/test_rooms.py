"""The picture of the rooms in docs/architecture.md shows what the rooms import today."""

from __future__ import annotations

import re

import pytest

from lint.rooms import arrows, drawn, levels, picture, reached, rooms
from lint.sources import ROOT
from nodectl.model.features import FEATURES

pytestmark = pytest.mark.lint

AGAIN = "draw it anew: PYTHONPATH=tests python3 -P -m lint.rooms >docs/rooms.svg"


def test_picture_of_the_rooms_shows_what_they_import() -> None:
    assert (ROOT / "docs/rooms.svg").read_text(encoding="utf-8") == picture(rooms(), arrows(), FEATURES), AGAIN


def test_rooms_of_the_order_are_those_that_import_and_are_imported() -> None:
    assert {room for arrow in arrows() for room in arrow} == rooms().keys()


def test_arrow_that_is_left_out_follows_from_those_that_are_drawn() -> None:
    every = arrows()
    assert {room: reached(room, drawn(every)) for room in rooms()} == {room: reached(room, every) for room in rooms()}
    assert drawn({("a", "b"), ("b", "c"), ("a", "c")}) == {("a", "b"), ("b", "c")}


def test_every_room_stands_above_what_it_imports_and_has_its_box() -> None:
    every = arrows()
    height = levels(rooms(), every)
    assert all(height[room] > height[other] for room, other in every)
    shown = picture(rooms(), every, FEATURES)
    assert re.findall(r'class="name"[^>]*>([\w ]+)<', shown) == list(rooms())
    assert set(re.findall(r"<title>(\w+) imports (\w+)<", shown)) == drawn(every)
