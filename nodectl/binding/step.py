"""One step, laid out on what its job holds."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.binding.allocation import Allocation
from nodectl.binding.layout import Layout
from nodectl.binding.refused import Refused
from nodectl.binding.request import Request, Settings
from nodectl.topology import Topology


def place(machines: Sequence[Topology], allocation: Allocation, request: Request, settings: Settings) -> Layout:
    """Where the tasks of `request` go within `allocation`. Raises Refused."""
    raise Refused(f"{len(machines)} {allocation} {request} {settings}: not laid out")
