"""The start time of a job, for --test-only of `nodectl run`, `submit` and of Slurm's names for the commands."""

from typing import TYPE_CHECKING

from nodectl.client.command import Failed, Program
from nodectl.model.words import moment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from nodectl.client.session import Session


def would_start(session: "Session", request: "Mapping[str, object]", options: "Mapping[str, object]") -> str:
    """Return a line with the start time. Raises Failed."""
    try:
        found: Any = session.call("TestOnly", request=request, job=options)
    except Failed as failed:
        if not Program.is_slurms():
            raise
        raise Failed(f"allocation failure: {failed}", failed.status) from None
    start = moment(found["start"])
    if Program.is_slurms():
        where = f"on nodes {found['nodes']} in partition {found['partition']}"
        return f"Job {found['job']} to start at {start} using {found['cpus']} processors {where}"
    cpus = f"{found['cpus']} CPU{'s' if found['cpus'] != 1 else ''}"
    return f"the job would start at {start} with {cpus} on {found['nodes']}"
