"""A job and a step for a run before the launch: where the run has to wait, and where plugins need the numbers first.

Imported only then.
"""

from typing import TYPE_CHECKING

from nodectl.client.command import Failed, environ
from nodectl.model.wire import lean_json
from nodectl.model.wire.names import NODE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from nodectl.client.local_spank import LocalStack
    from nodectl.client.run_options import Parsed
    from nodectl.client.session import Session

_LONGEST_WISH = 128 << 10  # bytes; a longer one is looked at when it is launched


def turn(
    session: "Session", request: dict[str, object], parsed: "Parsed", of_job: dict[str, object], patience: int | None,
    number: int = 0,
) -> int:  # fmt: skip
    """Allocate a job for this request, wait for the turn, and return the job's number. Raises Failed."""
    from nodectl.client import waiting
    from nodectl.client.launch_request import job_environment

    wanted = {**request, "environment": waiting.told({"environment": job_environment(parsed)})}
    wanted |= {"job": number} if number else {}
    return waiting.job(session, wanted, of_job, patience)


def through_local_hooks(
    session: "Session", local: "LocalStack", request: dict[str, object], parsed: "Parsed", patience: int | None
) -> None:
    """Call init_post_opt, reserve a job id, then call local_user_init, the plugins' last chance to refuse the launch.

    The service refuses a bad request before there is a job.
    """
    local.after_options()
    reserved = _reserved(session, request, parsed, patience)
    request["job"] = reserved["job"]
    if "jobid" in request or reserved["step"]:  # in a cluster each step has a number of its own
        request.pop("jobid", None)
        request["step"] = reserved["step"]
    request["options"] = local.given()
    local.before_launch(request, reserved)
    if local.job_control():
        request["job_control"] = local.job_control()


def _reserved(
    session: "Session", request: dict[str, object], parsed: "Parsed", patience: int | None
) -> "Mapping[str, object]":
    """Return the numbers of a step to come, of a job which may start."""
    from nodectl.client.launch_request import job_environment

    if "job" in request:
        return {"job": request["job"], "step": 0}
    told = {name: value for name, value in job_environment(parsed).items() if name.startswith(("SLURM_", "SRUN_"))}
    wanted = {**request, "argv": parsed.argv[:1], "environment": told}
    of_job = {"jobid": request["jobid"]} if "jobid" in request else {}
    if len(lean_json.dumps(wanted)) < _LONGEST_WISH:
        of_job["request"] = wanted
    try:
        reserved = session.call("Reserve", (), **of_job)
    except Failed as failed:
        if failed.name != f"{NODE}.Busy" or "jobid" in of_job:
            raise
        return {"job": turn(session, request, parsed, {}, patience, failed.job), "step": 0}
    return reserved


def fill_machine(session: "Session", request: "dict[str, Any]") -> None:
    """Fill the machine for --exclusive without -n, in a run outside of jobs.

    A single task has the whole machine, or with -c as many tasks as fit.
    """
    if "NODECTL_JOB_ID" in environ() or "jobid" in request or int(request["ntasks"]) > 1:
        return
    each = request.get("cpus_per_task")
    if not each:
        request["layout"]["whole"] = "1"
        return
    found: Any = session.call("TestOnly", request={**request, "environment": {}}, job={})
    request["ntasks"] = max(1, int(found["cpus"]) // int(each))
