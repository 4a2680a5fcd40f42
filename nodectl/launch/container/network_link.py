"""The link of a job's network namespace to the host's network: eth0 inside, one end of a veth pair or a macvlan.

pyroute2 makes and removes the link. Its import takes longer than a step, so that a program of its own does it
(`network_linker.py`). This module executes that program: in a stepd when a container is made, in the
process of a container request when it is removed. BASE/JOB/link names the link before it is made, so that every removal
finds it.
"""

import sys

from nodectl.launch.confine import scripts
from nodectl.launch.container.job_dir import JobDir
from nodectl.model.wire import lean_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "link"
_SECONDS = 30
_CODE = (
    "import sys; sys.path[:0] = {path!r}; "
    "from nodectl.launch.container import network_linker; network_linker.main({order!r})"
)
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


def connect(base: str, job_id: int, net: "Mapping[str, object]") -> str:
    """Connect a job as given by `net`: kind, parent, addresses, gateway. Returns an error, "" for success."""
    return _execute({"base": base, "jobs": [job_id], **net})


def disconnect(job_dirs: "list[JobDir]") -> str:
    """Remove the links of the containers. Returns an error, "" for success. A missing link is success."""
    connected = [job_dir for job_dir in job_dirs if job_dir.has(FILE)]
    if not connected:
        return ""
    return _execute({"base": connected[0].base, "jobs": [int(job_dir.name) for job_dir in connected]})


def _execute(order: "Mapping[str, object]") -> str:
    code = _CODE.format(path=[p for p in sys.path if p], order=lean_json.dumps(order))
    status, said = scripts.run(sys.executable, _ENVIRONMENT, words=["-I", "-S", "-c", code], timeout=_SECONDS)
    words = " ".join(said.decode(errors="replace").split())
    return f"network: {words[-300:] or f'exit status {status}'}" if status else ""
