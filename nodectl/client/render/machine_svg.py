"""The machine as an SVG: boxes in boxes in lstopo's colours, CPUs in the colours of jobs.

Lengths are pixels. Each box arranges its contents in rows and columns with a total width near one and a half times the
height, so that pictures of large machines still fit screens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape

from nodectl.client.render.machine_groups import Box, tree
from nodectl.client.render.occupants import MANY, Job, Occupation, RunningStep, cpus_words, pinned_words
from nodectl.client.render.table import cut
from nodectl.model.cpu_list import cpus_of, format_cpulist
from nodectl.model.step_number import step_name
from nodectl.model.words import printable
from nodectl.placement.machine.pci import PciDevice
from nodectl.placement.machine.topology import Core, Topology

# lstopo's colours, because people know them.
_FILL = {
    "machine": "#ffffff",
    "board": "#f2f2f2",
    "socket": "#e7ffb5",
    "node": "#efdfde",
    "cache": "#ffffff",
    "core": "#c8c8c8",
}
_FREE, _UNUSABLE, _SEVERAL = "#ffffff", "#8c8c8c", "#5c5c5c"
# Light enough for black text, told apart by colour-blind people too (after Okabe and Ito); the letter says the same.
JOB_COLOURS = ("#7cc4f0", "#f5b642", "#5fcfa8", "#f3a3c8", "#f6ec6b", "#c3b1ff", "#ff9c78", "#a8d98a")
_LINE, _EDGE = "#404040", "#000000"
# The picture is dark for readers who prefer dark pages: these colours in the place of others. Jobs keep theirs.
_DARK = {
    _FREE: "#16181c", "#f2f2f2": "#1e2126", "#e7ffb5": "#27321b", "#efdfde": "#3a2a2e", "#c8c8c8": "#474c54",
    _UNUSABLE: "#6a6f76",
}  # fmt: skip
_INK, _DARK_INK = "#1a1a1a", "#ececec"
_STYLE = (
    f"<style>text{{fill:{_INK}}}.on{{fill:#000000}}.off{{fill:#ffffff}}@media (prefers-color-scheme:dark){{"
    + "".join(f'rect[fill="{light}"]{{fill:{dark}}}' for light, dark in _DARK.items())
    + f"rect[stroke]{{stroke:#8a9099}}text{{fill:{_DARK_INK}}}.on{{fill:#000000}}.off{{fill:#ffffff}}}}</style>"
)
_TITLE, _SMALL = 13, 11
# Width to size of DejaVu Sans Mono, the widest of the usual monospaced fonts.
_CHARACTER = 0.61
_PAD, _GAP = 6, 5
_ASPECT = 1.5
# Above this many cores, only the tool tips have the cores' numbers.
_MOST_NAMED = 128
# The longest line of the legend, in characters: a wider line would widen the picture.
_LONGEST = 120
_FONT = "DejaVu Sans Mono, Menlo, Consolas, monospace"


@dataclass(frozen=True, slots=True)
class _Shape:
    """A drawable shape of known size.

    `fill` is the colour of the frame, `parts` are (x, y, shape) inside, `marks` are finished SVG elements relative to
    the shape's origin.
    """

    width: float
    height: float
    marks: tuple[str, ...] = ()
    parts: tuple[tuple[float, float, _Shape], ...] = ()
    name: str = ""
    fill: str = ""

    def svg(self) -> Iterable[str]:
        if self.name:
            yield f"<title>{escape(self.name)}</title>"
        if self.fill:
            yield _rectangle(self.width, self.height, self.fill, _LINE)
        yield from self.marks
        for x, y, part in self.parts:
            yield f'<g transform="translate({x:g},{y:g})">'
            yield from part.svg()
            yield "</g>"


def draw(topology: Topology, occupation: Occupation, devices: Iterable[PciDevice] = ()) -> str:
    """Return the picture as a whole SVG document."""
    machine = _Drawing(topology, occupation).group(tree(topology, devices))
    below = _legend(topology, occupation, machine.width)
    gap = _PAD + _GAP
    width = max(machine.width, below.width) + 2 * gap
    height = machine.height + below.height + 3 * gap
    page = _Shape(width, height, parts=((gap, gap, machine), (gap, machine.height + 2 * gap, below)))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="{_FONT}" font-size="{_SMALL}">'
    )
    return "\n".join([head, _STYLE, _rectangle(width, height, _FREE, ""), *page.svg(), "</svg>", ""])


class _Drawing:
    """The shapes of a machine; all CPUs are equally large."""

    def __init__(self, topology: Topology, occupation: Occupation) -> None:
        self.topology = topology
        self.occupation = occupation
        self.named = len(topology.cores) <= _MOST_NAMED
        labels = [occupation.label(cpu) for cpu in topology.machine_of]
        longest = max(len(str(topology.width - 1)), *map(len, labels))
        self.cpu_width = max(24.0, math.ceil(_text_width(longest, _SMALL)) + 6)
        self.cpu_height = 32.0 if occupation.jobs else 19.0
        self.socket_of = {core.number: socket.number for socket in topology.sockets for core in socket.cores}
        self.node_of = {cpu: node.number for node in topology.nodes for cpu in cpus_of(node.mask)}
        self.core_characters = max(
            len(f"core {len(topology.cores) - 1}"), *(len(kind.name) for kind in topology.kinds), 0
        )
        self.kind_of = {cpu: kind.name for kind in topology.kinds for cpu in cpus_of(kind.mask)}

    def group(self, group: Box) -> _Shape:
        """Return the shape of a group with all contents."""
        body = [self.group(inside) for inside in group.inside]
        blocks = [_grid(body)] if body else []
        if group.cores:
            blocks.append(_grid([self.core(core) for core in group.cores]))
        words = [(group.title, _TITLE)]
        wide = max((block.width for block in blocks), default=0.0)
        room = max(wide, _text_width(len(group.title), _TITLE))
        words += [(line, _SMALL) for note in group.notes for line in _wrapped(note, room)]
        return _framed(words, _stack(blocks), _FILL[group.what])

    def core(self, core: Core) -> _Shape:
        """Return the shape of a core with all threads."""
        cpus = _grid([self.cpu(cpu, core) for cpu in core.cpus], gap=2, aspect=3)
        kind = self.kind_of.get(core.cpus[0], "")
        words = [(f"core {core.number}", _SMALL)] if self.named else []
        if kind and self.named:
            words.append((kind, _SMALL))
        # All titles as wide as the last, so that cores form columns.
        words = [(line.ljust(self.core_characters), size) for line, size in words]
        return _framed(words, cpus, _FILL["core"], pad=3, centred=True)

    def cpu(self, cpu: int, core: Core) -> _Shape:
        """Return the shape of a CPU, with the CPU's number and job."""
        label = self.occupation.label(cpu)
        job = self.occupation.holder(cpu)
        usable = self.topology.usable >> cpu & 1
        several = label == MANY and job is None
        fill = _SEVERAL if several else colour(job, self.occupation) if job else _FREE
        ink = "off" if several else "on" if job else ""
        if not usable:
            fill, ink = _UNUSABLE, "off"
        dashed = ' stroke-dasharray="3,2"' if self.topology.isolated >> cpu & 1 else ""
        marks = [_rectangle(self.cpu_width, self.cpu_height, fill, _EDGE, dashed)]
        marks.append(_centred(str(cpu), self.cpu_width / 2, 13 if label else self.cpu_height / 2 + 4, ink))
        if label:
            marks.append(_centred(label, self.cpu_width / 2, 27, ink, bold=True))
        return _Shape(self.cpu_width, self.cpu_height, tuple(marks), name=self._tip(cpu, core, job, label))

    def _tip(self, cpu: int, core: Core, job: Job | None, label: str) -> str:
        socket, node = self.socket_of[core.number], self.node_of.get(cpu)
        words = [f"CPU {cpu}", f"abstract {self.topology.abstract_of[cpu]}", f"core {core.number}", f"socket {socket}"]
        words += [f"NUMA node {node}"] if node is not None else []
        words += [f"{self.kind_of[cpu]} core"] if cpu in self.kind_of else []
        words += ["isolated"] if self.topology.isolated >> cpu & 1 else []
        words += ["not to be used from here"] if not self.topology.usable >> cpu & 1 else []
        if job:
            words.append(f"job {job.name} of {printable(job.user)}" + (f", task {label[1:]}" if label[1:] else ""))
        elif label:
            words.append("several jobs")
        return ", ".join(words)


def _legend(topology: Topology, occupation: Occupation, width: float) -> _Shape:
    """Return the legend of colours and letters, in as many columns as the picture has room for."""
    rows = [
        (
            job.key,
            colour(job, occupation),
            ", ".join(filter(None, _words(job, step))),
        )
        for job in occupation.jobs
        for step in job.steps
    ]
    unusable = topology.online & ~topology.usable
    if unusable:
        rows.append(("", _UNUSABLE, f"not to be used from here: CPUs {format_cpulist(cpus_of(unusable))}"))
    if topology.offline:
        rows.append(("", "", f"offline: CPUs {format_cpulist(cpus_of(topology.offline))}"))
    if topology.isolated:
        rows.append(("", "", f"isolated, dashed: CPUs {format_cpulist(cpus_of(topology.isolated))}"))
    rows += [("", "", f"{device}: {words}") for device, words in occupation.device_words()]
    entries = [_entry(key, fill, cut(words, _LONGEST)) for key, fill, words in rows]
    if not entries:
        return _Shape(0, 0)
    columns = max(1, int((width + _GAP) // (max(entry.width for entry in entries) + 3 * _GAP)))
    return _placed(entries, columns, gap=3 * _GAP, between=2)


def _words(job: Job, step: RunningStep) -> tuple[str, ...]:
    tasks = f"{step.ntasks} task{'s' if step.ntasks > 1 else ''}"
    name = f"job {step_name(job.name, step.number)}"
    return name, printable(job.user), printable(step.name), tasks, pinned_words(job, step), cpus_words(job.mask)


def _entry(key: str, fill: str, words: str) -> _Shape:
    marks = [f'<text x="30" y="14">{escape(words)}</text>']
    if fill:
        marks = [_rectangle(24, 18, fill, _EDGE), _centred(key, 12, 13, "on", bold=True), *marks]
    return _Shape(30 + _text_width(len(words), _SMALL), 19, tuple(marks))


def colour(job: Job, occupation: Occupation) -> str:
    """Return the colour of a job in the picture."""
    return JOB_COLOURS[occupation.jobs.index(job) % len(JOB_COLOURS)]


def _wrapped(text: str, width: float) -> list[str]:
    """Cut a text into lines of the given width."""
    most = max(10, int(width / _text_width(1, _SMALL)))
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > most:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return lines


def _text_width(characters: int, size: int) -> float:
    return characters * size * _CHARACTER


def _framed(
    words: Sequence[tuple[str, int]], body: _Shape, fill: str, *, pad: float = _PAD, centred: bool = False
) -> _Shape:
    """Return a box with lines of text (and sizes) at the head."""
    marks: list[str] = []
    y = pad
    for text, size in words:
        marks.append(f'<text x="{pad:g}" y="{y + size:g}" font-size="{size}">{escape(text)}</text>')
        y += size + 4
    width = max([body.width, *(_text_width(len(text), size) for text, size in words)]) + 2 * pad
    height = y + body.height + pad
    return _Shape(width, height, tuple(marks), (((width - body.width) / 2 if centred else pad, y, body),), fill=fill)


def _stack(shapes: Sequence[_Shape]) -> _Shape:
    return _placed(shapes, 1, gap=_GAP, between=_GAP) if shapes else _Shape(0, 0)


def _grid(shapes: Sequence[_Shape], *, gap: float = _GAP, aspect: float = _ASPECT) -> _Shape:
    """Put shapes in rows and columns with a ratio near `aspect`, full rows preferred."""
    width = max(shape.width for shape in shapes) + gap
    height = max(shape.height for shape in shapes) + gap

    def badness(columns: int) -> float:
        rows = -(-len(shapes) // columns)
        empty = rows * columns / len(shapes) - 1
        ragged = 0.6 + 2 * empty if empty else 0.0
        return abs(math.log(columns * width / (rows * height) / aspect)) + ragged

    return _placed(shapes, min(range(1, len(shapes) + 1), key=badness), gap=gap, between=gap)


def _placed(shapes: Sequence[_Shape], columns: int, *, gap: float, between: float) -> _Shape:
    """Put shapes in so many columns, each as wide as the widest shape, `gap` apart; rows are `between` apart."""
    widths = [max(shape.width for shape in shapes[column::columns]) for column in range(min(columns, len(shapes)))]
    rows = [shapes[first : first + columns] for first in range(0, len(shapes), columns)]
    parts: list[tuple[float, float, _Shape]] = []
    y = 0.0
    for row in rows:
        x = 0.0
        height = max(shape.height for shape in row)
        for shape, width in zip(row, widths, strict=False):
            # Frames beside one another are equally large.
            parts.append((x, y, replace(shape, width=width, height=height) if shape.fill else shape))
            x += width + gap
        y += height + between
    return _Shape(sum(widths) + gap * (len(widths) - 1), y - between, parts=tuple(parts))


def _rectangle(width: float, height: float, fill: str, stroke: str, more: str = "") -> str:
    line = f' stroke="{stroke}"' if stroke else ""
    return f'<rect width="{width:g}" height="{height:g}" fill="{fill}"{line}{more}/>'


def _centred(text: str, x: float, y: float, ink: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    manner = f' class="{ink}"' if ink else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle"{manner}{weight}>{escape(text)}</text>'
