"""The node: the table of the methods of org.nodectl, and the assembly of the daemon's parts.

One object per daemon, touched only from the event loop.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING

from nodectl import __version__
from nodectl.launch.cgroup.constraints import Constraints
from nodectl.launch.cgroup.delegation import Base
from nodectl.model.config import Config
from nodectl.model.node_device import NodeDevice
from nodectl.model.wire.dispatch import NODE, Call, Service
from nodectl.plugin_host.node_plugins import NodePlugins
from nodectl.service.daemon.admission.accounts import LookUpFailed, UnknownUser, Users, group_id
from nodectl.service.daemon.admission.binder import Binder
from nodectl.service.daemon.admission.confinement import ConfinementLevels
from nodectl.service.daemon.admission.growth import Growth
from nodectl.service.daemon.admission.job_cpus import JobCpus
from nodectl.service.daemon.admission.slurm_job import SlurmJobs, scope_of
from nodectl.service.daemon.admission.step_maker import StepMaker
from nodectl.service.daemon.admission.user_budget import UserBudget
from nodectl.service.daemon.controller import rows, this_machine
from nodectl.service.daemon.controller.controller import Controller, Parts
from nodectl.service.daemon.controller.job_names import name_of
from nodectl.service.daemon.controller.options import ONE_JOB
from nodectl.service.daemon.controller.restore import restore
from nodectl.service.daemon.controller.spool import Spool
from nodectl.service.daemon.controller.starts import Starts
from nodectl.service.daemon.controller.table import JobTable
from nodectl.service.daemon.history import reset_notes
from nodectl.service.daemon.history.job_store import JobStore
from nodectl.service.daemon.history.store import Store
from nodectl.service.daemon.jobs.background_tasks import TimeToEnd
from nodectl.service.daemon.jobs.foreign_use import ForeignUse
from nodectl.service.daemon.jobs.node_jobs import NodeJobs
from nodectl.service.daemon.jobs.registry import WHICH, Registry
from nodectl.service.daemon.methods import (
    about,
    accounting,
    allocate,
    control,
    enter,
    fence,
    launch,
    logins,
    metrics,
    nodes,
    read_trace,
    reservations,
    show,
    show_queue,
    signal_step,
    submit,
    update,
    view,
)
from nodectl.service.daemon.methods.job_calls import JobCalls
from nodectl.service.daemon.methods.start import StepStart
from nodectl.service.daemon.notices.idle_watch import IdleWatch
from nodectl.service.daemon.notices.notices import Notices
from nodectl.service.daemon.processes.companions import Companion
from nodectl.service.daemon.processes.forkserver_channel import ForkserverChannel
from nodectl.service.daemon.steps.oom_watch import OomWatch
from nodectl.spank.current_plugstack import CurrentPlugstack

if TYPE_CHECKING:
    from nodectl.model.wire.shape import Shape

CHANGING = (
    "Signal", "Suspend", "Resume", "Update", "Cancel", "Hold", "ReleaseJobs", "Requeue", "UpdateJob", "SuspendJob",
    "ResumeJob", "UpdateNode", "CreateReservation", "DeleteReservation", "Script",
    "JoinLogin", "Login",
)  # fmt: skip
"""Methods that change jobs and steps, or tell an environment. Those that start or enter one look at their caller
themselves.
"""


class Node:
    """The daemon's node, made of all parts.

    `lock` is the descriptor of the daemon's lock, which the forkserver shares; `forkserver` is the forkserver already
    executed.
    """

    def __init__(  # made once, of everything a node is
        self, config: Config, store: Store, plugins: NodePlugins, *, lock: int, base: Base, constraints: Constraints,
        forkserver: Companion | None = None,
    ) -> None:  # fmt: skip
        self.config = config
        self._plugins = plugins
        self._users = Users(config.user_cache_seconds)
        self.registry = registry = Registry(store, f"{config.runtime_dir}/steps")
        self._levels = levels = ConfinementLevels(config, registry.live.values, base.path)
        self._oom_watch = OomWatch(registry.live.values, needed="memory" not in base.controllers)
        self.forkserver = ForkserverChannel(
            config, lock, levels.programs, registry.forkserver_answered, self._earlier_plugins, forkserver
        )
        self.jobs = jobs = NodeJobs(config, base.mount, registry, store, plugins, self.forkserver)

        binder = Binder(config, registry.holders)
        budget = UserBudget(config, registry)
        plugstack = CurrentPlugstack(config)
        self._maker = maker = StepMaker(
            config, users=self._users, plugstack=plugstack, binder=binder, constraints=constraints, levels=levels
        )
        start = StepStart(
            config, base, registry, jobs, plugins,
            constraints=constraints, budget=budget, forkserver=self.forkserver,
        )  # fmt: skip
        self._about = about.About(config, plugstack)
        self._accounting = accounting.Accounting(base.mount, registry, store)
        self._show = show.Show(base.mount, registry, store, binder)
        self._read_trace = read_trace.ReadTrace(registry)
        self._signal_step = signal_step.SignalStep(registry, jobs.suspension)
        self._update = update.UpdateStep(base.mount, registry, constraints)
        self._view = view.View(registry, levels)
        self._enter = enter.Enter(registry, levels, jobs.containers)
        self._logins = logins.Logins(base, registry)
        self._selection = this_machine.selection_of(config, plugins.stacks["select"][0], binder, constraints.total)
        self.controller = self._make_controller(store, start, base, constraints)
        jobs.watcher = self.controller
        self.foreign = ForeignUse(config, base, scope_of(config), binder.node_devices)
        self.foreign.on_change = self.controller.devices_away
        keys = [device.key for device in binder.node_devices]
        self._fence = fence.Fence(config, registry.permissions, self.foreign, keys)
        self._launch = launch.Launch(
            config, base.path, store, maker=maker, budget=budget, numbers=jobs.further_steps,
            job_cpus=JobCpus(config, binder, jobs.further_steps), controller=self.controller, start=start,
            slurm_jobs=SlurmJobs(config, base.mount, has_cgroups=bool(base.path)),
            cgroup_removals=jobs.cgroup_removals,
        )  # fmt: skip
        hides = "jobs" in config.private_data
        calls = JobCalls(self.controller, maker, registry.permissions, config.partition_name, private=hides)
        self._submit = submit.Submit(config, calls, jobs.further_steps)
        self._allocate = allocate.Allocate(calls, jobs.further_steps, config.interactive_lease)
        self._queue = show_queue.ShowQueue(calls, registry)
        self._control = control.JobControl(calls)
        self._nodes = nodes.Nodes(calls)
        self._metrics = metrics.Metrics(self._nodes, registry, store, self.forkserver)
        self._reservations = reservations.ReservationMethods(calls)

    def _make_controller(self, store: Store, start: StepStart, base: Base, constraints: Constraints) -> Controller:
        config, jobs, registry = self.config, self.jobs, self.registry
        nodes_of = self._selection.nodes
        job_store = JobStore(store, config.runtime_dir, reset_notes.boot_id(), lambda job: rows.held(job, nodes_of))
        spool = Spool(config.state_dir)
        starts = Starts(self._maker, start.begin, registry, job_store, spool, base.path, jobs.cgroup_removals)
        table = JobTable(job_store, config.max_batch_bytes_per_user, config.kept_scripts_per_user)
        binder = self._maker.binder
        growth = Growth(base.mount, binder, constraints)
        notices = Notices(
            config, job_store, base, self._levels, durable=table.commits.durable, lives=table.lives,
            has_row=lambda job: not table.is_unwritten(job),
            device_rules=lambda: constraints.of_no_job(binder.node_devices),
        )  # fmt: skip
        table.on_end = notices.ended
        idle = IdleWatch(config, base, binder.node_devices)
        parts = Parts(registry, jobs.further_steps, jobs.suspension, starts, spool, growth, notices, idle)
        return Controller(config, table, parts)

    @property
    def devices(self) -> Sequence[NodeDevice]:
        """The devices of the node."""
        return self._maker.binder.node_devices

    async def restore_queue(self) -> None:
        """Restore the queue of an earlier daemon, after the sweep. Raises SelectionFailed."""
        self.foreign.keep_fence()  # a machine that has just booted has no wall
        await restore(self.controller, self._selection, reset_notes.boot_id())

    def service(self) -> Service:
        """Return the table of methods, with the shape of each call's parameters and the function."""
        methods: dict[str, tuple[Shape, Callable[[Call], object]]] = {
            "Hello": ({}, self._about.hello),
            "Config": ({}, self._about.show_config),
            "Accounting": (accounting.ACCOUNTING, self._accounting.accounting),
            "Reserve": (launch.RESERVE, self._launch.reserve),
            "Launch": (launch.LAUNCH, self._launch.launch),
            "Withdraw": ({}, self._launch.withdraw),
            "SlurmJob": ({}, self._launch.slurm_job),
            "List": (show.LIST, self._show.list_steps),
            "Usage": ({}, self._show.usage),
            "Show": (WHICH, self._show.show),
            "Explain": (WHICH, self._show.explain),
            "Wait": (show.WAIT, self._show.wait),
            "Trace": (read_trace.TRACE, self._read_trace.trace),
            "Signal": (signal_step.SIGNAL, self._signal_step.signal),
            "Suspend": (WHICH, self._signal_step.suspend),
            "Resume": (WHICH, self._signal_step.resume),
            "Update": (update.UPDATE, self._update.update),
            "View": (WHICH, self._view.view),
            "Enter": (enter.ENTER, self._enter.enter),
            "Bcast": (enter.BCAST, self._enter.bcast),
            "JoinLogin": (logins.JOIN_LOGIN, self._logins.join),
            "Login": (logins.LOGIN, self._logins.login),
            "Submit": (submit.SUBMIT, self._submit.submit),
            "TestOnly": (submit.TEST_ONLY, self._submit.test_only),
            "Allocate": (allocate.ALLOCATE, self._allocate.allocate),
            "Await": (allocate.AWAIT, self._allocate.wait),
            "Queue": (show_queue.QUEUE, self._queue.queue),
            "WeekHours": ({}, self._queue.week_hours),
            "ShowJob": (ONE_JOB, self._queue.show_job),
            "ExplainJob": (ONE_JOB, self._queue.explain_job),
            "Newest": ({}, self._queue.newest),
            "Script": (ONE_JOB, self._queue.script),
            "Cancel": (control.CANCEL, self._control.cancel),
            "Hold": (control.JOBS, self._control.hold),
            "ReleaseJobs": (control.JOBS, self._control.release),
            "Requeue": (control.REQUEUE, self._control.requeue),
            "UpdateJob": (control.UPDATE_JOB, self._control.update),
            "SuspendJob": (ONE_JOB, self._control.suspend),
            "ResumeJob": (ONE_JOB, self._control.resume),
            "Nodes": ({}, self._nodes.nodes),
            "Fence": ({}, self._fence.fence),
            "Metrics": ({}, self._metrics.metrics),
            "UpdateNode": (nodes.UPDATE_NODE, self._nodes.update),
            "CreateReservation": (reservations.CREATE, self._reservations.create),
            "DeleteReservation": (reservations.DELETE, self._reservations.delete),
            "Reservations": ({}, self._reservations.reservations),
        }

        def for_those_who_may(function: Callable[[Call], object]) -> Callable[[Call], object]:
            def change(call: Call) -> object:
                self._levels.check_change(call, self._name_of)
                return function(call)

            return change

        methods |= {name: (methods[name][0], for_those_who_may(methods[name][1])) for name in CHANGING}
        return Service(__version__, {f"{NODE}.{name}": row for name, row in methods.items()})

    async def has_account(self, uid: int) -> bool:
        """Return True if the uid has an account. All look-ups together keep a single thread busy."""
        return await self._users.exist(uid)

    def _name_of(self, job_id: int) -> str:
        job = self.controller.table.jobs.get(job_id)
        return "" if job is None else name_of(job)

    def _earlier_plugins(self) -> list[str]:
        """Return the container plugins which the forkserver loads beside the configured plugin."""
        return self.jobs.containers.earlier_plugins()

    async def begin_service(self) -> None:
        """Begin what no private node has: the group of admins, and root's watch over programs outside of all jobs."""
        if os.geteuid() == 0:
            self.foreign.begin()
        await self.load_admins()

    async def load_admins(self) -> None:
        """Look up admin_group: the members may see, signal and update every step. A missing group has no members."""
        try:
            self.registry.permissions.admin_gid = await group_id(self.config.admin_group)
        except (UnknownUser, LookUpFailed):
            self.registry.permissions.admin_gid = None

    def reload(self, config: Config) -> Coroutine[object, object, None]:
        """Use `config` for later containers, and forget cached accounts. Return a coroutine which looks up the admins.

        All but the look-up happens at once, so no step is admitted between.
        """
        self.config = self._about.config = self._maker.config = config
        self._users.forget()
        self._selection.reconfigure(self._selection.parameters)
        self.jobs.containers.reconfigure(config)
        return self.load_admins()

    async def settle(self, to_end: TimeToEnd, *, wait_for_steps: bool) -> None:
        """Before the daemon ends: write all known ends, and wait for cgroups under removal.

        A service leaves its steps running; a private node, whose client has gone, waits for them and their epilogs.
        """
        self.foreign.stop()
        if wait_for_steps:
            await self._launch.settle()  # while the select plugin can still give resources
        await self.controller.settle(to_end)
        if wait_for_steps and self.registry.live:
            await asyncio.wait([live.ended for live in self.registry.live.values()])
        await self.jobs.settle(to_end)
        await self._levels.settle()
        self.registry.batch.flush()
        await self.jobs.cgroup_removals.settle(to_end)

    def close(self, *, wait_for_forkserver: bool) -> None:
        """Stop starting and following steps. The next daemon records the ends from now on."""
        self.forkserver.close()
        self._oom_watch.end()
        self._plugins.end()
        self.registry.batch.flush()
        for live in self.registry.live.values():
            live.close()
        if wait_for_forkserver:  # a service's may still have steps to begin
            self.forkserver.collect()
