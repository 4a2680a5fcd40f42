"""Runs inside a job, which become steps of the job."""

from nodectl.client.command import environ, is_same_file
from nodectl.model.number import whole

_LAST_JOB = 2**32 - 1
_FIRST_SPECIAL_STEP = 0xFFFF_FFF0  # batch, extern and so on


def join(request: dict[str, object], socket: str) -> bool:
    """Make the request a step of the surrounding job, and return True if so.

    nodectl's jobs name themselves twice, because the SLURM_JOB_ID of a Slurm on the same machine is no job of
    nodectl's. A job of another service, with its own numbers, does not count when --socket or --config leads to a
    different service.
    """
    here = environ().get("NODECTL_JOB_ID", "")
    if not here or "jobid" in request or here != environ().get("SLURM_JOB_ID"):
        return False
    of_job = environ().get("NODECTL_SOCKET", socket)
    if of_job != socket and not _is_same(of_job, socket):
        return False
    job = whole(here, _LAST_JOB)
    if not job:
        return False
    request["jobid"] = job
    layout: dict[str, str] = request.setdefault("layout", {})  # type: ignore[assignment]  # make_request's
    within = whole(environ().get("SLURM_STEP_ID", ""), _LAST_JOB)
    if within is not None and within < _FIRST_SPECIAL_STEP and not layout.keys() & {"exact", "exclusive", "overlap"}:
        layout["overlap"] = "1"  # the step that waits for this one has the CPUs
    return True


def _is_same(path: str, other: str) -> bool:
    try:
        return is_same_file(path, other)
    except OSError:
        return False
