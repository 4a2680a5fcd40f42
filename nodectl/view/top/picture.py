"""The machine in colours with the jobs on the cores, drawn as by `nodectl topo`."""

from __future__ import annotations

import re

from rich.text import Text

from nodectl.client.render import machine_text
from nodectl.client.render.machine_svg import JOB_COLOURS
from nodectl.client.render.occupants import MANY, Occupation
from nodectl.placement.machine.topology import Topology

# Told apart on light and dark terminals of eight colours; the letter says the same.
_EIGHT = ("cyan", "yellow", "green", "magenta", "blue", "red")
_LABEL = re.compile(r"(?<![^ │])[A-Za-z#][0-9]*\+?(?![^ │])")
_MAP = re.compile(r"(?<=\[)[A-Za-z#.x]+(?=\])")


def style_of(key: str, occupation: Occupation, *, eight: bool) -> str:
    """Return the colours of a job's letter: from the terminal's own `eight`, or from the picture in SVG."""
    keys = [job.key for job in occupation.jobs]
    if key == MANY or key not in keys:
        return "reverse"
    at = keys.index(key)
    if not eight:
        return f"#000000 on {JOB_COLOURS[at % len(JOB_COLOURS)]}"
    colour = _EIGHT[at % len(_EIGHT)]
    return f"{'white' if colour in ('blue', 'red') else 'black'} on {colour}"


def draw(topology: Topology, occupation: Occupation, width: int, *, eight: bool) -> Text:
    """Return the picture; no line is wrapped."""
    lines = machine_text.draw_cores(topology, occupation, width=width)
    text = Text("\n".join(lines), no_wrap=True)
    at = 0
    below_cores = False
    for line in lines:
        cells = list(_MAP.finditer(line))
        for row in cells:
            for place, letter in enumerate(row[0], at + row.start()):
                if letter not in ".x":
                    text.stylize(style_of(letter, occupation, eight=eight), place, place + 1)
        if below_cores:
            for label in _LABEL.finditer(line):
                text.stylize(style_of(label[0][0], occupation, eight=eight), at + label.start(), at + label.end())
        below_cores = "[" in line and not cells
        at += len(line) + 1
    return text
