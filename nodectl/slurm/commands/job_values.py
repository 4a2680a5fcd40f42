"""A job in the words of squeue --json and of scontrol show job, made from the service's record. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from nodectl.model.words import duration, moment
from nodectl.slurm.commands.job_fields import (
    BATCH,
    NULL,
    command_of,
    devices,
    exit_pair,
    group_of,
    memory,
    output_of,
    reason,
    tres,
)
from nodectl.slurm.commands.time_words import long_limit

_MINUTE = 60


def as_json(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job's values by Slurm's names."""
    if "job" not in job or "state" not in job or "uid" not in job:
        return dict(job)
    return {
        "job_id": job["job"],
        "array_job_id": job.get("array_job") or 0,
        "array_task_id": job.get("array_task"),
        "array_task_string": job.get("array_tasks") or "",
        "name": job.get("name") or "",
        "user_name": job.get("user") or "",
        "user_id": job["uid"],
        "group_id": group_of(job["uid"])[0],
        "job_state": job["state"],
        "state_reason": reason(job),
        "partition": job.get("partition") or "",
        "qos": job.get("qos") or "",
        "priority": job.get("priority") or 0,
        "nice": job.get("nice") or 0,
        "submit_time": int(job.get("submit") or 0),
        "eligible_time": int(job.get("eligible") or 0),
        "start_time": int(job.get("start") or 0),
        "end_time": int(job.get("end") or 0),
        "time_limit": int(job["time_limit"]) // _MINUTE if job.get("time_limit") else None,
        "nodes": job.get("nodes") or "",
        "node_count": 1,
        "cpus": job.get("cpus") or 0,
        "tasks": job.get("tasks") or job.get("ntasks") or 1,
        "cpus_per_task": job.get("cpus_per_task") or 1,
        "memory_per_node": job.get("memory") or None,
        "dependency": job.get("dependency") or "",
        "comment": job.get("comment") or "",
        "command": command_of(job),
        "current_working_directory": job.get("work_dir") or "",
        "standard_output": output_of(job),
        "standard_error": job.get("stderr") or "",
        "standard_input": job.get("stdin") or "",
        "restart_cnt": job.get("restarts") or 0,
        "exit_code": job.get("exit_code") or 0,
    }


def job_facts(job: Mapping[str, Any], *, details: bool) -> Iterator[list[str]]:
    """Yield scontrol's lines of Key=Value."""
    yield [f"JobId={job['job']}", *_array(job), f"JobName={job.get('name') or ''}"]
    gid, group = group_of(job["uid"])
    yield [f"UserId={job.get('user')}({job['uid']})", f"GroupId={group}({gid})", "MCS_label=N/A"]
    yield [
        f"Priority={job.get('priority') or 0}", f"Nice={job.get('nice') or 0}", f"Account={job.get('account') or NULL}",
        f"QOS={job.get('qos') or NULL}",
    ]  # fmt: skip
    yield [
        f"JobState={job['state']}", f"Reason={reason(job)}", f"Dependency={job.get('dependency') or NULL}"
    ]  # fmt: skip
    batch = int(job.get("held_by") == BATCH)
    yield [
        f"Requeue={int(bool(job.get('requeue')))}", f"Restarts={job.get('restarts') or 0}", f"BatchFlag={batch}",
        "Reboot=0", f"ExitCode={exit_pair(job)}",
    ]  # fmt: skip
    if details:
        yield ["DerivedExitCode=0:0"]
    yield from _times(job)
    yield from _places(job)
    if details:
        yield [f"JOB_GRES={','.join(f'{name}:{count}' for name, count in devices(job).items()) or NULL}"]
        if job.get("cpu_list"):
            yield [
                f"  Nodes={job.get('nodes') or ''}", f"CPU_IDs={job['cpu_list']}", f"Mem={job.get('memory') or 0}",
                f"GRES={job.get('gres') or ''}",
            ]  # fmt: skip
    yield from _wishes(job)
    yield from _files(job)


def _array(job: Mapping[str, Any]) -> list[str]:
    if job.get("array_tasks"):
        most = f"%{job['array_limit']}" if job.get("array_limit") else ""
        return [f"ArrayJobId={job.get('array_job') or job['job']}", f"ArrayTaskId={job['array_tasks']}{most}"]
    if job.get("array_job") and job.get("array_task") is not None:
        return [f"ArrayJobId={job['array_job']}", f"ArrayTaskId={job['array_task']}"]
    return []


def _times(job: Mapping[str, Any]) -> Iterator[list[str]]:
    bound = long_limit(job.get("time_limit"))
    yield [f"RunTime={duration(job.get('used') or 0)}", f"TimeLimit={bound}", "TimeMin=N/A"]
    yield [f"SubmitTime={moment(job.get('submit'))}", f"EligibleTime={moment(job.get('eligible'), 'Unknown')}"]
    yield [f"AccrueTime={moment(job.get('eligible'), 'Unknown')}"]
    yield [
        f"StartTime={moment(job.get('start'), 'Unknown')}", f"EndTime={moment(job.get('end'), 'Unknown')}",
        f"Deadline={moment(job.get('deadline'))}",
    ]  # fmt: skip
    yield [
        "SuspendTime=None", "SecsPreSuspend=0", f"LastSchedEval={moment(job.get('eligible'), 'Unknown')}",
        "Scheduler=Main",
    ]  # fmt: skip


def _places(job: Mapping[str, Any]) -> Iterator[list[str]]:
    layout = job.get("layout") or {}
    node = str(job.get("nodes") or "")
    yield [f"Partition={job.get('partition') or ''}", f"AllocNode:Sid={os.uname().nodename}:0"]
    yield [f"ReqNodeList={NULL}", f"ExcNodeList={NULL}"]
    yield [f"NodeList={node}"]
    if node:
        yield [f"BatchHost={node}"]
    geometry = f"0:0:{layout.get('cores_per_socket') or '*'}:{layout.get('threads_per_core') or '*'}"
    yield [
        "NumNodes=1", f"NumCPUs={job.get('cpus') or 1}", f"NumTasks={job.get('ntasks') or job.get('tasks') or 1}",
        f"CPUs/Task={job.get('cpus_per_task') or 1}", f"ReqB:S:C:T={geometry}",
    ]  # fmt: skip
    yield [f"TRES={tres(job)}"]
    tasks = f"0:0:{layout.get('ntasks_per_socket') or '*'}:{layout.get('ntasks_per_core') or '*'}"
    yield [f"Socks/Node={layout.get('sockets_per_node') or '*'}", f"NtasksPerN:B:S:C={tasks}", "CoreSpec=*"]


def _wishes(job: Mapping[str, Any]) -> Iterator[list[str]]:
    yield [
        f"MinCPUsNode={job.get('min_cpus') or 1}", _memory(job), "MinTmpDiskNode=0",
    ]  # fmt: skip
    yield [f"Features={','.join(job.get('features') or ()) or NULL}", "DelayBoot=00:00:00"]
    if job.get("reservation"):
        yield [f"Reservation={job['reservation']}"]
    shares = "YES" if job.get("oversubscribe") else "OK"
    yield [f"OverSubscribe={shares}", "Contiguous=0", f"Licenses={NULL}", f"Network={NULL}"]


def _memory(job: Mapping[str, Any]) -> str:
    each = job.get("mem_per_cpu")
    return f"MinMemoryCPU={memory({'memory': each})}" if each else f"MinMemoryNode={memory(job)}"


def _files(job: Mapping[str, Any]) -> Iterator[list[str]]:
    yield [f"Command={command_of(job)}"]
    yield [f"WorkDir={job.get('work_dir') or ''}"]
    if job.get("comment"):
        yield [f"Comment={job['comment']}"]
    if output := output_of(job):
        yield [f"StdErr={job.get('stderr') or output}"]
        yield [f"StdIn={job.get('stdin') or '/dev/null'}"]
        yield [f"StdOut={output}"]
    if job.get("gres"):
        yield [f"TresPerNode=gres:{job['gres']}"]
    yield ["Power="]
