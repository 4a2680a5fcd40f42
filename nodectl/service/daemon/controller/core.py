"""The shared state of the controller's parts: the table of jobs, the scheduler, the leases and the tasks.

The daemon has one such object, which `controller.py` makes, and uses it only from its event loop.
"""

import asyncio
import time

from nodectl.model.config import Config
from nodectl.scheduler.scheduler import Scheduler
from nodectl.selection.host import Selection
from nodectl.service.daemon.controller.leases import Leases
from nodectl.service.daemon.controller.parts import Parts
from nodectl.service.daemon.controller.rounds import Rounds
from nodectl.service.daemon.controller.table import JobTable
from nodectl.service.daemon.jobs.background_tasks import BackgroundTasks

_USAGE_SECONDS = 5.0


class Core:
    """The shared state. `scheduler`, `selection` and `rounds` exist once the queue has begun, before any call comes."""

    scheduler: Scheduler
    selection: Selection
    rounds: Rounds

    def __init__(self, config: Config, table: JobTable, parts: Parts, leases: Leases) -> None:
        self.config = config
        self.table = table
        self.parts = parts
        self.leases = leases
        self.tasks = BackgroundTasks()
        self._usage_due = False

    def usage_changed(self) -> None:
        """Have the users' usage written within a few seconds."""
        if not self._usage_due:
            self._usage_due = True
            asyncio.get_running_loop().call_later(_USAGE_SECONDS, self._write_usage)

    def _write_usage(self) -> None:
        self._usage_due = False
        self.table.store.put_usage(self.scheduler.usage(time.time()))
        self.table.commits.soon()
