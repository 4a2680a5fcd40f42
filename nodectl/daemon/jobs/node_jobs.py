"""What the daemon does around the steps of this node's jobs, put together; and what follows the end of a step.

One object per daemon, touched only from the event loop.
"""

from nodectl.config import Config
from nodectl.daemon.history.store import Store
from nodectl.daemon.jobs.background_tasks import BackgroundTasks
from nodectl.daemon.jobs.containers import Containers
from nodectl.daemon.jobs.further_steps import FurtherSteps
from nodectl.daemon.jobs.job_end import JobEnds
from nodectl.daemon.jobs.prolog_epilog import PrologEpilog
from nodectl.daemon.jobs.registry import Registry
from nodectl.daemon.jobs.resources import Resources
from nodectl.daemon.jobs.step_cgroups import CgroupRemovals, remove_step_cgroup
from nodectl.daemon.processes.forkserver_channel import ForkserverChannel
from nodectl.daemon.steps.live import LiveStep
from nodectl.plugin_host.node_plugins import NodePlugins

_STOP_SECONDS = 10


class NodeJobs:
    """The jobs of one node. `mount` is the cgroup2 mount."""

    def __init__(  # made once, of everything that has to do with jobs
        self, config: Config, mount: str, registry: Registry, store: Store, plugins: NodePlugins,
        forkserver: ForkserverChannel,
    ) -> None:  # fmt: skip
        self._registry = registry
        self._plugins = plugins
        self._tasks = BackgroundTasks()
        self.cgroup_removals = CgroupRemovals(mount)
        self.containers = Containers(config, plugins, store, forkserver, registry.unfinished)
        self.resources = Resources(config, plugins, registry.live)
        self.prolog_epilog = PrologEpilog(config, mount, self._tasks)
        self.further_steps = FurtherSteps(registry, store, self._job_over)
        self._ends = JobEnds(
            (self.prolog_epilog, self.containers, self.resources),
            registry.ending,
            self._tasks,
            lambda path: remove_step_cgroup(mount, path),
            registry.batch.add,
        )

    def _job_over(self, job: int) -> None:
        self._ends.release(job)

    def step_ended(self, live: LiveStep) -> None:
        """A stepd has gone. The step's record counts; where it left none, its death does."""
        record = live.files.record() or live.last_record
        if record is None and not live.failure and live.files.alive():
            # It may only have dropped the connection, because the daemon was too slow.
            live.reach(lambda: live.fail(self._death(live), "NODE_FAIL"))
            return
        if record is None:
            record = live.death_record(live.failure or self._death(live))
        live.close()
        self._registry.live.pop(live.key, None)
        waits = not live.step.step_id and self.further_steps.any_running(live.step.job_id)
        if waits or self._ends.is_needed(live):
            self._ends.begin(live, record, waits=waits)
        else:
            self.cgroup_removals.begin(live.step.cgroup)
            self._registry.batch.add(live, record if live.step.step_id else self._ends.released(live, record))
        self.further_steps.remove(live.step)
        live.ended.set_result(record)

    def _death(self, live: LiveStep) -> str:
        return f"the step runner died{live.where_it_died(self._plugins)}"

    async def settle(self, *, patiently: bool) -> None:
        """Before the daemon ends: waits for the prologs and epilogs under way. Those that take too long are killed,
        unless it waits `patiently`; the next daemon begins those jobs' epilogs anew.
        """
        await self._tasks.settle(None if patiently else _STOP_SECONDS)
        await self.containers.settle()
