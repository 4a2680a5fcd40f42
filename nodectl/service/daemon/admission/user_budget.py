"""The limits of a user on the node: steps, tasks, and bytes of step files, including traces.

These files are in memory as a rule, and the daemon and each stepd hold their content too; so they count until the step
is in the history. Root has no limits. Used only from the event loop.
"""

from nodectl.model.config import Config
from nodectl.model.wire.dispatch import Refused
from nodectl.service.daemon.jobs.registry import Registry
from nodectl.service.daemon.steps.live import LiveStep


class UserBudget:
    """The usage and limits of the node's users."""

    def __init__(self, config: Config, registry: Registry) -> None:
        self._config = config
        self._registry = registry

    def check(self, uid: int, ntasks: int) -> None:
        """Check, before any work for a step, whether the user may have another step. Raises Refused."""
        if uid == 0:
            return
        running = [live.step.ntasks for live in self._registry.unfinished() if live.step.uid == uid]
        self._hold("max_steps_per_user", len(running) + 1, f"{len(running)} steps of yours are running")
        if ntasks <= self._config.max_tasks_per_node:  # else that limit is the reason, and is told later
            self._hold("max_tasks_per_user", sum(running) + ntasks, f"{sum(running)} tasks of yours are running")

    def take(self, live: LiveStep, size: int) -> None:
        """Count the step, just before registration, with `size` bytes of files. Raises Refused."""
        uid = live.step.uid
        self.check(uid, live.step.ntasks)  # once more: other steps may have been admitted meanwhile
        if uid != 0:
            kept = sum(other.size for other in self._registry.with_files() if other.step.uid == uid)
            what = f"the files of your steps have {kept} bytes, and this one's would have {size}"
            self._hold("max_step_bytes_per_user", kept + size, what)
        live.size = size

    def _hold(self, key: str, number: int, what: str) -> None:
        most = getattr(self._config, key)
        if number > most:
            raise Refused("LaunchRefused", f"{what}: {key} = {most}", exit_status=1)
