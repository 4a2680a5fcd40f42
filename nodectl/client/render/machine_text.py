"""The machine as text for a terminal of some 80 to 120 columns.

Up to 256 CPUs, each CPU is shown by its number with its job below; a larger machine is a map with one character a core,
so that it still fits a screen.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from nodectl.client.render.machine_groups import Box, tree
from nodectl.client.render.occupants import MANY, Occupation, pinned_words
from nodectl.client.render.table import GAP, cut, table
from nodectl.model.cpu_list import cpus_of, format_cpulist
from nodectl.model.step_number import step_name
from nodectl.placement.machine.pci import PciDevice
from nodectl.placement.machine.topology import Core, Topology

MOST_NUMBERED = 256
_FREE, _UNUSABLE = ".", "x"
_LONGEST_NAME = 20
_NARROWEST = 20  # of the holders of a device
_STEP_HEADER = ("", "STEP", "USER", "NAME", "TASKS", "PINNED", "CPUS")


def draw(
    topology: Topology, occupation: Occupation, devices: Iterable[PciDevice] = (), *, width: int = 100
) -> list[str]:
    """Return the picture line by line, no line longer than `width` unless a single core is."""
    machine = tree(topology, devices)
    drawing = _drawing(topology, occupation, width)
    lines = [machine.title]
    for note in machine.notes:
        lines += textwrap.wrap(note, width, subsequent_indent="  ")
    lines += drawing.contents(machine, width)
    for note in [drawing.legend(), *_remarks(topology)]:
        lines += textwrap.wrap(note, width, subsequent_indent="  ")
    return [*lines, *_steps(occupation, width), *_devices(occupation, width)]


def draw_cores(topology: Topology, occupation: Occupation, *, width: int) -> list[str]:
    """Return only the contents of the machine, for callers with a separate title and legend."""
    return _drawing(topology, occupation, width).contents(tree(topology), width)


def _drawing(topology: Topology, occupation: Occupation, width: int) -> _Drawing:
    kind = _Numbers if len(topology.machine_of) <= MOST_NUMBERED else _Map
    return kind(topology, occupation, width)


def _remarks(topology: Topology) -> Iterator[str]:
    unusable = topology.online & ~topology.usable
    sets = [("not to be used from here", unusable), ("isolated", topology.isolated), ("offline", topology.offline)]
    sets += [(f"{kind.name} cores", kind.mask) for kind in topology.kinds]
    for words, mask in sets:
        if mask:
            yield f"{words}: CPUs {format_cpulist(cpus_of(mask))}"


def _steps(occupation: Occupation, width: int) -> list[str]:
    rows = [
        (
            job.key,
            step_name(job.name, step.number),
            job.user,
            cut(step.name, _LONGEST_NAME),
            step.ntasks,
            pinned_words(job, step),
            format_cpulist(cpus_of(job.mask)),
        )
        for job in occupation.jobs
        for step in job.steps
    ]
    return ["", *table(_STEP_HEADER, rows, right=("TASKS",), width=width)] if rows else []


def _devices(occupation: Occupation, width: int) -> list[str]:
    devices = occupation.device_words()
    rest = width - max((len(device) for device, _ in devices), default=0) - len(GAP)
    rows = [
        (device if place == 0 else "", line)
        for device, words in devices
        for place, line in enumerate(textwrap.wrap(words, max(rest, _NARROWEST)))
    ]
    return ["", *table(("DEVICE", "HELD BY"), rows, width=width)] if rows else []


class _Drawing:
    """The arrangement of groups, side by side and nested. Blocks are lists of lines."""

    def __init__(self, topology: Topology, occupation: Occupation, width: int) -> None:
        self.topology = topology
        self.occupation = occupation
        self.width = width

    def contents(self, group: Box, width: int) -> list[str]:
        """Return the contents of a group: the groups inside, side by side, then the cores."""
        boxed = any(map(_holds_socket, group.inside))
        blocks = [self.block(inside, width - 4 * boxed) for inside in group.inside]
        if boxed:
            wide = max(len(line) for block in blocks for line in block)
            titles = [cut(inside.title, width - 6) for inside in group.inside]
            wide = max(wide, *(len(title) + 2 for title in titles))
            blocks = [_box(title, block, wide) for title, block in zip(titles, blocks, strict=True)]
        return [*_beside(blocks, width, " " if boxed else "   "), *self.cores(group.cores, width)]

    def block(self, group: Box, width: int) -> list[str]:
        """Return a group without a box around."""
        notes = [line for note in group.notes for line in textwrap.wrap(note, width)]
        if _holds_socket(group):
            return [*notes, *self.contents(group, width)]
        inside = self.contents(group, width - 2)
        return [cut(group.title, width), *(f"  {line}" for line in (*notes, *inside))]

    def cores(self, cores: Sequence[Core], width: int) -> list[str]:
        raise NotImplementedError

    def legend(self) -> str:
        raise NotImplementedError


class _Numbers(_Drawing):
    """Every core as a cell with the numbers of the core's CPUs, all cells equally wide to form columns."""

    def __init__(self, topology: Topology, occupation: Occupation, width: int) -> None:
        super().__init__(topology, occupation, width)
        self.marked = bool(topology.online & ~topology.usable)
        self.digits = max(
            len(str(topology.width - 1)), *(len(occupation.label(cpu)) - self.marked for cpu in topology.machine_of)
        )

    def cores(self, cores: Sequence[Core], width: int) -> list[str]:
        if not cores:
            return []
        cells = [(self._cell(core.cpus), self._labels(core.cpus)) for core in cores]
        per_row = max(1, (width + 1) // (max(len(cell) for cell, _ in cells) + 1))
        lines = []
        for first in range(0, len(cells), per_row):
            row = cells[first : first + per_row]
            lines.append(" ".join(cell for cell, _ in row))
            labels = " ".join(label for _, label in row).rstrip()
            if labels:
                lines.append(labels)
        return lines

    def legend(self) -> str:
        words = "[ ] is a core with its CPUs"
        if self.marked:
            words += ", * marks a CPU that may not be used from here"
        if self.occupation.jobs:
            words += (
                f"; below a CPU A is its job, A3 with task 3 pinned there, A3+ with others too, {MANY} several jobs"
            )
        return words

    def _cell(self, cpus: Iterable[int]) -> str:
        return f"[{' '.join(f'{cpu:{self.digits}d}{self._mark(cpu)}' for cpu in cpus)}]"

    def _labels(self, cpus: Iterable[int]) -> str:
        wide = self.digits + self.marked
        return f" {' '.join(f'{self.occupation.label(cpu):>{wide}}' for cpu in cpus)} "

    def _mark(self, cpu: int) -> str:
        if not self.marked:
            return ""
        return " " if self.topology.usable >> cpu & 1 else "*"


class _Map(_Drawing):
    """Every core as a character, behind the numbers of the row's CPUs."""

    def block(self, group: Box, width: int) -> list[str]:
        if group.inside or _holds_socket(group):
            return super().block(group, width)
        # Of a cache only the level, because the head of the picture has the sizes.
        title = group.title.split()[0] if group.what == "cache" else group.title
        rows = list(self._rows(group.cores, width - len(title) - 1))
        indent = " " * len(title)
        return [f"{indent if at else title} {row}" for at, row in enumerate(rows)]

    def cores(self, cores: Sequence[Core], width: int) -> list[str]:
        return list(self._rows(cores, width))

    def legend(self) -> str:
        words = f"one character is a core, behind the numbers of the CPUs: {_FREE} free"
        if self.occupation.jobs:
            words += f", A for job A, {MANY} for several jobs"
        return words + (f", {_UNUSABLE} not to be used" if self.topology.online & ~self.topology.usable else "")

    def _rows(self, cores: Sequence[Core], width: int) -> Iterator[str]:
        """Yield rows of as many cores as fit, all rows of equal length."""
        per_row = max(1, min(len(cores), 64))
        while True:
            rows = [cores[first : first + per_row] for first in range(0, len(cores), per_row)]
            names = [format_cpulist(cpu for core in row for cpu in core.cpus) for row in rows]
            wide = max(map(len, names), default=0)
            if per_row == 1 or wide + 3 + per_row <= width:
                break
            per_row = (per_row + 1) // 2
        for name, row in zip(names, rows, strict=True):
            yield f"{name:{wide}} [{''.join(map(self._mark, row))}]"

    def _mark(self, core: Core) -> str:
        if not core.mask & self.topology.usable:
            return _UNUSABLE
        keys = {self.occupation.key(cpu) for cpu in core.cpus} - {""}
        return keys.pop() if len(keys) == 1 else MANY if keys else _FREE


def _holds_socket(group: Box) -> bool:
    return group.what in {"board", "socket"} or any(map(_holds_socket, group.inside))


def _box(title: str, inside: Sequence[str], width: int) -> list[str]:
    top = f"┌─ {title} ".ljust(width + 3, "─") + "┐"
    return [top, *(f"│ {line:{width}} │" for line in inside), "└" + "─" * (width + 2) + "┘"]


def _beside(blocks: Sequence[list[str]], width: int, gap: str) -> list[str]:
    """Put blocks side by side in columns of equal width, as many as fit."""
    if not blocks:
        return []
    wide = max(len(line) for block in blocks for line in block)
    most = max(1, (width + len(gap)) // (wide + len(gap)))
    columns = _up(len(blocks), _up(len(blocks), most))  # as few rows as possible, equally full
    lines = []
    for first in range(0, len(blocks), columns):
        row = blocks[first : first + columns]
        for at in range(max(map(len, row))):
            cells = (block[at] if at < len(block) else "" for block in row)
            lines.append(gap.join(f"{cell:{wide}}" for cell in cells).rstrip())
    return lines


def _up(number: int, divisor: int) -> int:
    return -(-number // divisor)
