"""A launch as Chrome's trace events in JSON ("Trace Event Format"): complete events. Pure.

ui.perfetto.dev, chrome://tracing and Speedscope open them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from nodectl.view.timelines.launch import Launch


def document(launch: Launch) -> str:
    """Return the whole file."""
    found = {
        "displayTimeUnit": "ns",
        "otherData": {"step": launch.name, "node": launch.node, "title": launch.title, "submitted": launch.submitted},
        "traceEvents": list(_events(launch)),
    }
    return json.dumps(found, indent=1) + "\n"


def _events(launch: Launch) -> Iterator[dict[str, object]]:
    for place, process in enumerate(launch.processes):
        own = {"pid": process.pid, "tid": process.pid if not process.lane else -process.lane}
        yield {"ph": "M", "name": "process_name", **own, "args": {"name": f"step {launch.name} {process.name}"}}
        yield {"ph": "M", "name": "thread_name", **own, "args": {"name": process.name}}
        yield {"ph": "M", "name": "process_sort_index", **own, "args": {"sort_index": place}}
        for call in process.calls:
            times = {"ts": (call.begin - launch.begin) / 1000, "dur": call.length / 1000}  # the format's microseconds
            yield {"ph": "X", "name": call.name, "cat": f"{call.kind},{call.identity}", **times, **own,
                   "args": call.facts}  # fmt: skip
