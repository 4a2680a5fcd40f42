"""Lanes: the slots of a bulk step in which C runs one command after the other (`nodectl/kernel/c/lanes.c`).

Python feeds commands in batches and accounts for their ends. Only where nothing is called for a single command: every
other command goes the way of `Bulk.begin`. Runs in the stepd, as root.
"""

import _signal
import os

from nodectl.bulk.runner.task import TRACED, BulkTask
from nodectl.kernel import _kernel
from nodectl.launch.stepd.bulk_commands import CLIENT
from nodectl.model import launch_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.bulk.runner.task import Starter
    from nodectl.bulk.runner.work import Bulk
    from nodectl.kernel.operations import Operation
    from nodectl.launch.stepd.bulk_commands import BulkCommand
    from nodectl.launch.stepd.reaper import Reaper
    from nodectl.launch.stepd.run import Run

_PAUSE = 0.01  # seconds from the first begin or end in C until the client learns of it
_FOREVER = 1e6  # seconds
_MOST_WATCHED = 63  # descriptors that C watches
_OF_LANE, _OF_OTHERS = 2, 128  # descriptors of each lane, and of all else that the stepd has open


class Lanes:
    """The lanes of a step's slots, each made when first needed.

    `is_called`: something came for the reaper's loop while commands ran. Between two batches SIGCHLD stays blocked: an
    end is C's to collect.
    """

    __slots__ = ("_bulk", "_common", "_holds", "_made_for", "_reaper", "_run", "_starter", "is_called")

    def __init__(self, bulk: "Bulk", starter: "Starter", run: "Run", reaper: "Reaper") -> None:
        self._bulk = bulk
        self._starter = starter
        self._run = run
        self._reaper = reaper
        # What lanes were made for: the stepd's descriptors, which tasks close, whether commands take the client's, and
        # whether each has a cgroup of its own.
        self._made_for: tuple[list[int], bool, bool] = [], False, False
        has_room = _OF_LANE * len(run.tasks) + _OF_OTHERS <= os.sysconf("SC_OPEN_MAX")
        self._common = has_room and _calls_nothing(run)
        self._holds = False
        self.is_called = False

    def serve(self) -> bool:
        """Run waiting commands until Python has something to do. Returns False where a command needs Python."""
        if self._serve():
            return True
        self.stop()
        return False

    def stop(self) -> None:
        """Leave ends to the reaper."""
        if self._holds:
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGCHLD,))
            self._holds = False

    def _serve(self) -> bool:
        bulk, run = self._bulk, self._run
        if not (self._common and bulk.tally.begun >= TRACED and bulk.may_go_on()):
            return False
        if self._starter.forks or not (run.step.forked_into_cgroup or run.group is None):
            return False
        if run.links.has_unsent():  # C watches no descriptor for room
            return False
        run.recorder.fd = -1  # the trace of a million commands is no larger
        commands, watched = self._prepared(), self._reaper.watched()
        lanes = self._lanes() if commands and len(watched) <= _MOST_WATCHED else None
        if not lanes:
            return False
        patience = bulk.patience()
        due = [one.timeout for one in self._first(len(commands)) if one.timeout is not None]
        due.append(_FOREVER if patience is None else patience)
        if not self._holds:
            _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGCHLD,))
            self._holds = True
        run.waits_for(launch_order.EXEC)
        rows, error, self.is_called = _kernel.run_lanes(
            [(lane, pid) for _, lane, pid in lanes], commands, watched,
            min(due), _PAUSE, bulk.window.most // 4,
        )  # fmt: skip
        for row in rows:
            slot, lane, _ = lanes[row[0]]
            if len(row) == 3:
                self._began(slot, lane, row[1], row[2])
            else:
                self._ended(slot, *row[1:])
        return not error

    def _first(self, number: int) -> "list[BulkCommand]":
        waiting = iter(self._bulk.window.waiting.values())
        return [command for command, _ in zip(waiting, range(number), strict=False)]

    def _prepared(self) -> "list[list[Operation]]":
        """Return the operations of the commands waiting longest, as far as lanes can run these."""
        found: list[list[Operation]] = []
        fds, keeps_cgroups = self._run.descriptors(), self._bulk.keeps_cgroups
        for command in self._bulk.window.waiting.values():
            takes = CLIENT in (command.stdin, command.stdout, command.stderr)
            if not found and self._made_for != (fds, takes, keeps_cgroups):
                self._made_for = fds, takes, keeps_cgroups
                self._bulk.lanes.clear()
            if command.slot_mark or takes != self._made_for[1]:
                break
            if command.operations is None:
                try:
                    command.operations = self._starter.operations(command)
                except ValueError:
                    break
            found.append(command.operations)
        return found

    def _lanes(self) -> "list[tuple[int, object, int]] | None":
        """Return the slots that have lanes, their lanes, and the pids of running commands, 0 for none; None without
        lanes.

        A command whose time is over ends outside: its cgroup, which may have been killed, serves no other command.
        """
        bulk = self._bulk
        slots = [(slot, 0) for slot in reversed(bulk.free)]
        slots += [(slot, task.pid) for slot, task in bulk.running.items() if not task.kills]
        for slot, _ in slots:
            if slot in bulk.lanes:
                continue
            lane = self._starter.lane(bulk.sums[slot], self._first(1)[0], keeps_cgroup=bulk.keeps_cgroups)
            if lane is None:
                self._common = False
                bulk.lanes.clear()
                return None
            bulk.lanes[slot] = lane
        return [(slot, bulk.lanes[slot], pid) for slot, pid in slots]

    def _began(self, slot: int, lane: object, pid: int, started: float) -> None:
        bulk, run = self._bulk, self._run
        command = bulk.window.next()
        command.operations = None
        bulk.free.remove(slot)
        task = BulkTask(bulk.sums[slot], command, self._starter.group(slot))
        task.argv, task.pid, task.lane = command.argv, pid, lane
        task.started = run.clock.at(started)
        self._reaper.expect(task)
        bulk.began(task)

    def _ended(
        self, slot: int, status: int, ended: float, user: float, system: float, resident: int, read: int, written: int,
        peak: int, is_plain: bool,
    ) -> None:  # fmt: skip
        task = self._bulk.running[slot]
        task.status = status
        task.ended = self._run.clock.at(ended)
        task.usage = user, system, resident
        task.transferred = read, written
        task.peak = peak if peak >= 0 else None
        if not is_plain:
            self._bulk.lanes.pop(slot, None)  # its cgroup may go
        self._reaper.collected(task, is_plain=is_plain)


def _calls_nothing(run: "Run") -> bool:
    """Return True if no plugin and no script has to be called for a command, beside plans.

    nodectl's own trackers have a task from its birth on.
    """
    node = run.node
    return (
        not run.may_be_changed
        and not run.step.preload
        and not run.step.task_epilogs
        and not node.has(launch_order.TASK_POST_TERM)
        and not {launch_order.CONTAINER_ADD_PID.call, launch_order.CONTAINER_ADD_PID.plan} & node.container.hooks.keys()
    )
