"""The accounting data in the record of a step or a job: facts and sums, no lists of tasks.

The daemon makes these of thousands of records; commands make rows of them. Pure.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from nodectl.model.states import COMPLETED, OUT_OF_MEMORY
from nodectl.model.step_number import EXTERN

_COMMAND = 200  # characters
_FACTS = (
    "job", "step", "name", "user", "uid", "gid", "node", "cwd", "ntasks", "secure", "memory", "submitted", "state",
    "reason", "exit_status", "started", "ended", "clock_set", "suspended_seconds", "peak_memory", "peak_swap",
    "peak_processes", "oom_kills", "cpu_seconds", "throttled_seconds", "read_bytes", "written_bytes",
    "pressure", "energy", "restart",
)  # fmt: skip
_JOB_FACTS = (
    "job_id", "array_job_id", "array_task_id", "array_tasks", "name", "user_name", "user_id", "group_id", "partition",
    "qos", "held_by", "job_state", "state_reason", "priority", "nice", "time_limit", "submit_time", "eligible_time",
    "start_time", "end_time", "clock_set", "suspended_seconds", "restart_cnt", "exit_code", "comment", "account",
    "nodes", "preempted_by",
)  # fmt: skip
_JOB_DETAILS = ("num_tasks", "cpus_per_task", "min_cpus", "pn_min_memory", "mem_per_cpu", "work_dir", "reservation")
_SIGNALLED_BY_THE_KERNEL = 125  # sacct's number for a job that ran out of memory


def of_step(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the accounting data of a step's record."""
    found = {name: record[name] for name in _FACTS if record.get(name) is not None}
    found["cpus"] = record.get("cpu_count") or int(record.get("cpus") or "0", 16).bit_count()  # of several nodes
    found["command"] = " ".join(record.get("command") or ())[:_COMMAND]
    tasks = [task for task in record.get("tasks") or () if "user_seconds" in task]
    orphans = record.get("orphans")
    found["exit"] = _exit(record, tasks)
    if tasks:
        found["used"] = _used(tasks, orphans, record.get("cpu_seconds"))
    elif record.get("cpu_seconds"):
        found["used"] = {"user": record["cpu_seconds"][0], "system": record["cpu_seconds"][1]}
    return found


def _exit(record: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return exit code and signal: of the first task ended by a signal, else the highest code."""
    if record.get("state") == OUT_OF_MEMORY:
        return [0, _SIGNALLED_BY_THE_KERNEL]
    if record.get("step") == EXTERN and record.get("state") == COMPLETED:
        return [0, 0]  # the process that held the allocation was ended by a signal: there was nothing more to hold
    statuses = [task["status"] for task in tasks if task.get("status") is not None]
    for status in statuses:
        if os.WIFSIGNALED(status):
            return [0, os.WTERMSIG(status)]
    code = max(map(os.waitstatus_to_exitcode, statuses), default=0)
    return [code or (int(record.get("exit_status") or 0) if record.get("state") != COMPLETED else 0), 0]


def _used(
    tasks: Sequence[Mapping[str, Any]], orphans: Mapping[str, Any] | None, of_group: Sequence[float] | None
) -> dict[str, Any]:
    """Return sums over the tasks and orphans; for some amounts also the extreme value with the task's number.

    The cgroup's CPU time includes processes that no task waited for, so the larger of both times counts.
    """
    everything = [*tasks, orphans] if orphans else list(tasks)
    user, system = (sum(one[name] for one in everything) for name in ("user_seconds", "system_seconds"))
    if of_group is not None and sum(of_group) > user + system:
        user, system = of_group
    seconds = [task["user_seconds"] + task["system_seconds"] for task in tasks]
    memory = [_memory(task) for task in tasks]
    found: dict[str, Any] = {
        "user": round(user, 6),
        "system": round(system, 6),
        "min_cpu": _extreme(seconds, tasks, min),
        "max_rss": _extreme(memory, tasks, max),
        "ave_rss": sum(memory) // len(memory),
    }
    for name, key in (("read", "read_chars"), ("written", "written_chars")):
        if key in tasks[0]:
            amounts = [task[key] for task in tasks]
            found[name] = sum(amounts) + (orphans[key] if orphans else 0)
            found[f"max_{name}"] = _extreme(amounts, tasks, max)
    return found


def _memory(task: Mapping[str, Any]) -> int:
    """Return the task's peak in bytes: the peak of the task's cgroup, else the peak of the largest process."""
    peak = task.get("peak_memory")
    return int(task["max_rss_kib"] << 10 if peak is None else peak)


def _extreme(values: Sequence[Any], tasks: Sequence[Mapping[str, Any]], choose: Any) -> list[Any]:
    """Return the extreme value and the number of the value's task."""
    place = choose(range(len(values)), key=values.__getitem__)
    return [values[place], tasks[place]["task"]]


def of_job(record: Mapping[str, Any], resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the accounting data of a job's record. `resources`: the job's resources by node, held now or earlier."""
    found = {name: record[name] for name in _JOB_FACTS if record.get(name) not in (None, "")}
    details = record.get("details") or {}
    found["details"] = {name: details[name] for name in _JOB_DETAILS if details.get(name)}
    found["command"] = " ".join(details.get("argv") or ())[:_COMMAND]
    shares = list(resources.values())
    found["cpus"] = sum(share["cpus"] for share in shares)
    found["gres"] = [device for share in shares for device in share.get("gres", ())]
    return found
