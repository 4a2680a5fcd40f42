"""What a node is told to do with its part of a step, as calls of that step's own socket; `hangup` is the agent's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodectl.cluster.leader.steps import Step

HANG_UP = {"method": "hangup", "parameters": {}}
END = {"method": "End", "parameters": {}}
KILL = {"method": "Signal", "parameters": {"signal": 9}}


def way_to_end(step: Step) -> Mapping[str, Any]:
    """Output that nobody takes, as of a launch that was refused, would keep a part from being over."""
    return END if step.client is not None and not step.dropped else HANG_UP
