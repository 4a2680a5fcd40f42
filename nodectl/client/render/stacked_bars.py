"""Stacked bars in SVG: a bar for each period, with a part for each user. Lengths are pixels. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from nodectl.client.render.table import cut
from nodectl.model.words import printable

# Distinguishable for colour-blind people too (after Okabe and Ito).
COLOURS = ("#4e9fd1", "#e8a02a", "#3fb68b", "#d97fae", "#d9cc3c", "#9d87e0", "#e2714b", "#86bf62")
_OTHERS = "#9a9a9a"
_FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"
_SIZE, _TITLE = 11, 15
_LEFT, _TOP, _BOTTOM, _RIGHT = 62, 52, 78, 24
_HEIGHT = 260
_NARROWEST, _WIDEST = 8, 64
_LABEL = 17  # from one label to the next
_CHARACTER = 7.0  # about, of the legend
_WIDTH = 640  # of the bars together, as far as there are enough
_TICKS = 5
_LONGEST_NAME = 20
_DARK = (
    "<style>@media (prefers-color-scheme:dark){"
    'rect[fill="#ffffff"]{fill:#16191d}rect{stroke:#16191d}text{fill:#e6e9ed}text[fill="#555555"]{fill:#a0a8b0}'
    'line[stroke="#dddddd"]{stroke:#3a4048}line[stroke="#404040"]{stroke:#a0a8b0}}</style>'
)


def draw(title: str, unit: str, bars: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """Return the picture as a whole SVG document. Each bar has a label and the amount of each user."""
    users = _ranked(bars)
    named = users[: len(COLOURS)]
    pitch = min(max(_WIDTH / max(len(bars), 1), _NARROWEST), _WIDEST)
    width = max(pitch * len(bars), 200)
    step = _tick(max((sum(parts.values()) for _, parts in bars), default=0.0))
    top = step * max(1, math.ceil(max((sum(parts.values()) for _, parts in bars), default=0.0) / step))
    legend = _legend_rows(bars, users, named)
    wide = 18 + _CHARACTER * max((len(text) for text, _ in legend), default=0) + _RIGHT
    whole = (_LEFT + width + _RIGHT + wide, _TOP + _HEIGHT + _BOTTOM)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole[0]:g}" height="{whole[1]:g}" '
        f'viewBox="0 0 {whole[0]:g} {whole[1]:g}" font-family="{_FONT}" font-size="{_SIZE}">',
        _DARK,
        f'<rect width="{whole[0]:g}" height="{whole[1]:g}" fill="#ffffff"/>',
        _text(_LEFT, 22, title, size=_TITLE, weight="bold"),
        _text(_LEFT, 40, unit, fill="#555555"),
        *_axis(step, top, width),
    ]
    for place, (label, parts) in enumerate(bars):
        lines += _bar(_LEFT + pitch * place, pitch, label, [(name, parts.get(name, 0.0)) for name in users], top, named)
    lines += _labels([label for label, _ in bars], pitch)
    lines += _legend(legend, _LEFT + width + _RIGHT)
    return "\n".join([*lines, "</svg>", ""])


def _ranked(bars: Sequence[tuple[str, Mapping[str, float]]]) -> list[str]:
    """Return the users, users with the most first."""
    sums: dict[str, float] = {}
    for _, parts in bars:
        for name, value in parts.items():
            sums[name] = sums.get(name, 0.0) + value
    return sorted(sums, key=lambda name: (-sums[name], name))


def _tick(most: float) -> float:
    """Return the distance of the lines behind the bars: 1, 2 or 5 times a power of ten."""
    if most <= 0:
        return 1.0
    raw = most / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)


def _axis(step: float, top: float, width: float) -> Iterator[str]:
    for number in range(round(top / step) + 1):
        y = _TOP + _HEIGHT * (1 - number * step / top)
        colour = "#404040" if not number else "#dddddd"
        yield f'<line x1="{_LEFT}" x2="{_LEFT + width:g}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}"/>'
        yield _text(_LEFT - 6, y + 4, f"{number * step:.10g}", anchor="end")


def _bar(
    x: float, pitch: float, label: str, parts: Sequence[tuple[str, float]], top: float, named: Sequence[str]
) -> Iterator[str]:
    y = float(_TOP + _HEIGHT)
    gap = max(2.0, pitch * 0.15)
    whole = sum(value for _, value in parts)
    for name, value in parts:
        height = _HEIGHT * value / top
        if height <= 0:
            continue
        y -= height
        tip = f"{label}: {printable(name)} {_amount(value)} of {_amount(whole)}"
        yield (
            f'<rect x="{x + gap / 2:.1f}" y="{y:.2f}" width="{pitch - gap:.1f}" height="{height:.2f}" '
            f'fill={quoteattr(_colour(name, named))} stroke="#ffffff" stroke-width="0.5">'
            f"<title>{escape(tip)}</title></rect>"
        )


def _labels(labels: Sequence[str], pitch: float) -> Iterator[str]:
    """Yield the slanted labels below the bars; for narrow bars only every second or third label."""
    every = math.ceil(_LABEL / pitch)
    y = _TOP + _HEIGHT + 14
    for place in range(0, len(labels), every):
        x = _LEFT + pitch * (place + 0.5) + 4
        turned = f' transform="rotate(-45 {x:.1f} {y})"'
        yield _text(x, y, labels[place], anchor="end", more=turned)


def _legend_rows(
    bars: Sequence[tuple[str, Mapping[str, float]]], users: Sequence[str], named: Sequence[str]
) -> list[tuple[str, str]]:
    """Return the legend's texts and colours."""
    sums = {name: sum(parts.get(name, 0.0) for _, parts in bars) for name in users}
    whole = sum(sums.values()) or 1.0
    rows = [(cut(printable(name), _LONGEST_NAME), _colour(name, named), sums[name]) for name in named]
    if len(users) > len(named):
        rest = users[len(named) :]
        rows.append((f"{len(rest)} others", _OTHERS, sum(sums[name] for name in rest)))
    return [(f"{name}  {_amount(value)} ({100 * value / whole:.0f}%)", colour) for name, colour, value in rows]


def _legend(rows: Sequence[tuple[str, str]], x: float) -> Iterator[str]:
    for place, (text, colour) in enumerate(rows):
        y = _TOP + 18 * place
        yield f'<rect x="{x:g}" y="{y}" width="12" height="12" fill="{colour}" stroke="#404040" stroke-width="0.5"/>'
        yield _text(x + 18, y + 10, text)


def _colour(name: str, named: Sequence[str]) -> str:
    return COLOURS[named.index(name)] if name in named else _OTHERS


def _amount(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _text(
    x: float, y: float, text: str, *, size: int = _SIZE, weight: str = "", anchor: str = "", fill: str = "",
    more: str = "",
) -> str:  # fmt: skip
    extra = "".join(
        f' {name}="{value}"'
        for name, value in (
            ("font-weight", weight),
            ("text-anchor", anchor),
            ("fill", fill),
            ("font-size", size if size != _SIZE else ""),
        )
        if value
    )
    return f'<text x="{x:.1f}" y="{y:.1f}"{extra}{more}>{escape(text)}</text>'
