"""The page's data as values and pictures. One thread at a time calls each function."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from nodectl.client import accounting, trace_lines
from nodectl.client.command import Failed
from nodectl.client.followed_file import last_lines
from nodectl.client.render import machine_svg, stacked_bars
from nodectl.client.render.explanation import explained
from nodectl.client.render.job_columns import name_of
from nodectl.client.render.layout import lines_of
from nodectl.client.render.machine_figures import figure_words
from nodectl.client.session import Session
from nodectl.model.accounting.report import report
from nodectl.model.step_number import step_name
from nodectl.model.words import printable, user_name
from nodectl.placement.machine import figures
from nodectl.placement.machine.pci import PciDevice
from nodectl.placement.machine.topology import Topology
from nodectl.view.live.view import Row, View
from nodectl.view.live.watcher import Watcher
from nodectl.view.timelines import picture
from nodectl.view.timelines.launch import launch_of

_FRESH = 0.9  # seconds for which a look serves all requests
_LINES, _MOST_WRITTEN = 100, 1 << 16  # of a job's output
_ENDED = 20  # steps that ended last
_DAYS = 7
_REPORT_FRESH = 60.0


class Pages:
    """The pages of a user, with a watcher. Expensive data is requested from the service only on demand."""

    def __init__(
        self, watcher: Watcher, connect: Callable[[], Session], topology: Topology, devices: tuple[PciDevice, ...]
    ) -> None:
        self._watcher = watcher
        self._connect = connect
        self._topology = topology
        self._devices = devices
        self._looked = -1e9  # monotonic
        self._view: View | None = None
        self._reported: tuple[float, str] | None = None

    def _look(self) -> View:
        now = time.monotonic()
        if self._view is None or now >= self._looked + _FRESH:
            self._view = self._watcher.look()
            self._looked = now
        return self._view

    def view(self) -> dict[str, object]:
        """Return the running and waiting jobs, and the figures of the machine."""
        view = self._look()
        colours = {job.key: machine_svg.colour(job, view.occupation) for job in view.occupation.jobs}
        return {
            "node": printable(view.node),
            "at": view.at,
            "away": view.away,
            "problem": printable(view.problem),
            "running": view.running,
            "waiting": view.waiting,
            "figures": [list(pair) for pair in figure_words(figures.read().as_json(), time.time())],
            "rows": [{**_values(row), "colour": colours.get(row.key, "")} for row in view.rows],
        }

    def machine(self) -> str:
        """Return a picture of the machine with the jobs on each core, in SVG."""
        return machine_svg.draw(self._topology, self._look().occupation, self._devices)

    def launch(self, job: int, step: int) -> str:
        """Return a picture of the launch of a step, in SVG. Raises Failed."""
        session = self._connect()
        try:
            lines = list(trace_lines.of_step(session, job, step))
            if not lines:
                raise Failed(f"step {step_name(job, step)} has no trace")
            record: Any = session.call("Show", job=job, step=step)["record"]
        finally:
            session.close()
        return picture.draw([launch_of(record, lines, user_name)])

    def explanation(self, job: str, step: int | None) -> str:
        """Return why a job waits, or the layout of a step. Raises Failed."""
        session = self._connect()
        try:
            answer: Any
            if step is None:
                answer = session.call("ExplainJob", job=job)["explanation"]
                return "\n".join(explained(job, answer, 100))
            answer = session.call("Explain", job=int(job), step=step)["layout"]
            return "\n".join(map(printable, lines_of(answer, explain=True)))
        finally:
            session.close()

    def output(self, job: int, step: int | None) -> str:
        """Return the end of what a job or a step has written to its file, read with the user's own rights.

        Empty for a step without a file of its own. Raises Failed.
        """
        session = self._connect()
        try:
            record: Any
            if step is None:
                record = session.call("ShowJob", job=str(job))["record"]
            else:
                record = session.call("Show", job=job, step=step)["record"]
        finally:
            session.close()
        if not record.get("output"):
            if step is not None:
                return ""
            raise Failed(f"job {job} writes to no file that you may read")
        text = last_lines(record["output"], _LINES, _MOST_WRITTEN).decode("utf-8", "replace")
        return "\n".join(map(printable, text.splitlines()))

    def ended(self) -> list[dict[str, object]]:
        """Return the last ended steps, newest first. Raises Failed."""
        session = self._connect()
        try:
            steps: Any = session.call("List", ended=_ENDED)["steps"]
        finally:
            session.close()
        return [
            {
                "job": step["job"],
                "step": step["step"],
                "name": step_name(name_of(step), step["step"]),
                "user": printable(step["user"]),
                "title": printable(step["name"]),
                "state": step["state"],
                "reason": printable(step.get("reason") or ""),
                "ended": step["ended"],
            }
            for step in steps
            if step.get("ended") is not None
        ]

    def report(self) -> str:
        """Return a picture of each user's CPU time in the last days, in SVG. Raises Failed."""
        now = time.time()
        if self._reported is None or now >= self._reported[0] + _REPORT_FRESH:
            since = now - _DAYS * 86400
            session = self._connect()
            try:
                jobs = accounting.ask(session, accounting.Asked((), (), since, now), every_run=True)
            finally:
                session.close()
            periods = report(jobs, "day", since, now)
            bars = [(one.name, {user: used.cpu_hours for user, used in one.users.items()}) for one in periods]
            drawn = stacked_bars.draw("CPU time by user per day", "CPU hours of allocated CPUs", bars)
            self._reported = (now, drawn)
        return self._reported[1]


def _values(row: Row) -> dict[str, object]:
    return {
        "job": row.job, "step": row.step, "key": row.key, "name": row.name, "user": row.user, "title": row.title,
        "state": row.state, "ntasks": row.ntasks, "cpus": row.cpus, "cpu_list": row.cpu_list, "elapsed": row.elapsed,
        "gres": row.gres, "command": row.command, "reason": row.reason, "cpu": row.cpu, "memory": row.memory,
        "read": row.read, "written": row.written, "pressure": dict(row.pressure),
    }  # fmt: skip
