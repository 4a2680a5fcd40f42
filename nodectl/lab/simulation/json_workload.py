"""A workload in JSON: `{"jobs": [...], "events": [...]}`, or the list of jobs alone.

A job is an object. Only `run` is required, the run time of the job's program in seconds (for an array also a list, one
for each task). The further keys, with their defaults: `id` (the job's place in the list, from 1), `submit` 0, `limit` 0
(none), `user` "root", `name`, `tasks` 1, `cpus_per_task` 1, `nodes` 0 (as many as it takes), `memory` (MiB on each
node) 0, `mem_per_cpu` (MiB) 0, `gres` {} ({"gpu": 1} on each node), `exclusive`, `oversubscribe` and `contiguous`
false, `qos` "normal", `nice` 0, `priority` 0, `dependency` "" ("afterok:3", by id), `array` "" ("0-9%2"), `begin` 0,
`deadline` 0 (seconds after the workload's beginning), `requeue` true, `no_kill` false (goes on without a node that is
down), `exit_code` 0, `after` 0 and `think` 0 (submitted so long after the end of the job `after`). An event is
`{"time": 60, "node": "n1", "state": "drain"}`, or "down" (its jobs end), or "resume".
"""

from __future__ import annotations

import json
import json.decoder
from collections.abc import Callable, Mapping
from json import scanner
from typing import Any

from nodectl.lab.simulation.workload import LONGEST_TIME, MOST_JOBS, BadWorkload, NodeEvent, WorkJob, Workload, in_order

_LINE = "\0line"  # no key of a document: JSON has it only as an escape, and then the place of the object wins
_COUNTS = {
    "id": 2**31, "limit": LONGEST_TIME, "tasks": 10_000_000, "cpus_per_task": 1_000_000, "nodes": 10_000_000,
    "memory": 2**50, "mem_per_cpu": 2**50, "priority": 2**32 - 1, "exit_code": 255, "after": 2**31,
}  # fmt: skip
_TIMES = ("submit", "begin", "deadline", "think")
_TEXTS = ("user", "name", "qos", "dependency", "array")
_FLAGS = ("exclusive", "oversubscribe", "contiguous", "requeue", "no_kill")
_KNOWN = frozenset((*_COUNTS, *_TIMES, *_TEXTS, *_FLAGS, "run", "gres", "nice", _LINE))
_LONGEST_TEXT = 4096
_FIRST_UID = 100_000


def parse(path: str, data: bytes) -> Workload:
    """Return the workload of a file with this content. Raises BadWorkload with file and line number."""
    document = _document(path, data)
    uids: dict[str, int] = {}
    jobs = [_job(path, place, one, uids) for place, one in enumerate(document["jobs"], 1)]
    lines = [one[_LINE] for one in document["jobs"]]
    seen: set[int] = set()
    for job, line in zip(jobs, lines, strict=True):
        if job.number in seen:
            raise BadWorkload(f"{path}:{line}: job {job.number} is there twice")
        seen.add(job.number)
    for job, line in zip(jobs, lines, strict=True):
        if job.after and job.after not in seen:
            raise BadWorkload(f"{path}:{line}: after: there is no job {job.after}")
    events = document.get("events", [])
    if not isinstance(events, list):
        raise BadWorkload(f"{path}: events: not a list")
    about = document.get("about")
    facts = {str(key): str(value) for key, value in about.items() if key != _LINE} if isinstance(about, dict) else {}
    return in_order(path, jobs, [_event(path, one) for one in events], facts, [])


def _document(path: str, data: bytes) -> dict[str, Any]:
    """Return the object of the file, after checks of the members. Raises BadWorkload."""
    try:
        text = data.decode("utf-8")
        found = _Decoder(text).decode(text)
    except json.JSONDecodeError as error:
        raise BadWorkload(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadWorkload(f"{path}:{line}: not JSON: no UTF-8") from None
    except (RecursionError, ValueError) as error:
        raise BadWorkload(f"{path}: not JSON: {str(error)[:100] or 'nested too deep'}") from None
    document = {"jobs": found} if isinstance(found, list) else found
    if not isinstance(document, dict) or not isinstance(document.get("jobs"), list):
        raise BadWorkload(f'{path}: no list "jobs" is in it')
    if unknown := document.keys() - {"jobs", "events", "about", _LINE}:
        raise BadWorkload(f"{path}: {min(unknown)[:60]!r} is unknown beside jobs, events and about")
    if not document["jobs"]:
        raise BadWorkload(f"{path}: no job is in it")
    if len(document["jobs"]) > MOST_JOBS:
        raise BadWorkload(f"{path}: more than {MOST_JOBS} jobs")
    return document


class _Decoder(json.JSONDecoder):
    """A decoder which stores in each object the number of the object's first line."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._last = (0, 1)  # a place and its line; objects begin one behind the other
        document = text

        def parse_object(state: tuple[str, int], *rest: Any) -> tuple[dict[str, Any], int]:
            at, line = self._last
            line += document.count("\n", at, state[1])
            self._last = (state[1], line)
            found, end = json.decoder.JSONObject(state, *rest)  # type: ignore[attr-defined]  # what this class calls
            found[_LINE] = line
            return found, end

        self.parse_object = parse_object
        self.scan_once = scanner.py_make_scanner(self)  # type: ignore[attr-defined]  # the one in C has no parse_object


def _job(path: str, place: int, one: object, uids: dict[str, int]) -> WorkJob:
    if not isinstance(one, dict):
        raise BadWorkload(f"{path}: job {place}: not an object")
    where = f"{path}:{one[_LINE]}"
    if unknown := one.keys() - _KNOWN:
        raise BadWorkload(f"{where}: {min(unknown)[:60]!r} is unknown")
    values: dict[str, Any] = {
        name: _value(where, name, value) for name, value in one.items() if name not in (_LINE, "run")
    }
    for name in ("tasks", "cpus_per_task", "id"):
        if values.get(name) == 0:
            raise BadWorkload(f"{where}: {name}: 0 is below 1")
    array, percent, most = values.pop("array", "").partition("%")
    if percent:
        values["array_limit"] = _whole(where, "array", int(most) if most.isdecimal() else most, 1, 2**31)
    user = values.setdefault("user", "root")
    uid = 0 if user == "root" else uids.setdefault(user, _FIRST_UID + len(uids))
    submit, number = values.pop("submit", 0.0), values.pop("id", place)
    return WorkJob(number, submit, _runs(where, one.get("run")), uid=uid, array=array, **values)


def _value(where: str, name: str, value: object) -> object:
    """Return the checked value of a job's key."""
    if name in _COUNTS:
        return _whole(where, name, value, 0, _COUNTS[name])
    if name in _TIMES:
        return _seconds(where, name, value)
    if name in _TEXTS:
        return _checked(where, name, value, _is_text, f"not a text of at most {_LONGEST_TEXT} signs")
    if name in _FLAGS:
        return _checked(where, name, value, lambda one: isinstance(one, bool), "not true or false")
    return _gres(where, value) if name == "gres" else _whole(where, name, value, -(2**31), 2**31)


def _event(path: str, one: object) -> NodeEvent:
    if not isinstance(one, dict):
        raise BadWorkload(f"{path}: events: one is not an object")
    where = f"{path}:{one[_LINE]}"
    if one.keys() != {"time", "node", "state", _LINE}:
        raise BadWorkload(f"{where}: an event has time, node and state")
    node = _checked(where, "node", one["node"], _is_text, "not a name")
    if one["state"] not in ("drain", "down", "resume"):
        raise BadWorkload(f"{where}: state: {str(one['state'])[:40]!r} is none of drain, down, resume")
    return NodeEvent(_seconds(where, "time", one["time"]), str(node), str(one["state"]))


def _runs(where: str, value: object) -> tuple[float, ...]:
    if value is None:
        raise BadWorkload(f"{where}: run is missing: the seconds for which the job's program runs")
    if isinstance(value, list) and value:
        return tuple(_seconds(where, "run", one) for one in value)
    return (_seconds(where, "run", value),)


def _gres(where: str, value: object) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, Mapping):
        raise BadWorkload(f'{where}: gres: not an object such as {{"gpu": 1}}')
    return tuple((str(name), _whole(where, "gres", count, 0, 9999)) for name, count in value.items() if name != _LINE)


def _whole(where: str, name: str, value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadWorkload(f"{where}: {name}: {_shown(value)} is no whole number from {least} to {most}")
    return value


def _seconds(where: str, name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= LONGEST_TIME:
        raise BadWorkload(f"{where}: {name}: {_shown(value)} is no time from 0 to {LONGEST_TIME} seconds")
    return float(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_TEXT


def _checked(where: str, name: str, value: object, right: Callable[[object], bool], words: str) -> object:
    if not right(value):
        raise BadWorkload(f"{where}: {name}: {_shown(value)} is {words}")
    return value


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, int) and value.bit_length() > 64:
        return "so long a number"
    return repr(value)[:60]
