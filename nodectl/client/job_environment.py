"""The variables of a command in an allocation, as salloc sets them. Pure."""

from collections.abc import Mapping
from typing import Any

from nodectl.launch.task.environment import of_launchers

_ASKED = (("ntasks_per_node", "NTASKS_PER_NODE"), ("threads_per_core", "THREADS_PER_CORE"), ("hint", "HINT"),
          ("distribution", "DISTRIBUTION"), ("mem_bind", "MEM_BIND"))  # fmt: skip


def of_allocation(
    job: int, record: Mapping[str, Any], request: Mapping[str, Any], socket: str, *, counted: bool
) -> dict[str, str]:
    """Return the command's environment: `record` is ShowJob's, `request` the launch request, `socket` the service's.

    `counted`: whether the user asked for a number of tasks.
    """
    environment = dict(request["environment"])
    nodes, cpus = str(record.get("nodes") or ""), str(record.get("cpus") or 0)
    variables = {
        "JOB_ID": str(job),
        "JOBID": str(job),
        "JOB_NAME": str(record.get("name") or ""),
        "JOB_USER": str(record.get("user") or ""),
        "JOB_QOS": str(record.get("qos") or ""),
        "JOB_NODELIST": nodes,
        "NODELIST": nodes,
        "JOB_NUM_NODES": "1",
        "NNODES": "1",
        "JOB_CPUS_PER_NODE": cpus,
        "TASKS_PER_NODE": str(request["ntasks"]),
    }
    if counted:
        variables |= {"NTASKS": str(request["ntasks"]), "NPROCS": str(request["ntasks"])}
    if request.get("cpus_per_task"):
        variables["CPUS_PER_TASK"] = str(request["cpus_per_task"])
    layout = request.get("layout", {})
    if layout.get("overcommit"):
        variables["OVERCOMMIT"] = "1"
    variables |= {name: layout[option] for option, name in _ASKED if option in layout}
    start = record.get("start")
    if start:
        variables["JOB_START_TIME"] = str(int(start))
        if record.get("time_limit"):
            variables["JOB_END_TIME"] = str(int(start) + int(record["time_limit"]))
    environment |= {f"SLURM_{name}": value for name, value in variables.items()}
    environment |= {"NODECTL_JOB_ID": str(job), "NODECTL_SOCKET": socket}
    environment |= of_launchers(environment, alone=False)
    return environment
