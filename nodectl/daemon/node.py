"""The node: what it knows, and every method of org.nodectl.

One object per daemon, touched only from the event loop. It owns the live steps, the history, the forkserver's channel
and the batches in which ended steps are written down.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING

from nodectl import __version__
from nodectl.binding.refused import Refused as NoLayout
from nodectl.cgroup.constraints import Constraints
from nodectl.cgroup.delegation import Base
from nodectl.config import Config
from nodectl.daemon.admission import launch_request
from nodectl.daemon.admission.accounts import UnknownUser, User, Users, group_id
from nodectl.daemon.admission.binder import Binder
from nodectl.daemon.admission.confinement import Securing
from nodectl.daemon.admission.user_budget import Budget
from nodectl.daemon.history.batch import Batch
from nodectl.daemon.history.reset_notes import Running
from nodectl.daemon.history.store import Store
from nodectl.daemon.jobs import further_steps
from nodectl.daemon.jobs.containers import Containers
from nodectl.daemon.jobs.further_steps import RESERVE, Further, anything
from nodectl.daemon.jobs.prolog_epilog import Jobs
from nodectl.daemon.jobs.resources import Resources
from nodectl.daemon.jobs.step_cgroups import remove_groups
from nodectl.daemon.methods import suspend
from nodectl.daemon.methods.enter import Visits
from nodectl.daemon.methods.read_trace import Traces
from nodectl.daemon.methods.start import Starter
from nodectl.daemon.methods.update import Updates
from nodectl.daemon.processes.forkserver_channel import ForkChannel
from nodectl.daemon.steps import status_query
from nodectl.daemon.steps.live import LiveStep
from nodectl.daemon.steps.oom_watch import OomWatch
from nodectl.model.plugstack_entry import entry_as_list
from nodectl.plugin_host.node_plugins import NodePlugins
from nodectl.spank import plugstack
from nodectl.wire import framing
from nodectl.wire.dispatch import NODE, Call, Refused, Service
from nodectl.wire.shape import BadShape, Optional, boolean, check, integer

if TYPE_CHECKING:
    from nodectl.model.step import Step
    from nodectl.wire.shape import Shape

    _Answer = Callable[[Call, Mapping[str, object], User, str], Mapping[str, object] | Awaitable[Mapping[str, object]]]

_JOB = integer(1, 2**32 - 1)
_STEP = integer(0, 2**32 - 1)
_WHICH = {"job": _JOB, "step": _STEP}
_STATUS_SECONDS = 1.0
_STREAMS = 3
_MOST_LISTED = 10_000


class Node:
    """See the module. `mount` is the cgroup2 mount, `base` the path below it where jobs live, "" without cgroups."""

    def __init__(  # made once, of everything a node is
        self, config: Config, store: Store, plugins: NodePlugins, *, lock: int, base: Base, constraints: Constraints
    ) -> None:
        self.config = config
        self.mount = base.mount
        self.base = base.path
        self.constraints = constraints
        self.live: dict[tuple[int, int], LiveStep] = {}
        self.steps_dir = f"{config.runtime_dir}/steps"
        self._store = store
        self.running = Running(store, self.live)
        self._plugins = plugins
        self._users = Users(config.user_cache_seconds)
        self._known_stack: plugstack.Plugstack | None = None
        self.batch = Batch(store)
        self._cleaning: set[asyncio.Task[bool]] = set()
        self._admin_gid: int | None = None
        self._binder = Binder(config, self._holding)
        self._oom_watch = OomWatch(self.live.values, needed="memory" not in base.controllers)
        self.securing = Securing(config, self.live.values)
        self.containers = Containers(config, plugins, store, self._unfinished)
        self.forkserver = ForkChannel(config, lock, self.securing.programs, self._answered, self.containers.earlier)
        self.containers.forkserver = self.forkserver
        self.resources = Resources(config, plugins, self.live)
        self.jobs = Jobs(config, base.mount, self.containers, self.resources, self.batch.add)
        self.further = Further(self, store)
        self.budget = Budget(self)
        self._starter = Starter(self, plugins)

    def service(self) -> Service:
        """The table of methods."""
        methods: dict[str, tuple[Shape, Callable[[Call], object]]] = {
            "Hello": ({}, self._hello),
            "Reserve": (RESERVE, self._reserve),
            "Launch": ({"request": anything}, self._launch),
            "List": ({"ended": Optional(integer(0, _MOST_LISTED)), "skip": Optional(integer(0, 2**31))}, self._list),
            "Show": (_WHICH, self._show),
            "Explain": (_WHICH, self._explain),
            "Wait": ({**_WHICH, "epilog": Optional(boolean)}, self._wait),
            "Signal": ({**_WHICH, "signal": integer(1, 64)}, self._signal),
            "Config": ({}, self._config),
            **Traces(self).methods(),
            **Visits(self).methods(),
            **Updates(self).methods(),
            **suspend.Suspensions(self).methods(),
        }
        return Service(__version__, {f"{NODE}.{name}": row for name, row in methods.items()})

    async def load_admins(self) -> None:
        """Looks up admin_group, whose members may see, signal and update every step. One that is not there has none."""
        try:
            self._admin_gid = await group_id(self.config.admin_group)
        except UnknownUser:
            self._admin_gid = None

    def reload(self) -> Coroutine[object, object, None]:
        """Forgets what it knows of accounts, and tells the plugin of containers: at once, so that no step is admitted
        between. What is returned looks up the admins.
        """
        self._users.forget()
        self.containers.reconfigure(self.config)
        return self.load_admins()

    # Methods.

    def _hello(self, call: Call) -> Mapping[str, object]:
        del call
        stack = self._stack()
        return {
            "version": __version__,
            "node": self.config.node_name,
            "stack": [
                dict(zip(("path", "argv", "required", "origin", "missing"), entry_as_list(entry), strict=True))
                for entry in stack.entries
            ],
            "warnings": list(stack.warnings),
            "hook_timeout": self.config.spank_hook_timeout,
            "spank_versions": self.config.spank_versions,
        }

    def _stack(self) -> plugstack.Plugstack:
        """plugstack.conf as it is at this launch."""
        if self._known_stack is None or not self._known_stack.is_current():
            try:
                self._known_stack = plugstack.read(self.config.plugstack_config, self.config.plugin_dir)
            except plugstack.PlugstackError as error:
                self._known_stack = None
                raise Refused("LaunchRefused", str(error), exit_status=1) from None
        return self._known_stack

    def _reserve(self, call: Call) -> Mapping[str, object] | Awaitable[Mapping[str, object]]:
        """Where it is told what for, that is looked at as at the launch."""
        return self._consider(call, self._promise) if "request" in call.parameters else self.further.reserve(call)

    def _promise(self, call: Call, request: Mapping[str, object], user: User, level: str) -> Mapping[str, object]:
        return self.further.reserve(call, self._made(call, request, user, level))

    def _launch(self, call: Call) -> Mapping[str, object] | Awaitable[Mapping[str, object]]:
        if call.fds not in (0, _STREAMS):
            raise launch_request.invalid("request", f"comes with {call.fds} descriptors instead of none or three")
        return self._consider(call, self._admit)

    def _consider(self, call: Call, answer: "_Answer") -> Mapping[str, object] | Awaitable[Mapping[str, object]]:
        """At once for a known user's own step, so that thousands of short steps do not wait in line."""
        try:
            request = check(call.parameters["request"], launch_request.REQUEST)
        except BadShape as error:
            raise launch_request.invalid(error.parameter, str(error).partition(": ")[2]) from None
        known = None if "uid" in request or "gid" in request else self._users.known(call.peer.uid)
        level = self.securing.level_of(request, call.peer)
        if known is None or not self.securing.is_ready(level):
            return self._look_up(call, request, level, answer)
        return answer(call, request, known, level)

    async def _look_up(
        self, call: Call, request: Mapping[str, object], level: str, answer: "_Answer"
    ) -> Mapping[str, object]:
        await self.securing.ready(level)
        user = await launch_request.who_runs(self._users, request, call.peer.uid)
        answered = answer(call, request, user, level)
        return await answered if isinstance(answered, Awaitable) else answered

    def _made(self, call: Call, request: Mapping[str, object], user: User, level: str) -> "Step":
        self.budget.check(user.uid, int(str(request["ntasks"])))
        return launch_request.make_step(
            request, user, self.config, caller=call.peer.uid, stack=self._stack().entries,
            binder=self._binder, constraints=self.constraints, secure=level,
        )  # fmt: skip

    def _admit(
        self, call: Call, request: Mapping[str, object], user: User, level: str
    ) -> Mapping[str, object] | Awaitable[Mapping[str, object]]:
        step = self._made(call, request, user, level)
        # Not before: what makes no sense takes no job's number.
        job, number, first = self.further.take(request, call.peer.uid, user.uid)
        if not number and "job" not in request:
            asyncio.get_running_loop().call_soon(self._store.look_ahead)
        step.job_id, step.step_id = job, number
        step.cgroup = f"{self.base}/job_{job}/step_{number}" if self.base else ""
        if first is not None:
            further_steps.fit(step, first, request)
        return self._starter.begin(step, call)

    def _unfinished(self) -> "Iterator[Step]":
        """Steps that run, and those after which their jobs are being ended."""
        yield from (live.step for live in self.live.values())
        yield from (ending.live.step for ending in self.jobs.ending.values())

    def _holding(self) -> "Iterator[Step]":
        """Steps that may hold devices, or CPUs for themselves: no more those that have left their record, whose clients
        may know of the end before we do.
        """
        for live in self.live.values():
            own = live.step.devices or live.step.step_cpus != live.step.allocation
            if not (own and live.files.has_record()):
                yield live.step

    def _answered(self, message: Mapping[str, object]) -> None:
        """The forkserver's answer to a step, or the news of its death."""
        if message.get("lost"):
            for live in list(self.live.values()):
                if live.pid == 0 and not live.in_prolog and not live.files.alive():
                    live.fail(str(message["error"]))
            return
        job, _, number = str(message["step"]).partition(".")
        found = self.live.get((int(job), int(number)))
        if found is None:
            return
        if "pid" in message:
            found.watch(int(str(message["pid"])))
        else:
            found.fail(str(message["error"]))

    def _list(self, call: Call) -> Mapping[str, object]:
        uid = None if self.is_admin(call.peer) else call.peer.uid
        most, skip = (int(str(call.parameters.get(name, 0))) for name in ("ended", "skip"))
        steps: list[Mapping[str, object]] = []
        ending = [ending.record for ending in self.jobs.ending.values() if uid in (None, ending.record["uid"])]
        for live in self.live.values():
            if uid in (None, live.step.uid):
                record = live.files.record()  # its client may know of the end before we do
                (steps if record is None else ending).append(live.summary() if record is None else record)
        if skip:
            steps.clear()
        more = False
        if most:
            self.batch.flush()
            steps += (latest := ending[::-1][skip:][:most])
            found, more = self._store.latest(uid, most - len(latest), max(skip - len(ending), 0))
            steps += found
        return {"steps": steps, "more": more}

    async def _show(self, call: Call) -> Mapping[str, object]:
        live = self.find_live(call)
        if live is None:
            return {"record": self.find_ended(call)}
        if live.files.record() is not None:  # its client may know of the end before we do
            return {"record": await asyncio.shield(live.ended)}
        record = live.summary()
        status = await status_query.status(live, _STATUS_SECONDS)
        return {"record": record | {name: status[name] for name in ("state", "tasks", "pid") if name in status}}

    def _explain(self, call: Call) -> Mapping[str, object]:
        live = self.find_running(call)
        try:
            return {"layout": self._binder.explain(live.step)}
        except NoLayout as error:
            reason = f"step {live.step} was laid out before the configuration changed: {error.reason}"
            raise Refused("NoSuchStep", reason) from None

    async def _wait(self, call: Call) -> Mapping[str, object]:
        live = self.find_live(call)
        record = self.find_ended(call) if live is None else await asyncio.shield(live.ended)
        ending = self.jobs.ending.get(_which(call))
        if ending is not None and call.parameters.get("epilog"):
            record = await asyncio.shield(ending.final)
        return {"record": record}

    async def _signal(self, call: Call) -> Mapping[str, object]:
        live = self.find_running(call)
        number = call.parameters["signal"]
        if live.in_prolog:
            if number not in (signal.SIGTERM, signal.SIGKILL):
                raise Refused("NoSuchStep", f"step {live.step} has no task yet: its prolog is running")
            live.cancelled = f"step {live.step} was cancelled in its prolog"
            return {}
        answer = await live.ask("Signal", {"signal": number, "by": call.peer.uid})
        if answer is None:
            raise Refused("NoSuchStep", f"step {live.step} has just ended")
        suspend.pass_on(answer)
        return {}

    def _config(self, call: Call) -> Mapping[str, object]:
        del call
        return {"config": {name: list(v) if isinstance(v, tuple) else v for name, v in self.config}}

    # Who may.

    def is_admin(self, peer: framing.Peer) -> bool:
        """True for root and the members of admin_group."""
        return peer.uid == 0 or (self._admin_gid is not None and self._admin_gid in peer.groups)

    def find_live(self, call: Call) -> LiveStep | None:
        """The running step that a call names, None where it does not run. Raises Refused: its caller may not know."""
        live = self.live.get(_which(call))
        if live is not None and live.step.uid != call.peer.uid and not self.is_admin(call.peer):
            raise _none(call)
        return live

    def find_running(self, call: Call) -> LiveStep:
        """Likewise, and Refused where it does not run, as one that has left its record: its client knows."""
        live = self.find_live(call)
        record = self.find_ended(call) if live is None else live.files.record()
        if live is None or record is not None:
            raise Refused("NoSuchStep", "step {job}.{step} has ended: {state}".format_map(record or {}))
        return live

    def find_ended(self, call: Call) -> Mapping[str, object]:
        """The record of an ended step that a call names. Raises Refused: its caller may not know, or nobody does."""
        job, step = _which(call)
        ending = self.jobs.ending.get((job, step))
        record = self.batch.record(job, step) if ending is None else ending.record
        if record is None or (record["uid"] != call.peer.uid and not self.is_admin(call.peer)):
            raise _none(call)
        return record

    # Ends.

    def ended_step(self, live: LiveStep) -> None:
        """A stepd has gone: its record counts, or its death does."""
        record = live.files.record() or live.told
        if record is None and not live.failure and live.files.alive():
            live.reach(lambda: live.fail(self._death(live), "NODE_FAIL"))  # unless it only dropped us: we were too slow
            return
        if record is None:
            record = live.death_record(live.failure or self._death(live))
        live.close()
        self.live.pop(live.key, None)
        waits = not live.step.step_id and self.further.any_of(live.step.job_id)
        if waits or live.owes_epilog or self.containers.owed(live.step):
            self.jobs.end(live, record, waits=waits)
        else:
            self.clean_group(live.step.cgroup)
            self.batch.add(live, record if live.step.step_id else self.jobs.released(live, record))
        self.further.ended(live.step)
        live.ended.set_result(record)

    def _death(self, live: LiveStep) -> str:
        return f"the step runner died{live.where_it_died(self._plugins)}"

    def clean_group(self, path: str) -> None:
        """Empties and removes a step's cgroup, in the background."""
        if path:
            task = asyncio.get_running_loop().create_task(remove_groups(self.mount, path))
            self._cleaning.add(task)
            task.add_done_callback(self._cleaning.discard)

    async def settle(self, *, wait_for_steps: bool) -> None:
        """Before the daemon ends: what is known is written, what is being cleaned is clean.

        A service leaves its steps running; a private node, whose client has gone, waits for them and their epilogs.
        """
        if wait_for_steps and self.live:
            await asyncio.wait([live.ended for live in self.live.values()])
        await self.jobs.settle(patiently=wait_for_steps)
        await self.containers.settle()
        await self.securing.settle()
        self.batch.flush()
        if self._cleaning:
            await asyncio.wait(self._cleaning, timeout=10)

    def close(self, *, wait_for_forkserver: bool) -> None:
        """Nothing is started and nothing noticed any more: what ends from now on the next daemon writes down."""
        self.forkserver.close()
        self._oom_watch.end()
        self._plugins.end()
        self.batch.flush()
        for live in self.live.values():
            live.close()
        if wait_for_forkserver:  # a service's may still have steps to begin
            self.forkserver.collect()


def _none(call: Call) -> Refused:
    return Refused("NoSuchStep", "no step {}.{} is running or in the history".format(*_which(call)))


def _which(call: Call) -> tuple[int, int]:
    return call.parameters["job"], call.parameters["step"]
