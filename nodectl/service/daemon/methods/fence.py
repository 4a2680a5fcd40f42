"""Fence: the corner of login sessions, and the programs outside of all jobs that use devices.

For any user. Where private_data hides jobs, users are told only of their own programs.
"""

from collections.abc import Mapping

from nodectl.launch.cgroup import corner
from nodectl.model.config import Config
from nodectl.model.wire.dispatch import Call
from nodectl.service.daemon.connections.permissions import Permissions
from nodectl.service.daemon.jobs.foreign_use import ForeignUse


class Fence:
    """The Fence method of the node."""

    def __init__(self, config: Config, permissions: Permissions, foreign: ForeignUse, devices: list[str]) -> None:
        self._config = config
        self._permissions = permissions
        self._foreign = foreign
        self._devices = devices

    def fence(self, call: Call) -> Mapping[str, object]:
        """Return the mark of the fence, None where it is off, and the programs that the caller may know of."""
        if self._foreign.trouble:
            self._foreign.keep_fence()  # the command may have mended it
        trouble = self._foreign.trouble
        try:
            known = corner.mark(self._config)
        except (OSError, ValueError) as error:
            known, trouble = None, str(error)
        private = "jobs" in self._config.private_data
        uses = self._foreign.uses
        return {
            "corner": None if known is None else corner.fields_of(known),
            "trouble": trouble,
            "devices": self._devices,
            "outside": list(self._config.login_outside),
            "foreign": [dict(use) for use in uses if not private or self._permissions.may_see(call.peer, use["uid"])],
            "looked": self._foreign.looked or None,
            "foreign_gpu_use": self._config.foreign_gpu_use,
        }
