"""Fence: the corner of login sessions, and the programs outside of all jobs that use devices. For any user."""

from collections.abc import Mapping

from nodectl.launch.cgroup import corner
from nodectl.model.config import Config
from nodectl.model.wire.dispatch import Call
from nodectl.service.daemon.jobs.foreign_use import ForeignUse


class Fence:
    """The Fence method of the node."""

    def __init__(self, config: Config, foreign: ForeignUse, devices: list[str]) -> None:
        self._config = config
        self._foreign = foreign
        self._devices = devices

    def fence(self, call: Call) -> Mapping[str, object]:
        """Return the mark of the fence, None where it is off, and the programs."""
        if self._foreign.trouble:
            self._foreign.keep_fence()  # the command may have mended it
        trouble = self._foreign.trouble
        try:
            known = corner.mark(self._config)
        except (OSError, ValueError) as error:
            known, trouble = None, str(error)
        return {
            "corner": None if known is None else corner.fields_of(known),
            "trouble": trouble,
            "devices": self._devices,
            "outside": list(self._config.login_outside),
            "foreign": [dict(use) for use in self._foreign.uses],
            "looked": self._foreign.looked or None,
            "foreign_gpu_use": self._config.foreign_gpu_use,
        }
