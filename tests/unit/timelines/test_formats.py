"""What other tools are given of a launch, read by the schemas of those tools."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status, TracesData
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from nodectl.client.command import Failed
from nodectl.view import timelines
from nodectl.view.commands import print_trace
from nodectl.view.timelines import chrome, otlp, perfetto
from unit.timelines.traces import SUBMITTED, TRACE, launch, line, task

FORKS_AND_CALLS = len(TRACE)


def parsed_otlp(text: str) -> TracesData:
    """By OpenTelemetry's messages; its JSON has ids in hex, where protobuf's own has base64."""

    def based(value: Any) -> Any:
        if isinstance(value, list):
            return [based(one) for one in value]
        if not isinstance(value, dict):
            return value
        ids = ("traceId", "spanId", "parentSpanId")
        return {
            name: base64.b64encode(bytes.fromhex(one)).decode() if name in ids else based(one)
            for name, one in value.items()
        }

    data: TracesData = json_format.ParseDict(based(json.loads(text)), TracesData())
    return data


def spans(data: TracesData) -> Iterator[Span]:
    for resource in data.resource_spans:
        for scope in resource.scope_spans:
            yield from scope.spans


def test_otlp_is_what_opentelemetrys_schema_says() -> None:
    data = parsed_otlp(otlp.document(launch()))
    found = {span.span_id: span for span in spans(data)}
    assert len(found) == FORKS_AND_CALLS + 4 + 1, "each call, process and the launch have a span of their own"
    assert {(len(span.trace_id), len(span.span_id)) for span in found.values()} == {(16, 8)}
    assert len({span.trace_id for span in found.values()}) == 1
    (root,) = (span for span in found.values() if not span.parent_span_id)
    assert (root.name, root.start_time_unix_nano) == ("step 7.0", int(SUBMITTED * 1e9))
    assert all(span.parent_span_id in found for span in found.values() if span is not root)
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in found.values())
    resource = {pair.key: pair.value for pair in data.resource_spans[0].resource.attributes}
    assert (resource["service.name"].string_value, resource["process.pid"].int_value) == ("nodectl", 10)


def test_otlp_tells_who_made_a_task_and_what_failed() -> None:
    found = {span.span_id: span for span in spans(parsed_otlp(otlp.document(launch())))}
    (second,) = (span for span in found.values() if span.name == "task 1")
    fork = found[second.parent_span_id]
    attributes = {pair.key: pair.value for pair in fork.attributes}
    assert (fork.name, attributes["nodectl.task"].int_value) == ("fork", 1)
    failed = [span for span in found.values() if span.status.code == Status.STATUS_CODE_ERROR]
    assert [(span.name, span.status.message) for span in failed] == [("slurm_spank_exit", "no\\x1b[31m & so on")]


def test_the_same_launch_has_the_same_ids_and_another_has_others() -> None:
    assert otlp.document(launch()) == otlp.document(launch())
    others = [{span.span_id for span in spans(parsed_otlp(otlp.document(launch(job=job))))} for job in (7, 8)]
    assert not others[0] & others[1]


def test_perfetto_can_be_read_by_its_schema() -> None:
    trace = Trace.FromString(perfetto.document(launch()))
    tracks = [packet.track_descriptor for packet in trace.packet if packet.HasField("track_descriptor")]
    assert [track.name for track in tracks[1:]] == [
        "daemon (pid 10)", "stepd (pid 20)", "task 0 (pid 30)", "task 1 (pid 31)",
    ]  # fmt: skip
    assert {track.parent_uuid for track in tracks[1:]} == {tracks[0].uuid}
    events = [packet for packet in trace.packet if packet.HasField("track_event")]
    for track in tracks[1:]:
        own = [packet for packet in events if packet.track_event.track_uuid == track.uuid]
        kinds = [packet.track_event.type for packet in own]
        assert kinds == [TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END] * (len(own) // 2)
        assert [packet.timestamp for packet in own] == sorted(packet.timestamp for packet in own)
    assert len(events) == 2 * FORKS_AND_CALLS
    begun = [packet.track_event for packet in events if packet.track_event.name]
    flows = {flow: event.name for event in begun for flow in event.flow_ids}
    ends = {flow: event.name for event in begun for flow in event.terminating_flow_ids}
    assert (set(flows.values()), set(ends.values())) == ({"fork"}, {"become_user"})
    assert flows.keys() == ends.keys()


def test_chromes_events_are_complete_and_in_microseconds_since_the_first_call() -> None:
    document = json.loads(chrome.document(launch()))
    calls = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert len(calls) == FORKS_AND_CALLS
    assert all({"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"} == event.keys() for event in calls)
    (gate,) = (event for event in calls if event["name"] == "gate" and event["pid"] == 30)
    assert (gate["ts"], gate["dur"], gate["cat"], gate["args"]["user"]) == (630.0, 900.0, "step,user", "alice")
    named = {
        event["pid"]: event["args"]["name"] for event in document["traceEvents"] if event["name"] == "process_name"
    }
    assert named == {10: "step 7.0 daemon", 20: "step 7.0 stepd", 30: "step 7.0 task 0", 31: "step 7.0 task 1"}


def test_who_lacks_perfettos_package_is_told_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace.perfetto_trace_pb2", None)
    monkeypatch.delitem(sys.modules, "nodectl.view.timelines.perfetto")
    monkeypatch.delattr(timelines, "perfetto")
    with pytest.raises(Failed, match=r"perfetto needs perfetto, .*/pip install perfetto$"):
        print_trace._export(launch(), "perfetto", "/nowhere")


def test_tasks_of_one_number_that_follow_each_other_have_a_fork_each() -> None:
    lines = [*TRACE[:2], line(500, 50, "fork", "stepd", 20, task=0), line(2000, 50, "fork", "stepd", 20, task=0)]
    lines += [*task(0, 560), *({**row, "pid": 40} for row in task(0, 2060))]
    assert {pid: fork.begin for pid, fork in launch(lines).forks.items()} == {30: 5_000_500_000, 40: 5_002_000_000}
    trace = Trace.FromString(perfetto.document(launch(lines)))
    begun = [packet.track_event for packet in trace.packet if packet.track_event.name]
    assert len({flow for event in begun for flow in event.flow_ids}) == 2
