"""A device of the node, as those see it who confine a step to its own.

`binding/devices.py` makes such devices. `typing` is imported here: only the daemon imports this module at run time.
"""

from typing import Protocol


class NodeDevice(Protocol):
    """A device of this node that a job can hold."""

    @property
    def key(self) -> str:
        """Its name in a step: gpu:0."""

    @property
    def file(self) -> str:
        """The path of its file, "" where it has none."""

    @property
    def also(self) -> tuple[str, ...]:
        """The paths of other files by which it can be used."""
