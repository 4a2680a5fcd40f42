"""The watcher: requests running and waiting jobs from the service, and reads resource use, as seldom as possible.

A look costs the service three calls, of some hundred microseconds together. Many steps and a long queue cost more, and
so do steps without a cgroup, whose processes the service looks for among all processes: then the watcher asks less
often, so that it takes at most about a hundredth of the service's time. Data about new steps only, the CPUs of their
tasks, is requested once for each step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nodectl.client.command import Failed
from nodectl.client.render import job_columns
from nodectl.client.render.occupants import Occupation, job_record, jobs_without_steps, occupation
from nodectl.launch.cgroup.usage import Usage, UsageReader
from nodectl.model.cpu_list import cpus_of, format_cpulist
from nodectl.model.step_number import BATCH, step_name
from nodectl.model.words import commands_words, elapsed, printable
from nodectl.view.live.view import Row, View

if TYPE_CHECKING:
    from nodectl.client.session import Session

_SHARE = 0.01  # of the service's time, at most, for its answers
_LONGEST = 5.0  # seconds without asking: a slow answer may have other reasons
_AWAY = ("DRAIN", "DOWN")  # the beginnings of the states in which a node starts no jobs
_MOST_ASKED = 16  # steps that are asked about in one look
_MOST_TIMES = 5  # limit of requests about one step
_Step = tuple[int, int, int]  # job, step, restart
_Rates = tuple[float | None, float | None, float | None]
_USED = ("cpu_seconds", "memory", "read", "written", "pressure")


class Watcher:
    """The watcher of a service. Keeps a connection, and makes a new connection after a restart of the service."""

    def __init__(
        self,
        connect: Callable[[], Session],
        usage: UsageReader | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._session: Session | None = None
        self._usage = usage or UsageReader()
        self._before: dict[_Step, tuple[float, Usage, _Rates]] = {}
        self._told: dict[tuple[int, int], Usage] = {}  # of steps of a cluster
        self._told_at = 0.0
        self._pins: dict[_Step, list[Mapping[str, Any]]] = {}
        self._asked: dict[_Step, int] = {}
        self._steps: list[Mapping[str, Any]] = []
        self._jobs: list[Mapping[str, Any]] = []
        self._away = ""
        self._node = ""  # the name, from a step or, where none runs, from the service
        self._due = 0.0  # monotonic: when the service may be asked again
        self._last = View(time.time(), "", (), Occupation())

    def look(self, *, at_once: bool = False) -> View:
        """Return the current view; the last view with the problem if the service does not answer.

        `at_once`: ask the service, whatever the cost.
        """
        try:
            if at_once or self._clock() >= self._due:
                self._ask()
        except Failed as failed:
            self.close()
            last = self._last
            return replace(last, problem=str(failed))
        self._last = self._view(self._steps)
        return self._last

    def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _ask(self) -> None:
        if self._session is None:
            self._session = self._connect()
        began = self._clock()
        # A list that changes between two replies may repeat rows.
        self._steps = list({_id(step): step for step in self._session.rows("List", "steps")}.values())
        self._jobs = list({job["id"]: job for job in self._session.rows("Queue", "jobs")}.values())
        self._away = away_words(self._session.call("Nodes")["nodes"])
        if not self._steps and not self._node:
            self._node = str(self._session.call("Hello").get("node", ""))
        elsewhere = any("nodes" in step for step in self._steps)
        if not elsewhere:
            self._ask_what_is_used(self._session)
        ended = self._clock()
        self._due = ended + min((ended - began) / _SHARE, _LONGEST)
        self._look_at_pins(self._session, self._steps)
        if elsewhere:  # the service waits for other nodes then, which costs it no time
            self._ask_what_is_used(self._session)

    def _ask_what_is_used(self, session: Session) -> None:
        """Request the resource use of steps without a cgroup here.

        These are the steps over several nodes, and the steps whose processes are found by parent.
        """
        others = {(one["job"], one["step"]) for one in self._steps if "nodes" in one or not one.get("cgroup")}
        rows: Any = session.call("Usage")["steps"] if others else ()
        told = {(row["job"], row["step"]): Usage(*(row.get(name) for name in _USED)) for row in rows}
        self._told = {key: used for key, used in told.items() if key in others}
        self._told_at = self._clock()

    def _look_at_pins(self, session: Session, steps: Iterable[Mapping[str, Any]]) -> None:
        """Request the CPUs of the tasks of each new step.

        The CPUs do not change; they are known as soon as the tasks have started.
        """
        running = {_id(step): step for step in steps}
        for known in (self._pins, self._asked, self._before):
            for gone in known.keys() - running.keys():
                del known[gone]
        unknown = [key for key in running if key not in self._pins and self._asked.get(key, 0) < _MOST_TIMES]
        for key in unknown[:_MOST_ASKED]:
            self._asked[key] = self._asked.get(key, 0) + 1
            try:
                record: Any = session.call("Show", job=key[0], step=key[1])["record"]
            except Failed as failed:
                if failed.name.endswith(".NoSuchStep"):
                    continue
                raise
            tasks = record.get("tasks") or []
            if tasks and all("cpus" in task for task in tasks):
                self._pins[key] = tasks

    def _view(self, steps: list[Mapping[str, Any]]) -> View:
        now = time.time()
        jobs = {job["job"]: job for job in self._jobs}
        others = jobs_without_steps(self._jobs, steps)
        records: list[Mapping[str, Any]] = [{**step, "tasks": self._pins.get(_id(step), ())} for step in steps]
        records += [job_record(job) for job in others if job["cpu_list"]]
        occupied = occupation(records)
        keys = {job.number: job.key for job in occupied.jobs}
        rows = [self._step_row(step, jobs.get(step["job"], {}), keys, now) for step in steps]
        rows += [_job_row(job, keys) for job in others]
        if steps:
            self._node = steps[0]["node"]
        return View(now, self._node, tuple(rows), occupied, self._away)

    def _step_row(self, step: Mapping[str, Any], job: Mapping[str, Any], keys: Mapping[int, str], now: float) -> Row:
        cpus = cpus_of(int(step["cpus"] or "0", 16))
        usage, at = self._told.get((step["job"], step["step"])), self._told_at
        if usage is None:
            usage, at = self._usage.read(step.get("cgroup", "")), self._clock()
        cpu, read, written = self._rates(_id(step), usage, at)
        name = job_columns.name_of(job) if job.get("array_task") is not None else step["job"]
        is_script = step["step"] == BATCH and job.get("command")  # as it was submitted, not the copy that runs
        command = job["command"] if is_script else step["command"]
        reason = step.get("reason") or (commands_words(step["commands"]) if step.get("commands") else "")
        return Row(
            step["job"], step["step"], step_name(name, step["step"]),
            printable(step["user"]), printable(step["name"]), step["state"],
            step["ntasks"], len(cpus), format_cpulist(cpus), elapsed(step, now), printable(job.get("gres", "")),
            printable(job_columns.command_words(command)), reason, cpu, usage.memory,
            (step.get("memory") or 0) << 20, read, written, usage.pressure, keys.get(step["job"], ""),
        )  # fmt: skip

    def _rates(self, key: _Step, usage: Usage, at: float) -> _Rates:
        """Return the busy CPUs and the bytes read and written a second, since the last known use."""
        before = self._before.get(key)
        if before is not None and at <= before[0]:
            return before[2]
        rates: _Rates = (None, None, None)
        if before is not None:
            span, then = at - before[0], before[1]

            def rate(new: float | None, old: float | None) -> float | None:
                return None if new is None or old is None else max(0.0, (new - old) / span)

            rates = (
                rate(usage.cpu_seconds, then.cpu_seconds), rate(usage.read, then.read),
                rate(usage.written, then.written),
            )  # fmt: skip
        self._before[key] = at, usage, rates
        return rates


def _id(step: Mapping[str, Any]) -> _Step:
    return step["job"], step["step"], step.get("restart") or 0


def away_words(nodes: Any) -> str:
    """Return which nodes start no jobs, and why: "DRAINING: new disk"; of several nodes each with its name."""
    away = [node for node in nodes if str(node.get("state")).startswith(_AWAY)]
    words = [": ".join(filter(None, (node["state"], printable(node.get("reason") or "")))) for node in away]
    if len(nodes) > 1:
        words = [f"{printable(node['name'])} {text}" for node, text in zip(away, words, strict=True)]
    return "; ".join(words)


def _job_row(job: Mapping[str, Any], keys: Mapping[int, str]) -> Row:
    reason = ": ".join(word for word in (job["reason"], job["words"]) if word)
    command = job_columns.command_words(job["command"]) if job.get("command") else ""
    return Row(
        job["job"], None, printable(job["id"]), printable(job["user"]), printable(job["name"]), job["state"],
        job["tasks"], job["cpus"], job["cpu_list"], job["used"], printable(job["gres"]), printable(command),
        printable(reason), key=keys.get(job["job"], ""),
    )  # fmt: skip
