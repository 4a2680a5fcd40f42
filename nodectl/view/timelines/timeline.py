"""The trace of a step as a timeline for people. Pure.

A line of the timeline is a call: the time of its beginning, the identity of the process at the call's return, the
called function, the result. Calls are in order of beginning; a heading marks each change of process, and below it the
changes of the process's cgroup and CPUs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nodectl.client.render.table import GAP
from nodectl.model.words import count_words, cpu_list, printable, spent_words

Line = Mapping[str, Any]
# Select Graphic Rendition, ECMA-48 8.3.117.
_COLOURS = {"heading": "1", "root": "31", "user": "32", "effective": "33", "failed": "1;31", "faint": "2"}


def timeline(lines: Sequence[Line], name_of: Callable[[int], str], *, colour: bool = False) -> list[str]:
    """Return the text of a trace of at least a line. `name_of` gives a uid's name, called once for each uid."""
    ordered = sorted(lines, key=lambda line: line["t"])
    first = ordered[0]["t"]
    last = max(line["t"] + line["us"] * 1000 for line in ordered)
    processes = {(line["process"], line["pid"]) for line in ordered}
    names = {uid: printable(name_of(uid)) for line in ordered for uid in (line["ruid"], line["euid"])}
    paint = _painter(colour)
    title = f"{count_words(len(ordered), 'call')} in {count_words(len(processes), 'process', 'processes')}"
    return [f"{title}, {(last - first) / 1e6:.3f} ms", *_body(ordered, first, names, paint)]


def _body(
    lines: Sequence[Line], first: int, names: Mapping[int, str], paint: Callable[[str, str], str]
) -> Iterator[str]:
    cells = [_cells(line, first, names) for line in lines]
    widths = [max(len(row[column]) for row in cells) for column in range(5)]
    seen: dict[int, tuple[str, str]] = {}
    running: int | None = None
    for line, row in zip(lines, cells, strict=True):
        pid = line["pid"]
        if pid != running:
            yield ""
            yield paint("heading", f"== {_whose(line)}, pid {pid} ==")
            running = pid
        place = (line["cgroup"], line["affinity"])
        if seen.get(pid) != place:
            yield paint("faint", " " * (widths[0] + len(GAP)) + _moved(seen.get(pid), place))
            seen[pid] = place
        at, who, call, plugin, spent = (
            cell.rjust(wide) if column in (0, 4) else cell.ljust(wide)
            for column, (cell, wide) in enumerate(zip(row, widths, strict=True))
        )
        yield GAP.join([at, paint(_kind_of_identity(line), who), call, plugin, spent, _result(line, paint)]).rstrip()


def _cells(line: Line, first: int, names: Mapping[int, str]) -> tuple[str, str, str, str, str]:
    who = names[line["ruid"]]
    if line["euid"] != line["ruid"]:
        who += f" as {names[line['euid']]}"
    # For a call of the step runner for one task, the task's number; in a task the heading has it.
    whose = f" [{line['task']}]" if line["task"] is not None and line["process"] != "task" else ""
    at = f"{(line['t'] - first) / 1e6:.3f}"
    return at, who, printable(line["call"]) + whose, printable(line["plugin"]) or "-", spent_words(line["us"])


def _whose(line: Line) -> str:
    process = printable(line["process"])
    return f"{process} {line['task']}" if process == "task" and line["task"] is not None else process


def _moved(before: tuple[str, str] | None, now: tuple[str, str]) -> str:
    """Return the changes of a process's cgroup and CPUs; both values at the first time."""
    said = []
    if before is None or before[0] != now[0]:
        said.append(f"cgroup {printable(now[0]) or 'unknown'}")
    if before is None or before[1] != now[1]:
        said.append(f"CPUs {cpu_list(now[1])}")
    return ", ".join(said) if before is None else f"now {', '.join(said)}"


def _kind_of_identity(line: Line) -> str:
    if line["euid"] != line["ruid"]:
        return "effective"
    return "root" if line["ruid"] == 0 else "user"


def _result(line: Line, paint: Callable[[str, str], str]) -> str:
    said = f"rc {line['rc']}" if line["rc"] else ""
    note = printable(line.get("note", ""))
    text = f"{said}: {note}" if said and note else said or note
    return paint("failed", text) if said else text


def _painter(colour: bool) -> Callable[[str, str], str]:
    def paint(what: str, text: str) -> str:
        return f"\x1b[{_COLOURS[what]}m{text}\x1b[0m" if colour and text else text

    return paint
