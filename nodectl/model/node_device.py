"""A device of the node, for the code that counts devices and confines a step to its own.

`machine/declared_devices.py` makes such devices. `typing` is imported here: no process of a step imports this module.
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

    @property
    def shards(self) -> int:
        """The number of shards in which the device can be given, 0 for none."""

    @property
    def memory(self) -> int:
        """The device's memory for jobs that share it, in MiB, 0 where it is unknown."""

    @property
    def one_user(self) -> bool:
        """True where only jobs of the same user share the device."""
