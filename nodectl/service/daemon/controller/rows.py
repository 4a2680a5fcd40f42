"""A job as shown to users: the rows of Queue and the record of ShowJob. Functions of values, in the daemon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodectl.launch.streams.filename import expand, is_file
from nodectl.model.cpu_list import cpus_of, format_cpulist
from nodectl.model.states import PENDING, SUSPENDED
from nodectl.model.step_number import BATCH as BATCH_STEP
from nodectl.model.value_class import replace
from nodectl.scheduler.explain import Explanation
from nodectl.selection.records import BATCH, JobRecord, NodeTable, resources_as_json
from nodectl.service.daemon.controller.job_names import name_of

_OUTPUT, _OUTPUT_OF_ARRAY = "slurm-%j.out", "slurm-%A_%a.out"
_PRIVATE = ("name", "account", "command", "comment", "work_dir", "stdin", "stdout", "stderr", "output", "errors",
            "dependency", "layout", "notices", "notice_failed")  # fmt: skip
"""What only a job's owner and admins are told."""


def held(job: JobRecord, nodes: NodeTable) -> dict[str, object]:
    """Return the resources of a job in the format of `resources_as_json`, empty for none."""
    return {} if job.job_resrcs is None else resources_as_json(job.job_resrcs, nodes)


def row(job: JobRecord, resources: Mapping[str, object], now: float, why: Explanation | None) -> dict[str, object]:
    """Return a job as a row of the queue. `why` explains a waiting or suspended job, and is None for other jobs."""
    details = job.details
    shares: list[Mapping[str, object]] = list(resources.values())  # type: ignore[arg-type]  # by node
    mask = int(str(shares[0]["mask"]), 16) if shares else 0
    memory = sum(int(str(share["memory"])) for share in shares)
    gres = [key for share in shares for key in share["gres"]]  # type: ignore[attr-defined]
    return {
        "job": job.job_id,
        "id": name_of(job),
        "array_job": job.array_job_id,
        "array_task": job.array_task_id,
        "array_tasks": job.array_tasks,
        "array_limit": job.array_limit,
        "name": job.name,
        "account": job.account,
        "user": job.user_name,
        "uid": job.user_id,
        "state": job.job_state,
        "reason": why.reason if why else job.state_reason,
        "words": why.words if why else job.state_desc,
        "priority": job.priority,
        "qos": job.qos,
        "nice": job.nice,
        "partition": job.partition,
        "submit": job.submit_time,
        "eligible": job.eligible_time,
        "start": (why.expected_start if why and job.job_state == PENDING else job.start_time) or None,
        "end": (job.end_time or None) if job.time_limit or not job.is_active else None,  # else unknown
        "time_limit": job.time_limit,
        "used": job.used_seconds(now),
        "idle_since": job.idle_since or None,
        "tasks": details.num_tasks,
        "cpus": job.total_cpus or sum(int(str(share["cpus"])) for share in shares) or details.min_cpus,
        "memory": memory or details.pn_min_memory or details.mem_per_cpu * details.min_cpus,
        "gres": ",".join(gres) or ",".join(f"{name}:{count}" for name, count in details.gres.items()),
        "nodes": job.nodes,
        "cpu_list": format_cpulist(cpus_of(mask)),
        "held_by": job.held_by,
        "held": job.held,
        "dependency": details.dependency,
        "reservation": details.reservation,
        "command": list(details.argv),
        "restarts": job.restart_cnt,
        "exit_code": job.exit_code,
    }


class _Names:
    """The values by which the first step of a job expands the names of its files, see `filename`."""

    def __init__(self, job: JobRecord, node: str, task: int | None) -> None:
        self.job_id, self.restart, self.cwd, self.node_name = job.job_id, job.restart_cnt, job.details.work_dir, node
        self.user_name, self.name, self.nodeid = job.user_name, job.name, 0
        self.step_id = BATCH_STEP if job.held_by == BATCH else 0
        self.array_task = task or 0
        self.array_job = job.array_job_id if task is not None else 0

    def __str__(self) -> str:
        return f"{self.job_id}.{self.step_id}"


def default_output(job: JobRecord) -> str:
    """Return the pattern of the file for the output of a batch job without --output."""
    return _OUTPUT_OF_ARRAY if job.array_job_id else _OUTPUT


def output_files(job: JobRecord, node: str, task: int | None = None) -> tuple[str, str]:
    """Return the paths of the files for stdout and stderr of the first step's first task; "" for those of a client.

    In the paths of an array's waiting tasks, %a stands for the task's number, unless `task` is the number of one.
    """
    details = job.details
    if job.array_task_id is not None:
        task = job.array_task_id
    named: Any = _Names(job, node, task)  # as much of a step as the names need
    out = details.std_out or (default_output(job) if job.held_by == BATCH else "")
    err = details.std_err or out
    ntasks = 1 if job.held_by == BATCH else details.num_tasks
    files = [expand(name, named, 0) if is_file(name, ntasks) else "" for name in (out, err)]
    return files[0], files[1]


def record(
    job: JobRecord,
    resources: Mapping[str, object],
    now: float,
    why: Explanation | None,
    node: str = "",
    task: int | None = None,
) -> dict[str, object]:
    """Return everything known about a job, or about a waiting task of this array, on the node with this name."""
    details = job.details
    output, errors = output_files(job, node, task)
    return {
        **row(job, resources, now, why),
        "comment": job.comment,
        "begin": details.begin_time or None,
        "deadline": details.deadline or None,
        "requeue": details.requeue,
        "work_dir": details.work_dir,
        "stdin": details.std_in,
        "stdout": details.std_out,
        "stderr": details.std_err,
        "output": output,
        "errors": errors,
        "open_append": details.open_append,
        "ntasks": details.num_tasks,
        "cpus_per_task": details.cpus_per_task,
        "min_cpus": details.min_cpus,
        "mem_per_cpu": details.mem_per_cpu,
        "features": list(details.features),
        "layout": dict(details.layout),
        "oversubscribe": details.share_res,
        "resources": dict(resources),
        "suspended": job.suspended_seconds,
        "preempted_by": job.preempted_by or None,
        "notices": {name: text for name, text in details.notices.items() if name != "secure"},
    }


def without_private(row_: dict[str, object]) -> dict[str, object]:
    """Remove the private fields, for a user who is neither owner of the job nor admin.

    The words of a waiting or suspended job stay, because everybody may know why a job waits. The words of an ended job
    may name its files.
    """
    empty: dict[str, object] = {"command": [], "layout": {}, "notices": {}}
    private = _PRIVATE if row_["state"] in (PENDING, SUSPENDED) else {*_PRIVATE, "words"}
    return {name: empty.get(name, "") if name in private else value for name, value in row_.items()}


def without_others(why: Explanation, user: str) -> Explanation:
    """Hide other users' jobs in an explanation, for a user who may not see these jobs."""
    others = [name for name in why.for_whom if not name.endswith(f" of {user}")]

    def hidden(text: str) -> str:
        for name in sorted(others, key=len, reverse=True):
            text = text.replace(name, "another user's job")
        return text

    return replace(
        why,
        words=hidden(why.words),
        for_whom=tuple(name for name in why.for_whom if name not in others),
        what_would_help=tuple(map(hidden, why.what_would_help)),
    )
