"""A launch as a trace of Perfetto in protobuf: a track for each process, an arrow from the fork to the task.

The messages are those of the package `perfetto`, an extra of ours.
"""

from __future__ import annotations

from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    BUILTIN_CLOCK_BOOTTIME,
    BUILTIN_CLOCK_REALTIME,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

from nodectl.view.timelines.launch import Call, Launch

_SEQUENCE = 1  # of packets; all of ours are one


def document(launch: Launch) -> bytes:
    """Return the whole file."""
    builder = TraceProtoBuilder()
    clocks = builder.add_packet().clock_snapshot.clocks
    # So that times of day can be shown. Packets that name no clock have this one.
    clocks.add(clock_id=BUILTIN_CLOCK_BOOTTIME, timestamp=launch.begin)
    clocks.add(clock_id=BUILTIN_CLOCK_REALTIME, timestamp=int(launch.submitted * 1e9))
    step = builder.add_packet().track_descriptor
    step.uuid, step.name = 1, f"step {launch.name}: {launch.title}"
    step.child_ordering = TrackDescriptor.EXPLICIT
    made = {launch.forks[one.pid]: place for place, one in enumerate(launch.processes) if one.pid in launch.forks}
    for place, process in enumerate(launch.processes):
        track = builder.add_packet().track_descriptor
        track.uuid, track.parent_uuid = _track(place), step.uuid
        track.name = f"{process.name} (pid {process.pid})"
        track.sibling_order_rank = place
        for call in process.calls:
            begin, end = _event(builder, call.begin, place), _event(builder, call.end, place)
            begin.type, end.type = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END
            _describe(begin, call)
            if call in made:
                begin.flow_ids.append(_track(made[call]))
            elif call is process.calls[0] and process.pid in launch.forks:
                begin.terminating_flow_ids.append(_track(place))
    data: bytes = builder.serialize()
    return data


def _event(builder: TraceProtoBuilder, at: int, place: int) -> Any:
    packet: TracePacket = builder.add_packet()
    packet.timestamp = at
    packet.trusted_packet_sequence_id = _SEQUENCE
    packet.track_event.track_uuid = _track(place)
    return packet.track_event


def _describe(event: Any, call: Call) -> None:
    event.name = call.name
    event.categories.extend([call.kind, call.identity])
    for name, value in call.facts.items():
        annotation = event.debug_annotations.add(name=name)
        if isinstance(value, int):
            annotation.int_value = value
        else:
            annotation.string_value = str(value)


def _track(place: int) -> int:
    return place + 2  # 1 is the step's
