"""What the host of a select plugin answers: a choice, a refusal, or that the plugin cannot be used.

Values only, in the daemon and in commands that plan.
"""

from __future__ import annotations

from bitarray import bitarray

from nodectl.model.value_class import dataclass, field
from nodectl.selection.records import JobRecord, JobResources

NEVER, BUSY, PLUGIN = "never", "busy", "plugin"
NOT_AVAILABLE = "Requested node configuration is not available"
NODES_BUSY = "Requested nodes are busy"


class SelectionFailed(Exception):
    """The plugin failed where the daemon cannot go on without it; str() is one line."""


@dataclass(slots=True)
class Choice:
    """What a job would get, and when. `preempted`: the jobs that must go first."""

    nodes: bitarray
    resources: JobResources
    start_time: float
    preempted: list[JobRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job gets nothing. `kind`: it never can, it cannot now, or what the plugin answered is not used. `ending`:
    nodes on which it was to get what jobs that end still hold, None where that is not why. `subject`: one of
    `nodectl/client/advice.py`, or "".
    """

    kind: str
    reason: str
    ending: bitarray | None = None
    subject: str = ""


@dataclass(slots=True)
class Reserved:
    """What a reservation would hold; without `cores` whole nodes."""

    nodes: bitarray
    cores: bitarray | None
