"""A launch as OpenTelemetry's traces in JSON, the form of files and HTTP (OTLP/JSON) for collectors. Pure.

Attributes have the names of OpenTelemetry's semantic conventions where there are any, else ours behind "nodectl.". Ids
are made from the step's, so the same trace gives the same file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from nodectl import __version__
from nodectl.view.timelines.launch import Call, Launch, Process

_INTERNAL, _ERROR = 1, 2  # SPAN_KIND_INTERNAL, STATUS_CODE_ERROR: numbers, in this protocol


def document(launch: Launch) -> str:
    """Return the whole file, an object of the message TracesData."""
    return json.dumps({"resourceSpans": [_resource(launch, process) for process in launch.processes]}, indent=1) + "\n"


def _resource(launch: Launch, process: Process) -> dict[str, object]:
    """Return a process with the spans; the first process also has the span of the whole launch."""
    attributes = {"service.name": "nodectl", "host.name": launch.node, "process.pid": process.pid}
    spans = list(_spans(launch, process))
    if process is launch.processes[0]:
        facts = {"nodectl.job": launch.job, "nodectl.step": launch.step, "nodectl.title": launch.title}
        spans.insert(0, _span(launch, _launch_id(launch), "", f"step {launch.name}", launch.begin, launch.end, facts))
    scope = {"name": "nodectl", "version": __version__}
    return {"resource": {"attributes": _attributes(attributes)}, "scopeSpans": [{"scope": scope, "spans": spans}]}


def _spans(launch: Launch, process: Process) -> Iterator[dict[str, object]]:
    """Yield the span of the process, a child of the process's fork, and the spans of the calls."""
    fork = launch.forks.get(process.pid)
    parent = _call_id(launch, fork) if fork else _launch_id(launch)
    whole = _id(launch, f"process {process.pid}", 8)
    begin, end = process.calls[0].begin, process.calls[-1].end
    yield _span(launch, whole, parent, process.name, begin, end, {"process.pid": process.pid})
    for call in process.calls:
        facts = {_NAMES.get(name, f"nodectl.{name}"): value for name, value in call.facts.items()}
        span = _span(launch, _call_id(launch, call), whole, call.name, call.begin, call.end, facts)
        yield span | ({"status": {"code": _ERROR, "message": call.note}} if call.rc else {})


_NAMES = {"user": "user.name", "cgroup": "process.linux.cgroup"}


def _span(
    launch: Launch, own: str, parent: str, name: str, begin: int, end: int, facts: Mapping[str, object]
) -> dict[str, object]:
    ahead = int(launch.submitted * 1e9) - launch.begin  # of the time of day
    return {
        "traceId": _id(launch, "", 16),
        "spanId": own,
        "parentSpanId": parent,
        "name": name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(begin + ahead),
        "endTimeUnixNano": str(end + ahead),
        "attributes": _attributes(facts),
    }


def _attributes(facts: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the attributes; 64-bit integers are texts, as in all JSON of protobuf."""
    return [
        {"key": name, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": str(value)}}
        for name, value in facts.items()
    ]


def _launch_id(launch: Launch) -> str:
    return _id(launch, "launch", 8)


def _call_id(launch: Launch, call: Call) -> str:
    return _id(launch, f"{call.begin} {call.name} {call.plugin} {call.task} {call.cgroup}", 8)


def _id(launch: Launch, what: str, size: int) -> str:
    text = f"{launch.node} {launch.name} {launch.submitted} {what}"
    return hashlib.sha256(text.encode()).hexdigest()[: 2 * size]
