"""Gantt charts of cores over time, as an SVG: cores of nodes from top to bottom, time from left to right. Pure.

Bars have the colours of their users; hovering over a bar shows its job and marks all of its user's bars. Below are the
share of CPUs in use and the number of jobs that wait. Several charts stand side by side on one scale, so that equal
lengths are equal times. The picture follows the reader's light or dark theme. Lengths are pixels.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from nodectl.client.render.table import cut
from nodectl.model.words import duration, printable

# Light enough for black text, told apart by colour-blind people too (after Okabe and Ito), as in a machine's picture.
_FIRST = ("#7cc4f0", "#f5b642", "#5fcfa8", "#f3a3c8", "#f6ec6b", "#c3b1ff", "#ff9c78", "#a8d98a")
_GOLDEN_ANGLE = 137.50776
_ALONE, _BESIDE = 1000.0, 640.0  # widths of the time axis
_CORE, _LEAST_PLOT, _MOST_PLOT = 16.0, 60.0, 620.0  # the height of a core; of all cores
_CURVE, _MARGIN, _GAP, _HEAD = 70.0, 16.0, 26.0, 46.0
_SMALL, _TITLE = 11, 15
_CHARACTER = 6.2  # of the small font, about
_MOST_NAMED, _LONGEST_NAME = 40, 18  # nodes whose names are written; characters
_MOST_LEGEND = 24
_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
_FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"
_STYLE = """
.p{fill:#ffffff}.t{fill:#1c2024}.f{fill:#6b747d}.n{fill:#f3f5f7}.m{fill:#e9edf1}.g{stroke:#d3d9de;stroke-width:1}
.a{fill:#4a90d9;fill-opacity:.35;stroke:#2f6fb3;stroke-width:1}.w{fill:#c96f1a;fill-opacity:.22;stroke:#c96f1a}
.x{fill:#d3203a}.u rect{stroke:#ffffff;stroke-opacity:.65;stroke-width:.5}.u:hover rect{stroke:#000000;stroke-opacity:1}
.l{fill:#101418;pointer-events:none}.s{fill-opacity:.3}
@media (prefers-color-scheme:dark){
.p{fill:#14171a}.t{fill:#e6eaee}.f{fill:#98a2ac}.n{fill:#1d2226}.m{fill:#252b30}.g{stroke:#3a4249}
.a{fill:#5aa2ea;stroke:#7db8f2}.w{fill:#f0a35e;stroke:#f0a35e}.x{fill:#ff5c72}
.u rect{stroke:#14171a}.u:hover rect{stroke:#ffffff}}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """A job on some cores for some time.

    `rows`: (first, behind the last) of cores counted over all nodes; `label`: the text inside, where there is room;
    `pale`: the job is suspended.
    """

    start: float
    end: float
    rows: tuple[tuple[int, int], ...]
    user: str
    label: str
    title: str
    pale: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of a play.

    `nodes`: names and numbers of cores. `in_use` (0 to 1) and `waiting` (jobs): values from each time on. `marks`:
    times and descriptions of violations.
    """

    title: str
    nodes: Sequence[tuple[str, int]]
    bars: Sequence[Bar]
    in_use: Sequence[tuple[float, float]] = ()
    waiting: Sequence[tuple[float, float]] = ()
    marks: Sequence[tuple[float, str]] = ()
    facts: Sequence[str] = field(default=())

    @property
    def end(self) -> float:
        """The last time drawn."""
        return max([bar.end for bar in self.bars] + [time for time, _ in self.waiting], default=0.0)


def draw(charts: Sequence[Chart]) -> str:
    """Return the whole SVG document, with the charts from left to right."""
    begin = min((bar.start for chart in charts for bar in chart.bars), default=0.0)
    begin = min([begin, *(chart.waiting[0][0] for chart in charts if chart.waiting)])
    end = max(*(chart.end for chart in charts), begin + 1.0)
    width = _ALONE if len(charts) == 1 else _BESIDE
    colours = _colours(bar for chart in charts for bar in chart.bars)
    most_waiting = max([1.0, *(count for chart in charts for _, count in chart.waiting)])
    drawings = [_Drawing(chart, width, begin, end, colours, most_waiting) for chart in charts]
    legend = list(_legend(colours, sum(one.width for one in drawings) + _GAP * (len(drawings) - 1)))
    page_width = sum(one.width for one in drawings) + _GAP * (len(drawings) - 1) + 2 * _MARGIN
    top = max(one.height for one in drawings) + _MARGIN
    page_height = top + (20.0 * len(legend) + 14.0 if legend else 0.0) + _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{page_width:.0f}" height="{page_height:.0f}" '
        f'viewBox="0 0 {page_width:.0f} {page_height:.0f}" font-family="{_FONT}" font-size="{_SMALL}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="p" width="{page_width:.0f}" height="{page_height:.0f}"/>',
    ]
    x = _MARGIN
    for one in drawings:
        lines += [f'<g transform="translate({x:.1f},{_MARGIN:g})">', *one.svg(), "</g>"]
        x += one.width + _GAP
    for row, entries in enumerate(legend):
        lines += [f'<g transform="translate({_MARGIN:g},{top + 10 + 20 * row:.1f})">', *entries, "</g>"]
    return "\n".join([*lines, "</svg>", ""])


class _Drawing:
    """The drawing of a chart from origin 0, 0."""

    def __init__(
        self, chart: Chart, width: float, begin: float, end: float, colours: Mapping[str, str], most_waiting: float
    ) -> None:
        self.chart, self.begin, self.span, self.plot_width = chart, begin, end - begin, width
        self.colours, self.most_waiting = colours, most_waiting
        cores = sum(count for _, count in chart.nodes) or 1
        self.between = 3.0 if 1 < len(chart.nodes) <= _MOST_NAMED else 0.0
        inner = min(max(cores * _CORE, _LEAST_PLOT), _MOST_PLOT)
        self.core = inner / cores
        self.plot_height = inner + self.between * (len(chart.nodes) - 1)
        names = [cut(printable(name), _LONGEST_NAME) for name, _ in chart.nodes[:_MOST_NAMED]]
        self.left = max(30.0, max(map(len, names), default=0) * _CHARACTER + 10)
        self.starts: list[tuple[int, float]] = []  # of each node: its first core, and where that is drawn
        first, y = 0, 0.0
        for _, count in chart.nodes:
            self.starts.append((first, y))
            first, y = first + count, y + count * self.core + self.between
        self.firsts = [start for start, _ in self.starts]
        self.width = self.left + width
        self.height = _HEAD + self.plot_height + 2 * (_CURVE + _GAP) + 24

    def svg(self) -> Iterator[str]:
        """Yield the elements of the drawing."""
        yield f'<text class="t" x="{self.left:.1f}" y="14" font-size="{_TITLE}">{_text(self.chart.title)}</text>'
        yield f'<text class="f" x="{self.left:.1f}" y="28">{_text(", ".join(self.chart.facts))}</text>'
        yield f'<g transform="translate({self.left:.1f},{_HEAD:g})">'
        yield from self._nodes()
        yield from self._grid(self.plot_height)
        yield from self._bars()
        yield from self._marks()
        y = self.plot_height + _GAP
        yield from self._curve(y, self.chart.in_use, 1.0, "a", "CPUs in use", "100 %")
        y += _CURVE + _GAP
        most = self.most_waiting
        yield from self._curve(y, self.chart.waiting, most, "w", "jobs waiting", f"{most:.0f}")
        yield from self._ticks(y + _CURVE)
        yield "</g>"

    def _x(self, time: float) -> float:
        return (time - self.begin) / self.span * self.plot_width

    def _nodes(self) -> Iterator[str]:
        step = max(1, -(-len(self.chart.nodes) // _MOST_NAMED))
        for number, (name, count) in enumerate(self.chart.nodes):
            _, y = self.starts[number]
            high = count * self.core
            kind = "n" if number % 2 == 0 else "m"
            if step == 1:
                yield f'<rect class="{kind}" y="{y:.2f}" width="{self.plot_width:g}" height="{high:.2f}"/>'
            if number % step == 0:
                label = _text(cut(printable(name), _LONGEST_NAME))
                at = y + high / 2 + 4
                yield f'<text class="t" x="-6" y="{at:.1f}" text-anchor="end">{label}</text>'
        if step > 1:
            yield f'<rect class="n" width="{self.plot_width:g}" height="{self.plot_height:.2f}"/>'

    def _grid(self, height: float, y: float = 0.0) -> Iterator[str]:
        for time in _times(self.begin, self.span):
            x = self._x(time)
            yield f'<line class="g" x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y + height:.1f}"/>'

    def _bars(self) -> Iterator[str]:
        of_user: dict[str, list[Bar]] = {}
        for bar in self.chart.bars:
            of_user.setdefault(bar.user, []).append(bar)
        labels: list[str] = []
        for user, bars in of_user.items():
            yield f'<g class="u" fill="{self.colours[user]}">'
            for bar in bars:
                x, wide = self._x(bar.start), max(0.4, (bar.end - bar.start) / self.span * self.plot_width)
                pale = ' class="s"' if bar.pale else ""
                title = f"<title>{_text(bar.title)}</title>"
                for y, high in self._pieces(bar.rows):
                    box = f'x="{x:.2f}" y="{y:.2f}" width="{wide:.2f}" height="{max(high, 0.4):.2f}"'
                    yield f"<rect{pale} {box}>{title}</rect>"
                    if high >= _SMALL - 1 and wide > len(bar.label) * _CHARACTER + 6:
                        at = f'x="{x + 4:.1f}" y="{y + high / 2 + 4:.1f}"'
                        labels.append(f'<text class="l" {at}>{_text(bar.label)}</text>')
            yield "</g>"
        yield from labels

    def _pieces(self, rows: Iterable[tuple[int, int]]) -> Iterator[tuple[float, float]]:
        """Yield y and height of the drawn cores, cut at the borders of nodes."""
        for first, behind in rows:
            at = first
            node = bisect_right(self.firsts, first) - 1
            while at < behind:
                start, y = self.starts[node]
                last = min(behind, start + self.chart.nodes[node][1])
                yield y + (at - start) * self.core, (last - at) * self.core
                at, node = last, node + 1

    def _marks(self) -> Iterator[str]:
        for time, words in self.chart.marks:
            x = self._x(time)
            shape = f"M{x - 4:.1f},-8h8l-4,8z"
            yield f'<path class="x" d="{shape}"><title>{_text(words)}</title></path>'

    def _curve(
        self, y: float, values: Sequence[tuple[float, float]], most: float, kind: str, name: str, top: str
    ) -> Iterator[str]:
        """Yield the elements of a curve of steps over a band."""
        yield f'<rect class="n" y="{y:.1f}" width="{self.plot_width:g}" height="{_CURVE:g}"/>'
        yield from self._grid(_CURVE, y)
        yield f'<text class="t" x="0" y="{y - 5:.1f}">{name}</text>'
        yield f'<text class="f" x="-6" y="{y + 8:.1f}" text-anchor="end">{top}</text>'
        yield f'<text class="f" x="-6" y="{y + _CURVE:.1f}" text-anchor="end">0</text>'
        if not values:
            return
        values = _averaged(values, self.begin, self.span, int(self.plot_width))
        bottom = y + _CURVE
        path = [f"M{self._x(values[0][0]):.2f},{bottom:.1f}"]
        for place, (time, value) in enumerate(values):
            until = values[place + 1][0] if place + 1 < len(values) else max(time, self.chart.end)
            path.append(f"V{bottom - min(1.0, value / most) * _CURVE:.2f}H{self._x(until):.2f}")
        yield f'<path class="{kind}" d="{"".join(_thinned(path))}V{bottom:.1f}"/>'

    def _ticks(self, y: float) -> Iterator[str]:
        for time in _times(self.begin, self.span):
            anchor = "start" if time == self.begin else "middle"
            label = duration(time - self.begin)
            yield f'<text class="f" x="{self._x(time):.1f}" y="{y + 15:.1f}" text-anchor="{anchor}">{label}</text>'


def _thinned(path: Sequence[str]) -> Iterator[str]:
    """Yield the steps, without repetitions within a hundredth of a pixel."""
    before = ""
    for step in path:
        if step != before:
            yield step
        before = step


def _averaged(
    values: Sequence[tuple[float, float]], begin: float, span: float, most: int
) -> Sequence[tuple[float, float]]:
    """Return the curve, or for a curve of more than `most` steps the means of so many equal intervals."""
    if len(values) <= most:
        return values
    wide = span / most
    sums = [0.0] * (most + 1)
    for (time, value), (until, _) in zip(values, [*values[1:], values[-1]], strict=True):
        at, last = (time - begin) / wide, (until - begin) / wide
        while at < last:
            behind = min(last, int(at) + 1.0)
            sums[min(int(at), most)] += value * (behind - at)
            at = behind
    first, last_place = int((values[0][0] - begin) / wide), int((values[-1][0] - begin) / wide)
    return [(begin + place * wide, min(sums[place], 1e18)) for place in range(first, min(last_place, most) + 1)]


def _times(begin: float, span: float) -> Iterator[float]:
    """Yield round times, about ten at most."""
    step = next((tick for tick in _TICKS if span / tick <= 8), 0) or 86_400 * max(1, -(-int(span) // (8 * 86_400)))
    for number in range(int(span / step) + 1):
        yield begin + number * step


def _colours(bars: Iterable[Bar]) -> dict[str, str]:
    """Return a colour for each user, users with the most core time first."""
    held: dict[str, float] = {}
    for bar in bars:
        cores = sum(behind - first for first, behind in bar.rows)
        held[bar.user] = held.get(bar.user, 0.0) + (bar.end - bar.start) * cores
    users = sorted(held, key=lambda user: (-held[user], user))
    return {user: _FIRST[n] if n < len(_FIRST) else _hue(n) for n, user in enumerate(users)}


def _hue(number: int) -> str:
    """Return a further colour of the same lightness."""
    hue = number * _GOLDEN_ANGLE % 360 / 60
    light, colourful = 0.72, 0.55 if number % 2 else 0.35
    chroma = (1 - abs(2 * light - 1)) * colourful
    second = chroma * (1 - abs(hue % 2 - 1))
    red, green, blue = [
        (chroma, second, 0.0), (second, chroma, 0.0), (0.0, chroma, second),
        (0.0, second, chroma), (second, 0.0, chroma), (chroma, 0.0, second),
    ][int(hue)]  # fmt: skip
    base = light - chroma / 2
    return "#" + "".join(f"{round((part + base) * 255):02x}" for part in (red, green, blue))


def _legend(colours: Mapping[str, str], width: float) -> Iterator[list[str]]:
    """Yield rows of colours and user names."""
    users = list(colours.items())
    entries = [(cut(printable(user), _LONGEST_NAME), colour) for user, colour in users[:_MOST_LEGEND]]
    if len(users) > _MOST_LEGEND:
        entries.append((f"and {len(users) - _MOST_LEGEND} others", ""))
    row: list[str] = []
    x = 0.0
    for name, colour in entries:
        wide = len(name) * _CHARACTER + 34
        if row and x + wide > width:
            yield row
            row, x = [], 0.0
        if colour:
            row.append(f'<rect x="{x:.1f}" width="14" height="12" rx="2" fill="{colour}"/>')
        row.append(f'<text class="t" x="{x + (19 if colour else 0):.1f}" y="10">{_text(name)}</text>')
        x += wide
    if row:
        yield row


def _text(words: str) -> str:
    return escape("\n".join(map(printable, words.split("\n"))))
