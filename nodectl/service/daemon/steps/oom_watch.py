"""Watches the kernel's log for out-of-memory kills and finds the step of each killed process.

Where cgroup2 has the memory controller, the stepd reads its counters (`stepd/end_reasons.py`). Elsewhere only the log
names the killed process, and the kernel tells its cgroup only until the process has gone; so the daemon looks at once.
A process that has gone before that, or was killed while no daemon ran, is known only if it was a task.
"""

import asyncio
import os
from collections.abc import Callable, Iterable

from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup.out_of_memory import LOG, LONGEST_LINE, victim_of
from nodectl.service.daemon.steps.live import LiveStep

_PATIENCE = 1.0  # seconds for a stepd


class OomWatch:
    """The out-of-memory watch of a node, in the event loop.

    `running` returns the node's steps. The watch does nothing unless `needed`, or if the log cannot be read.
    """

    def __init__(self, running: Callable[[], Iterable[LiveStep]], *, needed: bool) -> None:
        self._running = running
        self._telling: set[asyncio.Task[object]] = set()
        self._fd = -1
        if not needed:
            return
        try:
            self._fd = os.open(LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        os.lseek(self._fd, 0, os.SEEK_END)
        asyncio.get_running_loop().add_reader(self._fd, self._read)

    def end(self) -> None:
        """Close the log."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> None:
        while True:
            try:
                record = os.read(self._fd, LONGEST_LINE)
            except BrokenPipeError:
                continue  # overwritten before it was read
            except OSError:
                return
            self._look(record.partition(b";")[2].decode("utf-8", "replace").partition("\n")[0])

    def _look(self, line: str) -> None:
        one = victim_of(line)
        place = "" if one is None else cgroup_of(one.pid)
        if one is None or not place:
            return
        for live in self._running():
            user, _, task = place.rpartition("/task_")
            if user == f"{live.step.cgroup}/user" and task.isdecimal():
                told = live.ask("Victim", {"task": int(task), "pid": one.pid, "name": one.name[:64]}, _PATIENCE)
                waiting: asyncio.Task[object] = asyncio.get_running_loop().create_task(told)
                self._telling.add(waiting)
                waiting.add_done_callback(self._telling.discard)
