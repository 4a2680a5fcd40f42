"""The fields of a step's record known at the step's start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodectl.cluster.leader.wish import Placed
from nodectl.model.step import told_command


def facts_of(
    key: tuple[int, int], owner: Mapping[str, Any], request: Mapping[str, Any], placed: Placed, nodes: str, now: float
) -> dict[str, Any]:
    """Return the record's fields for a step placed on `nodes`. `key`: job and number of the step."""
    argv = list(request["argv"])
    return {
        "job": key[0],
        "step": key[1],
        "restart": 0,
        "name": request.get("name") or argv[0].rpartition("/")[2][:1024],
        **owner,
        "node": nodes,
        "command": told_command(argv),
        "cwd": request["cwd"],
        "ntasks": len(placed.layout.tasks),
        "cpus": "",
        "cpu_count": sum(share.cpus.bit_count() for share in placed.layout.nodes),
        "secure": request.get("secure", "none"),
        "memory": request.get("mem", 0),
        "limits": {},
        "submitted": now,
        "time_limit": request.get("time_limit", 0),
    }
