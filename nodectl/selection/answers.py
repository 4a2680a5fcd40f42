"""Answers of the host of a select plugin: a choice, a refusal, or a failure of the plugin.

Values only, in the daemon and in planning commands.
"""

from __future__ import annotations

from bitarray import bitarray

from nodectl.model.value_class import dataclass, field
from nodectl.selection.records import JobRecord, JobResources

NEVER, BUSY, PLUGIN = "never", "busy", "plugin"
NOT_AVAILABLE = "Requested node configuration is not available"
NODES_BUSY = "Requested nodes are busy"


class SelectionFailed(Exception):
    """A failure of the plugin after which the daemon cannot go on; str() is a single line."""


@dataclass(slots=True)
class Choice:
    """The resources and the start for a job. `preempted`: the jobs to be preempted first."""

    nodes: bitarray
    resources: JobResources
    start_time: float
    preempted: list[JobRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason for which a job gets nothing.

    `kind`: NEVER (it never can), BUSY (it cannot now) or PLUGIN (the plugin's answer is not used). `ending`: nodes on
    which the job was to get resources still held by ending jobs, None where that is not the reason. `subject`: a name
    in `nodectl/client/advice.py`, or "".
    """

    kind: str
    reason: str
    ending: bitarray | None = None
    subject: str = ""


@dataclass(slots=True)
class Reserved:
    """The nodes of a reservation, and the cores; whole nodes without `cores`."""

    nodes: bitarray
    cores: bitarray | None
