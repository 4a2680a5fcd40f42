"""The record of a step over several nodes, built from the incoming records of the parts, in bounded memory.

Exit status: as srun's, as `stepd/exit_status.py` has it for one node.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from nodectl.model.states import CANCELLED, COMPLETED, FAILED, NODE_FAIL, OUT_OF_MEMORY, PREEMPTED, TIMEOUT

# The state of a step: the first of these among the states of its parts.
_WORST = (NODE_FAIL, OUT_OF_MEMORY, TIMEOUT, PREEMPTED, CANCELLED, FAILED, COMPLETED)
_MOST_TASKS = 2048
_MOST_NODES = 1024
_MOST_VICTIMS = 32
_SUMS = ("read_bytes", "written_bytes", "oom_kills", "forks_refused", "energy")
_HIGHEST = ("peak_memory", "peak_swap", "peak_processes", "throttled_seconds", "suspended_seconds")
_OF_NODE = ("state", "reason", "exit_status", "cpu_seconds", "peak_memory", "unkillable")


class Sums:
    """The sums for a step.

    Beyond a limit, good tasks and nodes are left out, and bad ones take their places.
    """

    __slots__ = (
        "_code", "_forced", "_highest", "_most_nodes", "_nodes", "_reasons", "_seconds", "_signal", "_sums", "_tasks",
        "_victims", "ended", "started", "states",
    )  # fmt: skip

    def __init__(self) -> None:
        self._code = self._signal = self._forced = 0
        self._tasks: list[tuple[bool, Mapping[str, Any]]] = []
        self._nodes: list[tuple[bool, Mapping[str, Any]]] = []
        self._victims: list[Mapping[str, Any]] = []
        self._reasons: dict[str, tuple[int, str]] = {}  # by state, the reason of the first node
        self._seconds = [0.0, 0.0]
        self._sums: dict[str, float] = {}
        self._highest: dict[str, float] = {}
        self.states: set[str] = set()
        self.started: float | None = None
        self.ended: float | None = None

    def lose(self, nodeid: int, name: str, tasks: str, why: str, state: str = NODE_FAIL) -> None:
        """Add a part without a record."""
        self.states.add(state)
        self._reasons.setdefault(state, (nodeid, why))
        row = {"node": name, "nodeid": nodeid, "tasks": tasks, "state": state, "reason": why, "exit_status": 1}
        _keep(self._nodes, _MOST_NODES, row, bad=True)

    def add(self, nodeid: int, name: str, tasks: str, record: Mapping[str, Any]) -> None:
        """Add the record of an ended part."""
        state = str(record.get("state", FAILED))
        self.states.add(state)
        reason = str(record.get("reason") or "")
        if reason and nodeid < self._reasons.get(state, (nodeid + 1, ""))[0]:
            self._reasons[state] = nodeid, reason
        worst = 0
        for task in record.get("tasks") or ():
            status = int(task.get("status") or 0)
            if status:
                worst = max(worst, self._count(status))
            _keep(self._tasks, _MOST_TASKS, {**task, "node": name}, bad=bool(status))
        if not worst:
            self._forced = max(self._forced, int(record.get("exit_status") or 0))
        row = {key: record[key] for key in _OF_NODE if record.get(key) not in (None, "")}
        row = {"node": name, "nodeid": nodeid, "tasks": tasks, **row}
        _keep(self._nodes, _MOST_NODES, row, bad=state != COMPLETED)
        self._add_figures(record)

    def _count(self, status: int) -> int:
        if os.WIFSIGNALED(status):
            self._signal = max(self._signal, os.WTERMSIG(status))
            return 128 + os.WTERMSIG(status)
        self._code = max(self._code, os.WEXITSTATUS(status))
        return os.WEXITSTATUS(status)

    def _add_figures(self, record: Mapping[str, Any]) -> None:
        if (began := record.get("started")) is not None:
            self.started = began if self.started is None else min(self.started, began)
        if (ended := record.get("ended")) is not None:
            self.ended = ended if self.ended is None else max(self.ended, ended)
        seconds = record.get("cpu_seconds")
        if isinstance(seconds, list) and len(seconds) == len(self._seconds):
            self._seconds = [mine + more for mine, more in zip(self._seconds, seconds, strict=True)]
        for name in _SUMS:
            if isinstance(record.get(name), int | float):
                self._sums[name] = self._sums.get(name, 0) + record[name]
        for name in _HIGHEST:
            if isinstance(record.get(name), int | float):
                self._highest[name] = max(self._highest.get(name, 0), record[name])
        self._victims += (record.get("victims") or ())[: _MOST_VICTIMS - len(self._victims)]

    def exit_status(self, state: str) -> int:
        """Return the exit status of a step with this state."""
        if state == OUT_OF_MEMORY:
            return 1
        status = 128 + self._signal if self._signal else self._code or self._forced
        return status or (0 if state == COMPLETED else 1)

    def judged(self) -> tuple[str, str]:
        """Return state and reason of the step, for a step without a `cause`."""
        state = next((one for one in _WORST if one in self.states), FAILED)
        return state, self._reasons.get(state, (0, ""))[1]

    def figures(self) -> dict[str, object]:
        """Return the rest of the record, beside facts, state and status: sums or highest values over the nodes."""
        return {
            "started": self.started,
            "ended": self.ended,
            "victims": self._victims,
            **({"cpu_seconds": [round(one, 6) for one in self._seconds]} if any(self._seconds) else {}),
            **self._sums,
            **self._highest,
            "tasks": sorted((row for _, row in self._tasks), key=_number),
            "nodes": sorted((row for _, row in self._nodes), key=_nodeid),
        }


def _number(row: Mapping[str, Any]) -> int:
    return int(row.get("task", 0))


def _nodeid(row: Mapping[str, Any]) -> int:
    return int(row["nodeid"])


def _keep(rows: list[tuple[bool, Mapping[str, Any]]], most: int, row: Mapping[str, Any], *, bad: bool) -> None:
    if len(rows) < most:
        rows.append((bad, row))
    elif bad:
        place = next((place for place, (other, _) in enumerate(rows) if not other), None)
        if place is not None:
            rows[place] = bad, row
