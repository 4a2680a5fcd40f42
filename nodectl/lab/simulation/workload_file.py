"""Reader of a workload's file: the Standard Workload Format or JSON. In commands, as the command's user."""

from __future__ import annotations

from nodectl.lab.simulation import json_workload, swf
from nodectl.lab.simulation.workload import BadWorkload, Workload

_LARGEST = 512 << 20


def read(path: str) -> Workload:
    """Read a workload: JSON if the name ends with .json or the first character is a bracket, otherwise SWF.

    Raises BadWorkload, OSError.
    """
    with open(path, "rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise BadWorkload(f"{path}: larger than {_LARGEST >> 20} MiB")
    is_json = path.endswith(".json") or data.lstrip()[:1] in (b"{", b"[")
    return json_workload.parse(path, data) if is_json else swf.parse(path, data)
