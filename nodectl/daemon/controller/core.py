"""What the parts of the controller share: the tables, the scheduler, and who is told of changes.

One object per daemon, touched only from the event loop: `controller.py` makes it.
"""

import asyncio
import time

from nodectl.config import Config
from nodectl.daemon.controller.leases import Leases
from nodectl.daemon.controller.parts import Parts
from nodectl.daemon.controller.rounds import Rounds
from nodectl.daemon.controller.table import JobTable
from nodectl.daemon.jobs.background_tasks import BackgroundTasks
from nodectl.scheduler.scheduler import Scheduler
from nodectl.selection.host import Selection

_USAGE_SECONDS = 5.0


class Core:
    """`scheduler`, `selection` and `rounds` are there once the queue has begun, which comes before anybody calls."""

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
        """What users have used is written from time to time."""
        if not self._usage_due:
            self._usage_due = True
            asyncio.get_running_loop().call_later(_USAGE_SECONDS, self._write_usage)

    def _write_usage(self) -> None:
        self._usage_due = False
        self.table.store.put_usage(self.scheduler.usage(time.time()))
        self.table.commits.soon()
