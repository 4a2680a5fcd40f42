"""The link by which a job's network namespace is connected: eth0 there, one end of a veth pair or a macvlan.

pyroute2 makes and removes it. To import that takes longer than a step, so it is done in a process that is executed for
one link (`nodectl.container.network_linker`); here is who executes it: a stepd when a container is made, an errand
when it is removed. BASE/JOB/link says which link it is from before that is made, so that whoever removes a container
finds it.
"""

import sys

from nodectl.confine import scripts
from nodectl.container.job_dir import Place
from nodectl.wire import lean_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "link"
_SECONDS = 30
_CODE = (
    "import sys; sys.path[:0] = {path!r}; from nodectl.container import network_linker; network_linker.main({order!r})"
)
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


def connect(base: str, job_id: int, net: "Mapping[str, object]") -> str:
    """Connects a job as `net` says: kind, parent, addresses, gateway. Returns why it could not, "" for success."""
    return _execute({"base": base, "jobs": [job_id], **net})


def disconnect(places: "list[Place]") -> str:
    """Removes the links of the containers that have one. Returns what is wrong, "" for nothing; gone is success."""
    places = [place for place in places if place.has(FILE)]
    if not places:
        return ""
    return _execute({"base": places[0].base, "jobs": [int(place.name) for place in places]})


def _execute(order: "Mapping[str, object]") -> str:
    code = _CODE.format(path=[p for p in sys.path if p], order=lean_json.dumps(order))
    status, said = scripts.run(sys.executable, _ENVIRONMENT, words=["-I", "-S", "-c", code], timeout=_SECONDS)
    words = " ".join(said.decode(errors="replace").split())
    return f"network: {words[-300:] or f'exit status {status}'}" if status else ""
