"""squeue's fields of jobs, by letter and name, computed from the service's rows. Pure."""

from __future__ import annotations

import grp
import os
import pwd
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from nodectl.client.render.job_columns import name_of
from nodectl.model.device_part import MEMORY, as_tres
from nodectl.model.states import COMPLETED, IN_QUEUE, PENDING, SHORT
from nodectl.model.words import moment, short_duration
from nodectl.slurm.commands.column_format import Field, Row
from nodectl.slurm.commands.time_words import limit

NULL = "(null)"
# States in the order of Slurm's numbers, which is the sort order, and their short forms; at the end, those of Slurm's
# alone.
STATES: dict[str, str] = {
    **SHORT, "STOPPED": "ST", "SPECIAL_EXIT": "SE", "REVOKED": "RV", "REQUEUE_HOLD": "RH", "REQUEUE_FED": "RF",
    "SIGNALING": "SI", "STAGE_OUT": "SO",
}  # fmt: skip
_HIGHEST = 2**32 - 1  # of a priority
_SIGNALLED = 128
BATCH = "batch"  # `held_by` of a job whose script the service runs
_NO_FILES = ("wrap", "submit")  # names of scripts without a file
_TOKEN = re.compile(r"%[%jAaxuN]")


def reason(job: Row) -> str:
    """Return the reason for the job's wait or end, as a single word."""
    return str(job.get("reason") or "None").replace(" ", "_")


def nodes_or_reason(job: Row) -> str:
    """Return the job's nodes, or for a waiting or failed job the reason."""
    if job["state"] == PENDING or (job["state"] not in (*IN_QUEUE, COMPLETED) and job.get("reason")):
        return f"({reason(job)})"
    return str(job.get("nodes") or "")


def exit_pair(job: Mapping[str, Any]) -> str:
    """Return exit code and signal, 0:9."""
    status = int(job.get("exit_code") or 0)
    return f"0:{status - _SIGNALLED}" if status > _SIGNALLED else f"{status}:0"


def group_of(uid: int) -> tuple[int, str]:
    """Return number and name of a user's primary group; the user's number for both if unknown."""
    try:
        gid = pwd.getpwuid(uid).pw_gid
        return gid, grp.getgrgid(gid).gr_name
    except (KeyError, OverflowError):
        return uid, str(uid)


def command_of(job: Row) -> str:
    """Return the script's path, or the program; NULL for --wrap."""
    command = job.get("command") or ()
    word = command if isinstance(command, str) else str(command[0]) if command else ""
    if job.get("held_by") != BATCH or not word:
        return word or NULL
    return NULL if word in _NO_FILES else os.path.join(str(job.get("work_dir") or ""), word)


def output_of(job: Row) -> str:
    """Return the path for a batch job's standard output."""
    if job.get("held_by") != BATCH:
        return ""
    array = str(job.get("array_job") or job["job"])
    name = str(job.get("stdout") or ("slurm-%A_%a.out" if job.get("array_job") else "slurm-%j.out"))
    index = job.get("array_task")
    values = {
        "%j": str(job["job"]),
        "%A": array,
        "%a": "%a" if index is None else str(index),
        "%%": "%",
        "%x": str(job.get("name") or ""),
        "%u": str(job.get("user") or ""),
        "%N": str(job.get("nodes") or ""),
    }
    return os.path.join(str(job.get("work_dir") or ""), _TOKEN.sub(lambda found: values[found[0]], name))


def memory(job: Row) -> str:
    """Return the job's MiB in Slurm's notation."""
    mebibytes = int(job.get("memory") or 0)
    return f"{mebibytes >> 10}G" if mebibytes and mebibytes % 1024 == 0 else f"{mebibytes}M" if mebibytes else "0"


def tres(job: Row) -> str:
    """Return the resources held or requested."""
    parts = [f"cpu={job.get('cpus') or 1}"]
    if job.get("memory"):
        parts.append(f"mem={memory(job)}")
    gres = [f"gres/{name}={count}" for name, count in devices(job).items()]
    return ",".join([*parts, "node=1", f"billing={job.get('cpus') or 1}", *gres])


def devices(job: Row) -> dict[str, str]:
    """Return the number of devices held or requested, by name."""
    words = list(filter(None, str(job.get("gres") or "").split(",")))
    never_began = job["state"] == PENDING or (job["state"] not in IN_QUEUE and not job.get("start"))
    if not never_began:
        return as_tres(words)
    found: dict[str, int] = {}
    for word in words:
        name, _, rest = word.partition(":")
        found[name] = found.get(name, 0) + int(rest.rpartition(":")[2] or 1)
    return {name: f"{count}M" if name == MEMORY else str(count) for name, count in found.items()}


def _left(job: Row) -> str:
    if not job.get("time_limit"):
        return "UNLIMITED"
    return short_duration(float(job["time_limit"]) - float(job.get("used") or 0))


def _asked(job: Row) -> str:
    gres = str(job.get("gres") or "")
    return ",".join(f"gres:{word}" for word in gres.split(",")) if gres else "N/A"


def _text(key: str, none: str = NULL) -> Callable[[Row], object]:
    return lambda job: none if job.get(key) in (None, "") else job[key]


def _moment(key: str) -> Callable[[Row], object]:
    return lambda job: moment(job.get(key))


def _constant(text: str) -> Callable[[Row], object]:
    return lambda job: text


def _host(job: Row) -> str:
    return str(job.get("nodes") or os.uname().nodename) if job["state"] != PENDING else "n/a"


def _pending_seconds(job: Row) -> int:
    return int(max(0.0, (job.get("start") or time.time()) - (job.get("submit") or time.time())))


def _flag(key: str) -> Callable[[Row], object]:
    return lambda job: int(bool(job.get(key)))


FIELDS = (
    Field("a", "Account", "ACCOUNT", _text("account")),
    Field("A", "JobID", "JOBID", lambda job: job["job"]),
    Field("b", "tres-per-node", "TRES_PER_NODE", _asked),
    Field("B", "BatchHost", "EXEC_HOST", _host),
    Field("c", "MinCpus", "MIN_CPUS", _text("min_cpus", "1"), more=True),
    Field("C", "NumCPUs", "CPUS", _text("cpus", "1")),
    Field("d", "MinTmpDisk", "MIN_TMP_DISK", _constant("0")),
    Field("D", "NumNodes", "NODES", _constant("1")),
    Field("e", "EndTime", "END_TIME", _moment("end")),
    Field("E", "Dependency", "DEPENDENCY", _text("dependency")),
    Field("f", "Feature", "FEATURES", lambda job: ",".join(job.get("features") or ()) or NULL, more=True),
    Field("F", "ArrayJobID", "ARRAY_JOB_ID", lambda job: job.get("array_job") or job["job"]),
    Field("g", "GroupName", "GROUP", lambda job: group_of(job["uid"])[1]),
    Field("G", "GroupID", "GROUP", lambda job: group_of(job["uid"])[0]),
    Field("h", "OverSubscribe", "OVER_SUBSCRIBE", lambda job: "YES" if job.get("oversubscribe") else "OK", more=True),
    Field("H", "Sockets", "SOCKETS_PER_NODE", _constant("*")),
    Field("i", "JobArrayID", "JOBID", name_of),
    Field("I", "Cores", "CORES_PER_SOCKET", _constant("*")),
    Field("j", "Name", "NAME", _text("name", "")),
    Field("J", "Threads", "THREADS_PER_CORE", _constant("*")),
    Field("k", "Comment", "COMMENT", _text("comment"), more=True),
    Field("K", "ArrayTaskID", "ARRAY_TASK_ID",
          lambda job: job.get("array_tasks") or ("N/A" if job.get("array_task") is None else job["array_task"])),
    Field("l", "TimeLimit", "TIME_LIMIT", lambda job: limit(job.get("time_limit"))),
    Field("L", "TimeLeft", "TIME_LEFT", _left),
    Field("m", "MinMemory", "MIN_MEMORY", memory),
    Field("M", "TimeUsed", "TIME", lambda job: short_duration(job.get("used") or 0)),
    Field("n", "ReqNodes", "REQ_NODES", _constant("")),
    Field("N", "NodeList", "NODELIST", _text("nodes", "")),
    Field("o", "Command", "COMMAND", command_of, more=True),
    Field("O", "Contiguous", "CONTIGUOUS", _constant("0")),
    Field("p", "Priority", "PRIORITY", lambda job: f"{(job.get('priority') or 0) / _HIGHEST:.14f}"),
    Field("P", "Partition", "PARTITION", _text("partition", "")),
    Field("q", "QOS", "QOS", _text("qos", "normal")),
    Field("Q", "PriorityLong", "PRIORITY", _text("priority", "0")),
    Field("r", "Reason", "REASON", reason),
    Field("R", "ReasonList", "NODELIST(REASON)", nodes_or_reason),
    Field("s", "SelectJobInfo", "SELECT_JOBINFO", _constant("")),
    Field("S", "StartTime", "START_TIME", _moment("start")),
    Field("t", "StateCompact", "ST", lambda job: STATES.get(job["state"], job["state"])),
    Field("T", "State", "STATE", _text("state")),
    Field("u", "UserName", "USER", _text("user", "")),
    Field("U", "UserID", "UID", _text("uid", "0")),
    Field("v", "Reservation", "RESERVATION", _text("reservation")),
    Field("V", "SubmitTime", "SUBMIT_TIME", _moment("submit")),
    Field("w", "WCKey", "WCKEY", _constant(NULL)),
    Field("W", "Licenses", "LICENSES", _constant(NULL)),
    Field("x", "ExcNodes", "EXC_NODES", _constant("")),
    Field("X", "CoreSpec", "CORE_SPEC", _constant("N/A")),
    Field("y", "Nice", "NICE", _text("nice", "0")),
    Field("Y", "SchedNodes", "SCHEDNODES", _constant(NULL)),
    Field("z", "S:C:T", "S:C:T", _constant("*:*:*")),
    Field("Z", "WorkDir", "WORK_DIR", _text("work_dir"), more=True),
    Field("", "AllocNodes", "ALLOC_NODES", lambda job: os.uname().nodename),
    Field("", "BatchFlag", "BATCH_FLAG", lambda job: int(job.get("held_by") == BATCH)),
    Field("", "cpus-per-task", "CPUS_PER_TASK", _text("cpus_per_task", "N/A"), more=True),
    Field("", "Deadline", "DEADLINE", _moment("deadline"), more=True),
    Field("", "EligibleTime", "ELIGIBLE_TIME", _moment("eligible")),
    Field("", "exit_code", "EXIT_CODE", _text("exit_code", "0")),
    Field("", "MaxCPUs", "MAX_CPUS", _constant("0")),
    Field("", "MaxNodes", "MAX_NODES", _constant("0")),
    Field("", "Network", "NETWORK", _constant(NULL)),
    Field("", "NumTasks", "TASKS", _text("tasks", "1")),
    Field("", "PendingTime", "PENDING_TIME", _pending_seconds),
    Field("", "Requeue", "REQUEUE", _flag("requeue"), more=True),
    Field("", "RestartCnt", "RESTART_COUNT", _text("restarts", "0")),
    Field("", "STDERR", "STDERR", lambda job: job.get("stderr") or output_of(job) or NULL, more=True),
    Field("", "STDIN", "STDIN", _text("stdin", "/dev/null"), more=True),
    Field("", "STDOUT", "STDOUT", lambda job: output_of(job) or NULL, more=True),
    Field("", "tres", "TRES", tres),
    Field("", "tres-alloc", "TRES_ALLOC", lambda job: "N/A" if job["state"] == PENDING else tres(job)),
)  # fmt: skip
