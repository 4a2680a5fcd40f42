"""The daemon's work around the steps of this node's jobs, in a single object; and the work after the end of a step.

The daemon uses the object only from its event loop.
"""

import contextlib
from collections.abc import Mapping

from nodectl.model.config import Config
from nodectl.model.states import CANCELLED, NODE_FAIL
from nodectl.model.step_number import BATCH, EXTERN
from nodectl.model.wire.dispatch import Refused
from nodectl.plugin_host.node_plugins import NodePlugins
from nodectl.service.daemon.history.store import Store
from nodectl.service.daemon.jobs.background_tasks import BackgroundTasks, TimeToEnd
from nodectl.service.daemon.jobs.cgroup_removals import CgroupRemovals
from nodectl.service.daemon.jobs.containers import Containers
from nodectl.service.daemon.jobs.further_steps import FurtherSteps
from nodectl.service.daemon.jobs.job_end import JobEnds
from nodectl.service.daemon.jobs.prolog_epilog import PrologEpilog
from nodectl.service.daemon.jobs.registry import Registry
from nodectl.service.daemon.jobs.resources import Resources
from nodectl.service.daemon.jobs.suspension import Suspensions
from nodectl.service.daemon.jobs.watcher import Watcher
from nodectl.service.daemon.processes.forkserver_channel import ForkserverChannel
from nodectl.service.daemon.steps.live import LiveStep


class NodeJobs:
    """The jobs of the node. `mount` is the cgroup2 mount. `watcher` receives the events of jobs."""

    def __init__(  # made once, of all parts that jobs need
        self, config: Config, mount: str, registry: Registry, store: Store, plugins: NodePlugins,
        forkserver: ForkserverChannel,
    ) -> None:  # fmt: skip
        self._registry = registry
        self._plugins = plugins
        self.watcher = Watcher()
        self._tasks = BackgroundTasks()
        self.cgroup_removals = CgroupRemovals(mount)
        self.containers = Containers(config, plugins, store, forkserver, registry.unfinished)
        self.resources = Resources(config, plugins, registry.live)
        self.prolog_epilog = PrologEpilog(config, mount, self._tasks)
        self._ends = JobEnds(
            (self.prolog_epilog, self.containers, self.resources),
            registry.ending,
            self._tasks,
            self.cgroup_removals.gone,
            self._job_ending,
            self._job_over,
        )
        self.further_steps = FurtherSteps(registry, store, self._ends.release)
        self.suspension = Suspensions(mount, self.further_steps, self.resources, self._tasks, lambda: self.watcher)

    def _job_ending(self, job: int) -> None:
        self.watcher.job_ending(job)

    def _job_over(self, live: LiveStep, record: Mapping[str, object]) -> None:
        self._registry.batch.add(live, self._registry.energy.with_energy(live.step.job_id, record))
        self.watcher.job_over(live.step.job_id, record)

    def step_ending(self, live: LiveStep) -> None:
        """Report a step which the stepd is about to kill, at a time limit, on request, or for a reason of the stepd's
        own.

        The end of the job begins with the step of a script or allocation, or with the job's only step.
        """
        job = live.step.job_id
        self.watcher.step_ending(*live.key)
        if live.step.step_id in (BATCH, EXTERN) or (live.step.is_first and not self.further_steps.any_running(job)):
            self.watcher.job_ending(job)

    def step_ended(self, live: LiveStep) -> None:
        """Finish a step after the stepd has gone, with the step's record, or a record of the stepd's death."""
        record = live.last_record or live.files.record()  # which say the same
        if record is None and not live.failure and live.files.alive():
            # It may only have dropped the connection, because the daemon was too slow.
            live.reach(lambda: live.fail(self._death(live), NODE_FAIL))
            return
        orderly = record is not None
        if record is None:
            live.log_plugin_output()
            record = live.death_record(live.failure or self._death(live))
        live.close()
        self._registry.live.pop(live.key, None)
        self.watcher.step_over(*live.key)
        if live.step.is_first:
            self._first_ended(live, record, orderly=orderly)
        else:
            self.cgroup_removals.begin(live.step.cgroup)
            self._registry.batch.add(live, record)
        self.further_steps.remove(live.step)
        live.ended.set_result(record)

    def _first_ended(self, live: LiveStep, record: Mapping[str, object], *, orderly: bool) -> None:
        """End the job, as soon as all further steps have ended and the job's processes are gone.

        A step runner that ended in an orderly way has left no processes.
        """
        waits = self.further_steps.any_running(live.step.job_id)
        if waits or self._ends.is_needed(live) or not orderly:
            self._ends.begin(live, record, waits=waits)
            if waits and live.step.step_id in (BATCH, EXTERN):
                self._tasks.begin(self._end_job(live.step.job_id, f"step {live.step} of its job has ended"))
            return
        self.watcher.job_ending(live.step.job_id)
        self.cgroup_removals.begin(live.step.cgroup)
        self._job_over(live, self._ends.released(live, record))

    async def _end_job(self, job: int, reason: str) -> None:
        """End all steps of a job, as a batch system does: SIGTERM, and SIGKILL kill_wait seconds later.

        The steps are CANCELLED for this reason, except steps that end by themselves in this moment.
        """
        for live in self.further_steps.running(job):
            if live.in_prolog:
                live.cancelled = reason
                continue
            with contextlib.suppress(Refused):  # it has just ended
                await live.order("End", {"state": CANCELLED, "reason": reason})

    def _death(self, live: LiveStep) -> str:
        words = f": {live.last_words}" if live.last_words else ""
        return f"the step runner died{live.where_it_died(self._plugins)}{words}"

    async def settle(self, to_end: TimeToEnd) -> None:
        """Wait for running prologs and epilogs, before the daemon ends.

        Those that take too long are killed; the next daemon begins the epilogs of their jobs anew.
        """
        await self._tasks.settle(to_end)
        await self.containers.settle()
