"""A comparison of two launches: count and time of each call, by process. Pure."""

from __future__ import annotations

from nodectl.client.render.table import table
from nodectl.model.words import spent_words
from nodectl.view.timelines.launch import Call, Launch

_Key = tuple[str, str, str]  # process, call, plugin
_SUMS = ("", "A", "B", "B - A")
# The names stand at the end, where a narrow terminal cuts.
_CALLS = ("CALLS A", "TIME A", "CALLS B", "TIME B", "B - A", "PROCESS", "CALL", "PLUGIN")


def compared(one: Launch, other: Launch, width: int | None = None) -> list[str]:
    """Return the lines: the launches, the sums, and a table of the calls in the order of the launch."""
    sums = [
        ("until the first program", _until_program(one), _until_program(other)),
        ("first call to last", one.end - one.begin, other.end - other.begin),
    ]
    rows = [(name, _words(here), _words(there), _difference(here, there)) for name, here, there in sums]
    lines = [f"A: step {one.name}, {one.title}", f"B: step {other.name}, {other.title}", ""]
    lines += table(_SUMS, rows, right=_SUMS[1:], width=width)
    here, there = _grouped(one), _grouped(other)
    body = []
    for key in _in_order(list(here), list(there)):
        process, name, plugin = key
        times = [sum(call.length for call in calls[key]) if key in calls else None for calls in (here, there)]
        counts = [len(calls.get(key, ())) or "-" for calls in (here, there)]
        body.append(
            (counts[0], _words(times[0]), counts[1], _words(times[1]), _difference(*times), process, name, plugin)
        )
    return [*lines, "", *table(_CALLS, body, right=_CALLS[:5], width=width)]


def _grouped(launch: Launch) -> dict[_Key, list[Call]]:
    """Return the calls of each kind, ordered by first call; all tasks together."""
    found: dict[_Key, list[Call]] = {}
    calls = [(call, process.kind) for process in launch.processes for call in process.calls]
    for call, process in sorted(calls, key=lambda pair: pair[0].begin):
        found.setdefault((process, call.name, call.plugin), []).append(call)
    return found


def _in_order(one: list[_Key], other: list[_Key]) -> list[_Key]:
    """Return the keys of both launches: the first launch's order, with each further key behind its predecessor."""
    merged = list(one)
    for place, key in enumerate(other):
        if key not in one:
            before = other[place - 1] if place else None
            merged.insert(merged.index(before) + 1 if before else 0, key)
    return merged


def _until_program(launch: Launch) -> int | None:
    first = launch.first_program
    return None if first is None else first - launch.begin


def _words(nanoseconds: int | None) -> str:
    return "-" if nanoseconds is None else spent_words(nanoseconds // 1000)


def _difference(here: int | None, there: int | None) -> str:
    if here is None or there is None:
        return "-"
    if here == there:
        return "same"
    return f"{'+' if there >= here else '-'}{spent_words(abs(there - here) // 1000)}"
