"""`nodectl trace`: print the flight recorder of a step: a timeline, a picture, a comparison, a file for external tools.

With --json it prints the lines as recorded.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from nodectl.client import trace_lines
from nodectl.client.command import Failed
from nodectl.client.extras import needed
from nodectl.client.job_name import add_jobs, jobs_or_steps_argument, one_step
from nodectl.client.render.terminal import put, terminal_width, wants_colour, write_document
from nodectl.client.session import Session
from nodectl.model.step_number import step_name
from nodectl.model.words import user_name
from nodectl.view.timelines import chrome, comparison, otlp, picture
from nodectl.view.timelines.launch import Launch, launch_of
from nodectl.view.timelines.timeline import Line, timeline

FORMATS = ("perfetto", "chrome", "otlp")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl trace` to the parser."""
    add_jobs(parser, "the step; a job alone means its first step", steps=True, one=True)
    parser.add_argument(
        "--compare", type=jobs_or_steps_argument, metavar="JOB[.STEP]",
        help="another step: both launches beside each other",
    )  # fmt: skip
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--svg", metavar="FILE", help="write a picture in SVG to FILE, - for standard output")
    form.add_argument("--json", action="store_true", help="print the lines as they were recorded, one JSON object each")
    form.add_argument(
        "--format",
        choices=FORMATS,
        help="for other tools: Perfetto's own form, Chrome's trace events (ui.perfetto.dev opens both), "
        "OpenTelemetry's JSON; perfetto needs the Python package of that name",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where --format writes to, instead of standard output")
    parser.epilog = (
        "Times are milliseconds since the first call. An identity is the process's when the call had returned; `as` "
        "marks one that is only effective, and that root can leave again. On a terminal root is red, users are green; "
        "NO_COLOR is honoured. In times of day the first call stands where the step was submitted."
    )


def main(arguments: argparse.Namespace) -> int:
    """Print or write the trace in the requested form. Return 0."""
    if arguments.compare and (arguments.json or arguments.format):
        raise Failed("--compare is for people, or for --svg; take --json of each step")
    if arguments.output and not arguments.format:
        raise Failed("--output goes with --format")
    named = [arguments.jobs, *([arguments.compare] if arguments.compare else [])]
    session = Session(arguments.settings)
    try:
        steps = [one_step(session, names) for names in named]
        traces = [list(trace_lines.of_step(session, job, step)) for job, step in steps]
        plain = not (arguments.svg or arguments.format or arguments.compare)
        launches = [] if plain else [_launch(session, step, lines) for step, lines in zip(steps, traces, strict=True)]
    finally:
        session.close()
    if plain:
        _print(traces[0], steps[0], as_json=arguments.json)
        return 0
    try:
        if arguments.svg:
            write_document(arguments.svg, picture.draw(launches))
        if arguments.format:
            _export(launches[0], arguments.format, arguments.output or "-")
    except OSError as problem:
        raise Failed(f"{problem.filename}: {problem.strerror}") from None
    if arguments.compare and arguments.svg != "-":
        put(comparison.compared(launches[0], launches[1], terminal_width()))
    return 0


def _print(lines: Sequence[Line], step: tuple[int, int], *, as_json: bool) -> None:
    """Print the timeline, or the recorded lines."""
    if as_json:
        put(json.dumps(line) for line in lines)
    elif lines:
        put(timeline(lines, user_name, colour=wants_colour()))
    else:
        print(f"nodectl: {_no_trace(*step)}", file=sys.stderr)


def _launch(session: Session, named: tuple[int, int], lines: Sequence[Line]) -> Launch:
    job, step = named
    if not lines:
        raise Failed(_no_trace(job, step))
    record: Mapping[str, Any] = session.call("Show", job=job, step=step)["record"]  # type: ignore[assignment]
    return launch_of(record, lines, user_name)


def _no_trace(job: int, step: int) -> str:
    return f"step {step_name(job, step)} has no trace; see `trace` in the configuration"


def _export(launch: Launch, form: str, path: str) -> None:
    """Write the file for another tool. Raises OSError."""
    if form != "perfetto":
        write_document(path, {"chrome": chrome, "otlp": otlp}[form].document(launch))
        return
    if path == "-" and sys.stdout.isatty():
        raise Failed("Perfetto's form is nothing for a terminal: name a file with -o, or take --format=chrome")
    try:
        from nodectl.view.timelines import perfetto  # an extra
    except ImportError as missing:
        raise needed("--format=perfetto", "perfetto", missing) from None
    data = perfetto.document(launch)
    if path == "-":
        sys.stdout.buffer.write(data)
        return
    with open(path, "wb") as file:
        file.write(data)
