"""The calls without an answer in a cluster, by method, and the command to use instead."""

_WAITS = "here `nodectl run` waits for its turn by itself"
_JOBS = "the job is Slurm's -> its own `scontrol {}`"
_RESERVATIONS = "reservations are Slurm's -> its own `scontrol`"
# {socket} is that of the node's own daemon.
_WHY = {
    "Enter": "enter is of one node -> `nodectl run --overlap --pty -w NODE sh` is a shell there",
    "Login": "logins are those of the machine's service -> `nodectl --socket /run/nodectl/nodectl.sock login`",
    "Update": "limits of a step are each node's -> on each of its nodes `nodectl --socket {socket} update JOB.STEP`",
    "Metrics": "metrics are each node's -> on it `nodectl --socket {socket} metrics`",
    "Submit": f"batch jobs are Slurm's -> its own `sbatch`; {_WAITS}",
    "Allocate": f"allocations are Slurm's -> its own `salloc`; {_WAITS}",
    "TestOnly": f"the ends of steps are unknown -> `nodectl queue` tells what waits; {_WAITS}",
    "Await": f"jobs are Slurm's -> its own `squeue`; {_WAITS}",
    "ShowJob": _JOBS.format("show job JOB") + ", and `nodectl show JOB.STEP` of a step",
    "Newest": "jobs are Slurm's -> its own `squeue --me`",
    "Script": _JOBS.format("write batch_script JOB"),
    "Hold": _JOBS.format("hold JOB"),
    "ReleaseJobs": _JOBS.format("release JOB"),
    "Requeue": _JOBS.format("requeue JOB"),
    "UpdateJob": _JOBS.format("update JobId=JOB"),
    "UpdateNode": "nodes are Slurm's -> its own `scontrol update NodeName=NODE`",
    "Fence": "the fence is each machine's -> there `nodectl --socket /run/nodectl/nodectl.sock fence`",
    "CreateReservation": _RESERVATIONS,
    "DeleteReservation": _RESERVATIONS,
    "Reservations": _RESERVATIONS,
}


def why_not(method: str, socket: str) -> str:
    """Return why a cluster does not answer the method; "" where a cluster does. `socket`: of the own node's daemon."""
    return _WHY.get(method, "").replace("{socket}", socket)
