"""The picture of the rooms: the folders of nodectl and which imports which, drawn from the imports of every module.

`PYTHONPATH=tests python3 -P -m lint.rooms >docs/rooms.svg` draws it anew, after a change of what the rooms import.
"""

from __future__ import annotations

import textwrap
from collections.abc import Container, Iterable, Mapping
from graphlib import TopologicalSorter
from html import escape
from itertools import pairwise

from lint.test_layers import LAYERS, imports, room, sources
from nodectl.model.features import FEATURES

Arrow = tuple[str, str]  # the room that imports, the room that is imported

_WIDTH, _HEIGHT, _GAP = 200, 62, 46
_LANE = 40  # the width of an arrow's way past a row of rooms
_LINE = 32  # characters in a line of a box
_SWEEPS = 8
_STYLE = (
    "text{font-family:sans-serif;fill:#222;text-anchor:middle}.name{font-size:15px;font-weight:bold}"
    ".what{font-size:11px}rect{fill:#eef3f8;stroke:#456}path{fill:none;stroke:#678;stroke-width:1.5}"
    ".feature{fill:#fdf3dc}"
)


def rooms() -> dict[str, str]:
    """The rooms in the order of the layers, and what each of them is."""
    return {name: LAYERS[name] for name in dict.fromkeys(name.partition(".")[0] for name in LAYERS)}


def arrows() -> set[Arrow]:
    """Which room imports which."""
    pairs = {(room(name), room(other)) for name in sources() for other in imports(name)}
    return {(one, other) for one, other in pairs if one != other}


def reached(name: str, every: Iterable[Arrow]) -> set[str]:
    """The rooms to which a way of arrows leads from this one."""
    found: set[str] = set()
    left = [name]
    while left:
        here = left.pop()
        ahead = {below for above, below in every if above == here} - found
        found |= ahead
        left += ahead
    return found


def drawn(every: set[Arrow]) -> set[Arrow]:
    """The arrows that follow from no others: a room may import whatever its arrows lead to."""
    return {
        (one, other)
        for one, other in every
        if not any(other in reached(between, every) for above, between in every if above == one and between != other)
    }


def levels(names: Iterable[str], every: set[Arrow]) -> dict[str, int]:
    """The height of each room: one more than the highest that it imports."""
    below_of = {name: {below for above, below in every if above == name} for name in names}
    found: dict[str, int] = {}
    for name in TopologicalSorter(below_of).static_order():
        found[name] = 1 + max((found[below] for above, below in every if above == name), default=-1)
    return found


def _rows(height: Mapping[str, int], every: set[Arrow]) -> tuple[list[list[str]], list[list[str]]]:
    """The rows from the top down, with a lane wherever an arrow passes a row, and each arrow's way through them."""
    rows: list[list[str]] = [[] for _ in range(1 + max(height.values()))]
    for name, level in height.items():
        rows[level].append(name)
    ways = []
    for above, below in sorted(every):
        lanes = [f"{above} {below} {level}" for level in range(height[above] - 1, height[below], -1)]
        for lane in lanes:
            rows[int(lane.rpartition(" ")[2])].append(lane)
        ways.append([above, *lanes, below])
    neighbours: dict[str, list[str]] = {}
    for way in ways:
        for one, other in pairwise(way):
            neighbours.setdefault(one, []).append(other)
            neighbours.setdefault(other, []).append(one)
    for _ in range(_SWEEPS):  # each place near the middle of what it is joined with
        for row in rows:
            at = _places(rows)
            row.sort(
                key=lambda one: sum(at[other] for other in neighbours.get(one, [one])) / len(neighbours.get(one, [one]))
            )
    return rows[::-1], ways


def _places(rows: Iterable[list[str]]) -> dict[str, float]:
    """The middle of each place in its row, from the middle of the picture."""
    found = {}
    for row in rows:
        widths = [_LANE if " " in one else _WIDTH + _GAP for one in row]
        left = -sum(widths) / 2
        for one, width in zip(row, widths, strict=True):
            found[one] = left + width / 2
            left += width
    return found


def picture(names: Mapping[str, str], every: set[Arrow], tinted: Container[str]) -> str:
    """An SVG of the rooms and the arrows that follow from no others; `tinted` are rooms in another colour."""
    rows, ways = _rows(levels(names, every), drawn(every))
    places = _places(rows)
    top = {one: number * (_HEIGHT + _GAP) + _GAP // 2 for number, row in enumerate(rows) for one in row}
    half = max(abs(place) for place in places.values()) + (_WIDTH + _GAP) / 2
    height = len(rows) * (_HEIGHT + _GAP)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * half:g}" height="{height}"'
        f' viewBox="{-half:g} 0 {2 * half:g} {height}">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0L8,4L0,8z" style="fill:#678;stroke:none"/></marker></defs>',
        f'<rect x="{-half:g}" width="{2 * half:g}" height="{height}" style="fill:#fff;stroke:none"/>',
    ]
    for way in ways:
        points = [(places[way[0]], top[way[0]] + _HEIGHT)]
        for lane in way[1:-1]:
            points += [(places[lane], top[lane]), (places[lane], top[lane] + _HEIGHT)]
        points.append((places[way[-1]], top[way[-1]]))
        line = "L".join(f"{x:g},{y:g}" for x, y in points)
        lines.append(f'<path d="M{line}" marker-end="url(#tip)"><title>{way[0]} imports {way[-1]}</title></path>')
    for name, what in names.items():
        x, y = places[name], top[name]
        tint = ' class="feature"' if name in tinted else ""
        lines.append(f'<rect x="{x - _WIDTH / 2:g}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"{tint}/>')
        lines.append(f'<text class="name" x="{x:g}" y="{y + 19}">{escape(name)}</text>')
        for number, words in enumerate(textwrap.wrap(what, _LINE)):
            lines.append(f'<text class="what" x="{x:g}" y="{y + 36 + 15 * number}">{escape(words)}</text>')
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    print(picture(rooms(), arrows(), FEATURES), end="")
