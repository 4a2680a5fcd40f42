"""A task plugin that has every function of the document, in the document's words, and writes down each call.

Each call is a line of the file calls beside the directory of plugins, which anybody may write to: the function, its
arguments, as whom and in which process it ran.
"""

import json
import os
from typing import Any

plugin_type = "task/task_tracer"
plugin_name = "tracer of the task interface"

SLURM_SUCCESS = 0
CALLS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "calls")


def _trace(name: str, *arguments: Any) -> int:
    told = [getattr(argument, "job_id", argument) for argument in arguments]
    line = {"call": name, "told": told, "euid": os.geteuid(), "pid": os.getpid()}
    line["types"] = [type(argument).__name__ for argument in arguments]
    line["step"] = [getattr(argument, "step_id", None) for argument in arguments][:1]
    file = os.open(CALLS, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    os.write(file, json.dumps(line, default=lambda other: type(other).__name__).encode() + b"\n")
    os.close(file)
    return SLURM_SUCCESS


def init() -> int:
    return _trace("init")


def fini() -> None:
    _trace("fini")


def task_p_slurmd_batch_request(req: Any) -> int:
    return _trace("task_p_slurmd_batch_request", req)


def task_p_slurmd_launch_request(req: Any, node_id: Any) -> int:
    return _trace("task_p_slurmd_launch_request", req, node_id)


def task_p_slurmd_reserve_resources(req: Any, node_id: Any) -> int:
    return _trace("task_p_slurmd_reserve_resources", req, node_id)


def task_p_slurmd_suspend_job(job_id: Any) -> int:
    return _trace("task_p_slurmd_suspend_job", job_id)


def task_p_slurmd_resume_job(job_id: Any) -> int:
    return _trace("task_p_slurmd_resume_job", job_id)


def task_p_slurmd_release_resources(job_id: Any) -> int:
    return _trace("task_p_slurmd_release_resources", job_id)


def task_p_pre_setuid(job: Any) -> int:
    return _trace("task_p_pre_setuid", job)


def task_p_pre_launch_priv(job: Any) -> int:
    return _trace("task_p_pre_launch_priv", job)


def task_p_pre_launch(job: Any) -> int:
    return _trace("task_p_pre_launch", job)


def task_p_post_term(job: Any, task: Any) -> int:
    return _trace("task_p_post_term", job, task)


def task_p_post_step(job: Any) -> int:
    return _trace("task_p_post_step", job)
