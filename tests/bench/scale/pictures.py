"""The figures as pictures in SVG: a line for each quantity over the number of nodes, or of commands that have ended.
Both axes are logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from nodectl.view.timelines.scale import time_words

_WIDTH, _HEIGHT = 760, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 190, 40, 48
_FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"
_COLOURS = ("#d9601a", "#1f77b4", "#9b4fb0", "#2a8f4f")
_DARK = ("#ff8c4a", "#5cb3f0", "#cf8fe0", "#5fc98a")
_MIB = 1 << 20
_APART = 15.0  # pixels between the words of two lines


class Line(NamedTuple):
    """One quantity, by the number of nodes or commands."""

    words: str
    points: list[tuple[float, float]]


def write(found: Mapping[str, Any], directory: Path) -> None:
    """All that there is something for."""
    directory.mkdir(parents=True, exist_ok=True)
    if found["launches"]:
        _write_launches(found["launches"], directory)
    if many := found.get("many"):
        _write_many(many, directory)


def _write_launches(rows: Sequence[Mapping[str, Any]], directory: Path) -> None:

    def line(words: str, name: str, unit: float = 1) -> Line:
        return Line(words, [(row["nodes"], row[name] / unit) for row in rows])

    times = [
        line("all nodes have joined", "joined"),
        line("a step's tasks have started", "started"),
        line("the leader's work on it", "leader_cpu"),
        line("the root agent's work on it", "root_cpu"),
    ]
    (directory / "cluster-launch.svg").write_text(
        drawn("A step with a task on each node: seconds by the number of nodes", times, _seconds), encoding="utf-8"
    )
    sizes = [
        line("the leader's memory", "bytes", _MIB),
        line("to the leader, a step", "leader_in", _MIB),
        line("from the leader, a step", "leader_out", _MIB),
    ]
    (directory / "cluster-leader.svg").write_text(
        drawn("The leader: MiB by the number of nodes", sizes, _mib), encoding="utf-8"
    )


def _write_many(many: Mapping[str, Any], directory: Path) -> None:
    def line(words: str, name: str) -> Line:
        return Line(words, [(mark["tasks"], mark[name] / _MIB) for mark in many["marks"] if name in mark])

    sizes = [
        line("the leader's memory", "bytes"),
        line("to the leader so far", "leader_in"),
        line("from the leader so far", "leader_out"),
        line("the client's agent's memory", "agent_bytes"),
    ]
    title = f"Commands over {many['nodes']:,} nodes: MiB by how many have ended"
    (directory / "cluster-many.svg").write_text(drawn(title, sizes, _mib, "commands"), encoding="utf-8")


def _count(number: float) -> str:
    """One digit of it, as a word below an axis."""
    number = float(f"{number:.1g}")
    return f"{number / 1e6:g}M" if number >= 1e6 else f"{number:g}"


def _seconds(power: int) -> str:
    return time_words(round(10.0**power * 1e9), round(10.0**power * 1e9))


def _mib(power: int) -> str:
    return f"{10.0**power:g} MiB"


def drawn(title: str, lines: Sequence[Line], words_of: Any, among: str = "nodes") -> str:
    """One picture. `among`: what there are more of to the right."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points if y > 0]
    left, right = math.log10(min(xs)), math.log10(max(xs))
    low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
    plot_width, plot_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x_of(value: float) -> float:
        return _LEFT + plot_width * (math.log10(value) - left) / ((right - left) or 1)

    def y_of(value: float) -> float:
        return _TOP + plot_height * (high - math.log10(value)) / ((high - low) or 1)

    body = [f'<text x="{_LEFT}" y="22" class="ink" font-size="14">{escape(title)}</text>']
    for power in range(low, high + 1):
        y = y_of(10.0**power)
        body.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" class="grid"/>')
        words = escape(words_of(power))
        body.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" class="faint" text-anchor="end">{words}</text>')
    for x in sorted(set(xs)):
        at, below = x_of(x), _HEIGHT - _BOTTOM
        body.append(f'<path d="M{at:.1f} {_TOP}V{below}" class="grid"/>')
        body.append(f'<text x="{at:.1f}" y="{below + 18}" class="faint" text-anchor="middle">{_count(x)}</text>')
    body.append(
        f'<text x="{_LEFT + plot_width / 2}" y="{_HEIGHT - 10}" class="faint" text-anchor="middle">{among}</text>'
    )
    for number, line in enumerate(lines):
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in line.points if y > 0)
        body.append(f'<polyline points="{path}" class="line c{number}"/>')
        for x, y in line.points:
            if y > 0:
                said = f"{line.words}: {y:.3g} with {x:g} {among}"
                body.append(
                    f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3.5" class="dot c{number}">'
                    f"<title>{escape(said)}</title></circle>"
                )
    ends = [(y_of(max(line.points[-1][1], min(ys))), number) for number, line in enumerate(lines)]
    for y, number in _spread(ends):
        words = escape(lines[number].words)
        body.append(f'<text x="{_WIDTH - _RIGHT + 10}" y="{y + 4:.1f}" class="word c{number}">{words}</text>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="{_FONT}" font-size="11">',
        f"<title>{escape(title)}</title>",
        f"<style>{_style()}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}"/>',
        *body,
        "</svg>",
        "",
    ])  # fmt: skip


def _spread(ends: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Words beside the ends of their lines, none over another."""
    placed: list[tuple[float, int]] = []
    for y, number in sorted(ends):
        placed.append((max(y, placed[-1][0] + _APART) if placed else y, number))
    return placed


def _style() -> str:
    def colours(page: str, ink: str, faint: str, grid: str, lines: Sequence[str]) -> str:
        own = "".join(
            f".line.c{number}{{stroke:{one}}}.dot.c{number},.word.c{number}{{fill:{one}}}"
            for number, one in enumerate(lines)
        )
        return f".page{{fill:{page}}}.ink{{fill:{ink}}}.faint{{fill:{faint}}}.grid{{stroke:{grid}}}{own}"

    light = colours("#ffffff", "#1a1a1a", "#6a6a6a", "#dedede", _COLOURS)
    dark = colours("#16181c", "#ececec", "#a0a0a0", "#3a3d42", _DARK)
    return f".line{{fill:none;stroke-width:2}}{light}@media (prefers-color-scheme: dark){{{dark}}}"
