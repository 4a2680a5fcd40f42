"""The launch of a step: the processes and calls, made from the lines of the step's trace. Pure.

Begins are nanoseconds of CLOCK_MONOTONIC, as recorded. Calls on one lane follow one another. A process has one lane,
except for the step's runner, whose tasks' epilogs run side by side.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodectl.client.render import job_columns
from nodectl.model import launch_order
from nodectl.model.step_number import step_name
from nodectl.model.words import count_words, cpu_list, printable

# Nodectl's own calls that wait for other processes.
WAITS = (launch_order.GATE.call, launch_order.PROCTRACK_WAIT.call)
_EPILOG = launch_order.TASK_EPILOG.call


@dataclass(frozen=True, slots=True)
class Call:
    """A call. `task` is the task for which the step's runner made the call, or the calling task."""

    begin: int
    length: int
    name: str
    kind: str
    plugin: str
    task: int | None
    ruid: int
    euid: int
    user: str
    cgroup: str
    cpus: str
    rc: int
    note: str

    @property
    def end(self) -> int:
        """The time of the call's return."""
        return self.begin + self.length

    @property
    def is_hook(self) -> bool:
        """True for a call of a plugin, False for a call of nodectl itself."""
        return bool(self.plugin)

    @property
    def identity(self) -> str:
        """The identity of the call: "root", "user", or "effective" for ids from which root can return."""
        if self.euid != self.ruid:
            return "effective"
        return "root" if self.ruid == 0 else "user"

    @property
    def facts(self) -> dict[str, object]:
        """All facts except name and times, by the names for other tools."""
        found: dict[str, object] = {"user": self.user, "kind": self.kind}
        found |= {"plugin": self.plugin} if self.plugin else {}
        found |= {} if self.task is None else {"task": self.task}
        found |= {"cgroup": self.cgroup or "unknown", "cpus": self.cpus, "rc": self.rc}
        return found | ({"note": self.note} if self.note else {})


@dataclass(frozen=True, slots=True)
class Process:
    """A process, or a further lane of a process; `task` is the task's number, None for a process without a task."""

    pid: int
    kind: str
    task: int | None
    calls: tuple[Call, ...]
    lane: int = 0

    @property
    def name(self) -> str:
        """The name on the timeline: stepd, task 3."""
        if self.lane:
            return f"{self.kind}, beside it"
        return self.kind if self.task is None else f"{self.kind} {self.task}"


@dataclass(frozen=True, slots=True)
class Launch:
    """The launch of a step, with the user's name of it: 7.0, 7_3.batch.

    `submitted` is the time of the request and the first call, in seconds since the epoch.
    """

    job: int
    step: int
    name: str
    node: str
    submitted: float
    title: str
    processes: tuple[Process, ...]
    forks: Mapping[int, Call]  # the fork of each task's process, by pid

    @property
    def begin(self) -> int:
        """The time of the first call's begin."""
        return min(process.calls[0].begin for process in self.processes)

    @property
    def end(self) -> int:
        """The time of the last call's return."""
        return max(call.end for process in self.processes for call in process.calls)

    @property
    def first_program(self) -> int | None:
        """The time of the first task's exec; None without an exec."""
        began = [
            call.end for process in self.processes for call in process.calls if call.name == launch_order.EXEC.call
        ]
        return min(began, default=None)


def launch_of(record: Mapping[str, Any], lines: Iterable[Mapping[str, Any]], name_of: Callable[[int], str]) -> Launch:
    """Make a launch from a step's record, as Show answers, and at least one line of the step's trace.

    `name_of` turns a uid into a name; it is called once for each uid.
    """
    ordered = sorted(lines, key=lambda line: line["t"])
    names = {uid: printable(name_of(uid)) for line in ordered for uid in (line["ruid"], line["euid"])}
    by_process: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for line in ordered:
        by_process.setdefault((line["process"], line["pid"]), []).append(line)
    processes = tuple(
        _process(pid, kind, lane, rows, names)
        for (kind, pid), lines_of_it in by_process.items()
        for lane, rows in enumerate(_lanes(lines_of_it))
    )
    tasks = record["ntasks"]
    title = f"{printable(record['name'])}, {count_words(tasks, 'task')} of {printable(record['user'])}"
    node = printable(record["node"])
    name = step_name(job_columns.name_of(record), record["step"])
    return Launch(record["job"], record["step"], name, node, record["submitted"], title, processes, _forks(processes))


def _forks(processes: Sequence[Process]) -> dict[int, Call]:
    """Return the fork of each task's process by pid: the latest fork for the task before the process's first call.

    In a bulk step a task number has many processes, one after the other.
    """
    calls: dict[int, list[Call]] = {}
    for process in processes:
        for call in process.calls if process.task is None else ():
            if call.name == launch_order.FORK.call and call.task is not None:
                calls.setdefault(call.task, []).append(call)
    found = {}
    for process in processes:
        begun = [] if process.task is None else calls.get(process.task, [])
        at = bisect_right(begun, process.calls[0].begin, key=lambda call: call.begin)
        if at:
            found[process.pid] = begun[at - 1]
    return found


def _lanes(lines: list[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return a process's lines in order, on as few lanes as possible without overlapping epilogs."""
    lanes: list[list[Mapping[str, Any]]] = [[]]
    for line in lines:
        free = (lane for lane in lanes if not lane or not _overlap(lane[-1], line))
        lane = next(free, None)
        if lane is None:
            lanes.append(lane := [])
        lane.append(line)
    return lanes


def _overlap(before: Mapping[str, Any], line: Mapping[str, Any]) -> bool:
    epilogs = _EPILOG in (before["call"], line["call"])  # other calls overlap only by the clock's rounding
    return bool(epilogs and before["t"] + before["us"] * 1000 > line["t"])


def _process(pid: int, kind: str, lane: int, lines: list[Mapping[str, Any]], names: Mapping[int, str]) -> Process:
    # Only for tasks: a call of the step's runner for a task is in no task's process.
    task = lines[0]["task"] if kind == "task" else None
    return Process(pid, printable(kind), task, tuple(_call(line, names) for line in lines), lane)


def _call(line: Mapping[str, Any], names: Mapping[int, str]) -> Call:
    user = names[line["ruid"]]
    if line["euid"] != line["ruid"]:
        user += f" as {names[line['euid']]}"
    return Call(
        line["t"],
        line["us"] * 1000,
        printable(line["call"]),
        printable(line["kind"]),
        printable(line["plugin"]),
        line["task"],
        line["ruid"],
        line["euid"],
        user,
        printable(line["cgroup"]),
        cpu_list(line["affinity"]),
        line["rc"],
        printable(line.get("note", "")),
    )
