"""A device of the node, for the code that confines a step to the step's devices.

`binding/devices.py` makes such devices. `typing` is imported here: only the daemon imports this module at run time.
"""

from typing import Protocol


class NodeDevice(Protocol):
    """A device of this node for jobs to hold."""

    @property
    def key(self) -> str:
        """The device's name in a step: gpu:0."""

    @property
    def file(self) -> str:
        """The path of the device's file, "" for a device without a file."""

    @property
    def also(self) -> tuple[str, ...]:
        """The paths of further files of the device."""
