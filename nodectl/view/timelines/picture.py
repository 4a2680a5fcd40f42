"""A launch as a picture in SVG: a block for each process, with a row for each call, from left to right in time.

Colours show the identity; their strength shows the caller: a plugin, nodectl itself, or a waiting process. The picture
is dark for readers who prefer dark pages. Lengths are pixels. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from nodectl.client.render.table import cut
from nodectl.model.words import spent_words
from nodectl.view.timelines.launch import WAITS, Call, Launch, Process
from nodectl.view.timelines.scale import CUT, Scale, fitting

WIDTH = 1200
_LEFT, _RIGHT = 96, 24
_PLOT = WIDTH - _LEFT - _RIGHT
_ROW, _BAR = 17, 11
_SIZE, _TITLE = 11, 16
_CHARACTER = 6.6  # about, of a proportional font in _SIZE
_THINNEST = 2.0
_LONGEST_NOTE = 60
# Up to this number all tasks are shown with all their calls; else the first task only, and a row for each other task.
_MOST_WHOLE = 4
_MOST_ROWS = 60
# In a row with more calls than this, only distinguishable calls are drawn.
_MOST_BARS = 400
_APART = 0.5
_FONT = "DejaVu Sans, Helvetica, Arial, sans-serif"
_LIGHT = {
    "page": "#ffffff", "ink": "#1a1a1a", "faint": "#6a6a6a", "line": "#dedede", "band": "#f5f5f5",
    "root": "#d9601a", "user": "#1f77b4", "effective": "#9b4fb0", "failed": "#c00020",
}  # fmt: skip
_DARK = {
    "page": "#16181c", "ink": "#ececec", "faint": "#a0a0a0", "line": "#3a3d42", "band": "#1e2126",
    "root": "#ff8c4a", "user": "#5cb3f0", "effective": "#cf8fe0", "failed": "#ff6b7d",
}  # fmt: skip
# Each identity is shown in the strengths of the bars: a plugin's hook, nodectl itself, waiting.
_IDENTITIES = (("root", "as root"), ("effective", "as the user for a moment"), ("user", "as the user"))
_MANNERS = ("hook", "own", "waits")
_STRENGTHS = "of each: a plugin's hook, nodectl itself, waits for others"
_FIRST_PROGRAM = "the first program begins"
_SWATCH = 13


@dataclass(frozen=True, slots=True)
class _Row:
    """Calls side by side on a line, and the words behind the calls."""

    calls: tuple[Call, ...]
    words: tuple[str, ...]
    failed: bool


def draw(launches: Sequence[Launch]) -> str:
    """Return the whole document; several launches stand below one another, with the same scale."""
    per_pixel = fitting(launches, _PLOT)
    body: list[str] = []
    y = 12.0
    for place, launch in enumerate(launches):
        letter = f"{'AB'[place]}: " if len(launches) > 1 else ""
        lines, height = _panel(launch, Scale(launch, per_pixel), letter)
        body += [f'<g transform="translate(0,{y:g})">', *lines, "</g>"]
        y += height + 22
    body += _legend(y)
    y += 22
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y:g}" viewBox="0 0 {WIDTH} {y:g}" '
        f'font-family="{_FONT}" font-size="{_SIZE}">',
        f"<style>{_style()}</style>",
        f'<rect class="page" width="{WIDTH}" height="{y:g}"/>',
        *body,
        "</svg>",
        "",
    ])  # fmt: skip


def _style() -> str:
    def rules(colours: dict[str, str]) -> str:
        named = "".join(f".{name}{{fill:{value};stroke:{value}}}" for name, value in colours.items())
        # Texts have no stroke, lines no fill of their own.
        return f"text{{fill:{colours['ink']}}}{named}"

    fixed = (
        "text,.page,.band{stroke:none}.own{fill-opacity:.35}.waits{fill-opacity:.07;stroke-dasharray:3,2}"
        ".dotted{stroke-dasharray:2,3}.dashed{stroke-dasharray:5,3}"
    )
    return f"{rules(_LIGHT)}{fixed}@media (prefers-color-scheme:dark){{{rules(_DARK)}}}"


def _panel(launch: Launch, scale: Scale, letter: str) -> tuple[list[str], float]:
    """Return the lines and the height of a launch."""
    top = y = 72.0
    calls = sum(len(process.calls) for process in launch.processes)
    first = launch.first_program
    told = [
        f"{calls} calls in {len(launch.processes)} processes",
        f"{spent_words((launch.end - launch.begin) // 1000)} in all",
    ]
    told += [f"the first program began after {spent_words((first - launch.begin) // 1000)}"] if first else []
    lines = [
        _text(_LEFT, 14, f"{letter}Launch of step {launch.name}: {cut(launch.title, 80)}", size=_TITLE, more=_BOLD),
        _text(_LEFT, 31, "; ".join(told), faint=True),
    ]
    bands: list[str] = []
    body: list[str] = []
    for at, (process, rows) in enumerate(_blocks(launch)):
        begin = y
        body += _names(process, y, len(rows))
        for row in rows:
            drawn, height = _row(row, scale, y + 4)
            body += drawn
            y += height
        y += 8
        if at % 2 == 0:
            bands.append(f'<rect class="band" x="0" y="{begin:g}" width="{WIDTH}" height="{y - begin:g}"/>')
    return [*lines, *bands, *_behind(launch, scale, top, y), *body], y


_BOLD = ' font-weight="bold"'


def _behind(launch: Launch, scale: Scale, top: float, bottom: float) -> Iterator[str]:
    """Yield the lines of the scale, the cuts, and the begin of the first program."""

    def upright(names: str, x: float, begin: float) -> str:
        return f'<line class="{names}" x1="{x:.1f}" x2="{x:.1f}" y1="{begin:g}" y2="{bottom:g}"/>'

    for x, words in scale.ticks():
        yield upright("line", _LEFT + x, top - 6)
        yield _text(_LEFT + x, top - 10, words, faint=True, anchor="middle")
    for x, idle in scale.cuts():
        yield upright("faint dotted", _LEFT + x + 6, top - 6)
        yield upright("faint dotted", _LEFT + x + CUT, top - 6)
        words = f"{spent_words(idle // 1000)} no calls"
        yield _text(_LEFT + x + CUT / 2 + 3, top - 25, words, faint=True, anchor="middle")
    first = launch.first_program
    if first is not None:
        yield upright("user dashed", _LEFT + scale.x(first), top - 6)


def _blocks(launch: Launch) -> Iterator[tuple[Process, list[_Row]]]:
    tasks = sorted((one for one in launch.processes if one.kind == "task"), key=lambda one: one.task or 0)
    whole = len(tasks) if len(tasks) <= _MOST_WHOLE else 1
    for process in (*(one for one in launch.processes if one.kind != "task"), *tasks[:whole]):
        yield process, list(_rows(process))
    for process in tasks[whole : whole + _MOST_ROWS]:
        yield process, [_summary(process, "")]
    for process in tasks[whole + _MOST_ROWS : whole + _MOST_ROWS + 1]:
        yield process, [_summary(process, f"and {len(tasks) - whole - _MOST_ROWS - 1} tasks more")]


def _rows(process: Process) -> Iterator[_Row]:
    """Yield a row for each call, with calls for different tasks in the same row."""
    same: dict[tuple[str, str], list[Call]] = {}
    for call in process.calls:
        same.setdefault((call.name, call.plugin), []).append(call)
    for (name, plugin), calls in same.items():
        words = [name, plugin, f"{len(calls)} times" if len(calls) > 1 else ""]
        # The time of exec is not shown: nodectl does not wait here for the program's end.
        spent = spent_words(sum(call.length for call in calls) // 1000)
        words.append("the program begins" if name == "exec" else spent)
        failed = next((call for call in calls if call.rc), None)
        words += [_failure(failed)] if failed else []
        yield _Row(tuple(calls), tuple(word for word in words if word), failed is not None)


def _summary(process: Process, more: str) -> _Row:
    """Return all calls of a process in a row."""
    failed = next((call for call in process.calls if call.rc), None)
    words = (failed.name, _failure(failed)) if failed else (more,) if more else ()
    return _Row(process.calls, words, failed is not None)


def _failure(call: Call) -> str:
    return cut(f"rc {call.rc}: {call.note}" if call.note else f"rc {call.rc}", _LONGEST_NOTE)


def _names(process: Process, y: float, rows: int) -> Iterator[str]:
    yield _text(10, y + 15, process.name, more=_BOLD)
    if rows > 1:
        yield _text(10, y + 15 + _ROW, f"pid {process.pid}", faint=True)


def _row(row: _Row, scale: Scale, y: float) -> tuple[list[str], float]:
    """Return the bars and the words of a row, and the height. Words stand behind, before or above the bars."""
    left = _LEFT + scale.x(row.calls[0].begin)
    right = _LEFT + max(scale.x(call.end) for call in row.calls)
    wide = _CHARACTER * len("  ".join(row.words))
    if right + 6 + wide <= WIDTH - 4:
        return [*_bars(row, scale, y), *_words(row, right + 6, y, "start")], _ROW
    if left - 6 - wide >= _LEFT:
        return [*_bars(row, scale, y), *_words(row, left - 6, y, "end")], _ROW
    at = max(_LEFT, min(left, WIDTH - 4 - wide))
    return [*_words(row, at, y, "start"), *_bars(row, scale, y + _ROW)], 2 * _ROW


def _bars(row: _Row, scale: Scale, y: float) -> Iterator[str]:
    drawn = 0.0
    for call in row.calls:
        x = _LEFT + scale.x(call.begin)
        wide = max(scale.x(call.end) + _LEFT - x, _THINNEST)
        if len(row.calls) > _MOST_BARS and x < drawn + _APART and not call.rc:
            continue
        drawn = x + wide
        manner = "hook" if call.is_hook else "waits" if call.name in WAITS else "own"
        yield (
            f'<rect class="{call.identity} {manner}" x="{x:.1f}" y="{y + 1:g}" width="{wide:.1f}" height="{_BAR}">'
            f"<title>{escape(_tip(call, scale))}</title></rect>"
        )


def _words(row: _Row, x: float, y: float, anchor: str) -> Iterator[str]:
    if not row.words:
        return
    name, *others = row.words
    words = escape(name) + "".join(f'<tspan dx="7"{_FAINT}>{escape(word)}</tspan>' for word in others)
    manner = (' class="failed"' if row.failed else "") + (' text-anchor="end"' if anchor == "end" else "")
    yield f'<text x="{x:.1f}" y="{y + 10:g}"{manner}>{words}</text>'


def _tip(call: Call, scale: Scale) -> str:
    words = [call.name + (f" [{call.task}]" if call.task is not None else ""), call.plugin]
    words += [f"{(call.begin - scale.origin) / 1e6:.3f} ms", spent_words(call.length // 1000), f"as {call.user}"]
    words += [f"cgroup {call.cgroup}", f"CPUs {call.cpus}", _failure(call) if call.rc or call.note else ""]
    return ", ".join(word for word in words if word)


def _legend(y: float) -> Iterator[str]:
    x = float(_LEFT)
    for identity, words in _IDENTITIES:
        for manner in _MANNERS:
            yield f'<rect class="{identity} {manner}" x="{x:g}" y="{y - 8:g}" width="{_SWATCH}" height="{_BAR}"/>'
            x += _SWATCH + 2
        yield _text(x + 4, y + 2, words)
        x += 4 + _CHARACTER * len(words) + 18
    yield _text(x, y + 2, _STRENGTHS, faint=True)
    x += _CHARACTER * len(_STRENGTHS) + 18
    yield f'<line class="user dashed" x1="{x:g}" x2="{x:g}" y1="{y - 12:g}" y2="{y + 6:g}"/>'
    yield _text(x + 6, y + 2, _FIRST_PROGRAM)


def _text(
    x: float, y: float, text: str, *, size: int = _SIZE, faint: bool = False, anchor: str = "", more: str = ""
) -> str:
    extra = (f' font-size="{size}"' if size != _SIZE else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:.1f}" y="{y:.1f}"{extra}{_FAINT if faint else ""}{more}>{escape(text)}</text>'


_FAINT = ' fill-opacity=".7"'
