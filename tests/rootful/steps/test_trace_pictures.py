"""A real launch as other tools and as pictures have it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from rootful.node import NOBODY, OTHER, Node


def test_a_real_launch_is_drawn_exported_and_compared(shared_node: Node, tmp_path: Path) -> None:
    jobs = []
    for tasks in ("-n1", "-n2"):
        assert shared_node.run(tasks, "-O", "true", user=NOBODY).returncode == 0
        jobs.append(str(shared_node.last_job()))
    lines = len(shared_node.trace(int(jobs[1])))
    assert lines
    picture, exported = tmp_path / "launch.svg", tmp_path / "launch.perfetto"
    compared = shared_node.nodectl("trace", jobs[0], "--compare", jobs[1], "--svg", str(picture))
    assert (compared.returncode, compared.stderr) == (0, "")
    assert "until the first program" in compared.stdout
    ElementTree.parse(picture)  # noqa: S314  # ours
    assert shared_node.nodectl("trace", jobs[1], "--format=perfetto", "-o", str(exported)).returncode == 0
    events = [packet for packet in Trace.FromString(exported.read_bytes()).packet if packet.HasField("track_event")]
    assert len(events) == 2 * lines
    for form, rows in (("chrome", "traceEvents"), ("otlp", "resourceSpans")):
        assert json.loads(shared_node.nodectl("trace", jobs[1], f"--format={form}").stdout)[rows]
    for words in (("--compare", jobs[0], "--json"), ("-o", "x"), ("--svg", "x", "--json")):
        assert shared_node.nodectl("trace", jobs[1], *words).returncode in (1, 2)
    refused = shared_node.nodectl("trace", jobs[1], "--svg", "-", user=OTHER)
    assert (refused.returncode, refused.stdout) == (1, "")
