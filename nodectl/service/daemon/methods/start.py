"""The start of an admitted step: the job's prolog, the step's files, socket and cgroups, and the order to the
forkserver.

A step without a prolog starts synchronously: thousands of short steps come this way. A start that fails half-way is
undone, unless a prolog has begun: then the step gets a record, and its job an epilog.
"""

import _socket  # the half in C: a step's sockets are few calls
import contextlib
import errno
import os
from collections.abc import Awaitable, Iterator, Mapping

from nodectl import messages
from nodectl.launch.cgroup import delegation, slurms, tree
from nodectl.launch.cgroup.constraints import CannotConstrain, Constraints
from nodectl.launch.stepd import record
from nodectl.model.config import Config
from nodectl.model.plugstack_entry import entry_as_list
from nodectl.model.states import CANCELLED, FAILED
from nodectl.model.step import Step
from nodectl.model.wire import framing
from nodectl.model.wire.dispatch import Call, Refused
from nodectl.plugin_host.node_plugins import NodePlugins
from nodectl.plugin_host.tracing import progress
from nodectl.plugin_host.tracing import room as trace_room
from nodectl.service.daemon.admission.user_budget import UserBudget
from nodectl.service.daemon.jobs.node_jobs import NodeJobs
from nodectl.service.daemon.jobs.registry import Registry
from nodectl.service.daemon.jobs.task_plugins import call_request
from nodectl.service.daemon.processes import copied_descriptors
from nodectl.service.daemon.processes.forkserver_channel import ForkserverChannel, ForkserverDied
from nodectl.service.daemon.processes.warm_runners import WarmRunners
from nodectl.service.daemon.steps.files import encoded
from nodectl.service.daemon.steps.live import LiveStep

Name = Mapping[str, object]  # job, step
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class StepStart:
    """The starts of steps on the node. `base`: where the jobs' cgroups are."""

    def __init__(  # made once, of everything that a start needs
        self, config: Config, base: delegation.Base, registry: Registry, jobs: NodeJobs, plugins: NodePlugins, *,
        constraints: Constraints, budget: UserBudget, forkserver: ForkserverChannel,
    ) -> None:  # fmt: skip
        self._config = config
        self._mount = base.mount
        self._runners = f"{base.path}/{tree.RUNNERS}" if base.path else ""
        self._registry = registry
        self._jobs = jobs
        self._plugins = plugins
        self._constraints = constraints
        self._budget = budget
        self._forkserver = forkserver
        self._warm_runners = WarmRunners(config, plugins)
        self._told_of_gpus = False

    def begin(self, step: Step, call: Call | None = None) -> Name | Awaitable[Name]:
        """Start the step. `call` is None where no client waits; then the streams are files. Raises Refused.

        If an earlier run of a requeued job left a record, it is written into the history first.
        """
        if why := self._registry.batch.make_way(step.job_id, step.step_id):
            raise Refused("LaunchRefused", f"step {step}: {why}", exit_status=1)
        files = self._registry.files(step.job_id, step.step_id)
        live = LiveStep(step, files, self._jobs.step_ended, self._jobs.step_ending)
        step.select_packed = self._jobs.watcher.step_begins(step.job_id, step.step_id, step.ntasks)
        if self._jobs.prolog_epilog.any_for(step) and step.is_first:
            return self._start_after_prolog(live, call)
        with self._undone_on_failure(live), self._trace(live) as trace:
            self._start(live, trace, call)
        return _name(live)

    @contextlib.contextmanager
    def _undone_on_failure(self, live: LiveStep) -> Iterator[None]:
        """Remove all traces of a step that cannot be started, and raise Refused with the reason."""
        try:
            yield
        except (OSError, ForkserverDied, Refused) as error:
            self._registry.live.pop(live.key, None)
            self._jobs.watcher.step_over(*live.key)
            if live.reserved:
                self._jobs.resources.release(live)
            live.close()
            live.files.remove()
            self._jobs.cgroup_removals.begin(live.step.cgroup)
            self._jobs.further_steps.remove(live.step)
            if isinstance(error, Refused):
                raise
            raise Refused("LaunchRefused", f"step {live.step}: {self._reason(error)}", exit_status=1) from error

    def _reason(self, error: Exception) -> str:
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            return f"no room for its files in {self._registry.directory}: {error.strerror}"
        return str(error)

    @contextlib.contextmanager
    def _trace(self, live: LiveStep) -> Iterator[int]:
        """Open the step's trace, and call the task plugins before any process of the step exists."""
        trace = live.files.open_trace()
        try:
            fd = trace if self._config.trace else -1
            call_request(live.step, self._plugins, fd, live.step.hook_timeout)
            self._jobs.resources.reserve(live, fd)
            live.step.limits, live.step.device_rules = self._constraints.of_step(live.step)
            self._check_gpu_memory(live.step)
            yield trace
        finally:
            os.close(trace)

    def _check_gpu_memory(self, step: Step) -> None:
        """Tell the log once where nothing limits a part of a GPU's memory. Raises Refused where that must be."""
        try:
            why = self._constraints.check_gpu_memory(step)
        except CannotConstrain as error:
            # No later try would succeed, so a batch job ends with this.
            raise Refused("InvalidRequest", f"step {step}: {error}", parameter="gres") from None
        if why and not self._told_of_gpus:
            self._told_of_gpus = True
            messages.tell("not-enforced", why)

    async def _start_after_prolog(self, live: LiveStep, call: Call | None) -> Name:
        """Run the job's prolog, which may take long, and then start the step.

        Once the prolog begins, the step is registered, and gets a record in any case.
        """
        with self._undone_on_failure(live), contextlib.ExitStack() as stack:
            trace = stack.enter_context(self._trace(live))
            self._make_files(live)
            live.files.begin_prolog()
            undone_no_more = stack.pop_all()
        with undone_no_more:
            why = await self._through_prolog(live, trace, call)
        if why:
            live.fail(why, CANCELLED if why == live.cancelled else FAILED)
            raise Refused("LaunchRefused", why, exit_status=1)
        return _name(live)

    async def _through_prolog(self, live: LiveStep, trace: int, call: Call | None) -> str:
        """Run the prolog and start the step. Return why the step does not begin, or ""."""
        self._registry.add(live)
        live.in_prolog = live.needs_epilog = True
        try:
            live.prolog_failed = await self._jobs.prolog_epilog.prolog(live)
            why = live.prolog_failed or live.cancelled
            if not why:
                live.files.end_prolog()
                live.in_prolog = False
                self._start(live, trace, call)
        except (OSError, ForkserverDied) as error:
            return f"step {live.step}: {self._reason(error)}"
        return why

    def _make_files(self, live: LiveStep) -> None:
        """Write the step's spec file and reserve room for the record, within the user's budget; make the viewers'
        socket. Raises OSError, Refused.

        The step's trace counts against the budget as well. The step is not known yet: no viewer comes too early.
        """
        text = encoded(live.step.as_json())
        most = record.room(live.step, len(text))
        binder = live.step.binder
        of_gpus = encoded(spec) if binder is not None and (spec := binder.for_containers(live.step)) else b""
        self._budget.take(live, len(text) + most + trace_room.of(live.step) + len(of_gpus))
        live.files.write_spec(text, most)
        if of_gpus:
            live.files.write_cdi(of_gpus, live.step.uid)
        live.listen_for_viewers()

    def _start(self, live: LiveStep, trace: int, call: Call | None) -> None:
        """Make the step's resources and order the step from the forkserver. Raises OSError, ForkserverDied, Refused.

        A client's session process gets the ends of its sockets and pipes before the order goes out, the reply after the
        forkserver's answer. Only then does it send the client's streams: none but the stepd may have to close these.
        """
        step, files = live.step, live.files
        fds: list[int] = []
        client: Call | None = call if call is not None and call.fds else None
        ends: list[int] = []  # of the client
        try:
            fds.append(progress.make(step.ntasks))
            live.progress_fd = os.dup(fds[0])
            fds.append(files.listen())
            if step.cgroup:
                self._make_cgroups(step)
            ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
            fds.append(theirs.detach())
            live.connect(ours)
            if client is not None:
                stepds_ends, ends = _connect_client()
                fds += stepds_ends
            if not live.needs_epilog:
                self._make_files(live)
            fds += live.take_views()
            self._registry.add(live)
            if not step.is_first:
                self._jobs.further_steps.add(step)
            if step.within and call is not None:
                fds.append(os.dup(call.peer.pidfd))
            handed = [*copied_descriptors.copies((trace,)), *fds]
            fds.clear()  # they are closed in any case
            if client is not None:
                client.hold_reply()
                given, ends = ends, []
                client.hand_over(_name(live), given)
            self._forkserver.submit(
                self._order(live, client),
                self._jobs.prolog_epilog.plugins_of(step),
                handed,
                None if client is None else client.release_reply,
            )
        except BaseException:
            framing.close(ends)
            if client is not None:
                client.release_reply()
            raise
        finally:
            framing.close(fds)

    def _order(self, live: LiveStep, client: Call | None) -> dict[str, object]:
        """Return the order to the forkserver: the stepd's `Order` reads it."""
        step = live.step
        return {
            "step": str(step),
            "spec": live.files.spec,
            "cgroup": slurms.stepd_path(step.cgroup) if step.cgroup else "",
            "runners": self._runners,
            "trace": self._config.trace,
            "client": client.peer.uid if client is not None else None,
            "keep": self._warm_runners.of(step, live.size),
            "secure": step.secure,
            "container_plugin": step.container_plugin,
            "stack": [entry_as_list(entry) for entry in step.stack],
        }

    def _make_cgroups(self, step: Step) -> None:
        confinement = self._constraints.of_job(self._jobs.further_steps.job_of(step))
        path, controllers = self._mount + step.cgroup, self._constraints.controllers_of(step)
        try:
            tree.make_step(path, controllers, *confinement)
        except FileNotFoundError:
            if not step.within:  # else the last step of the job has just removed the parent cgroup
                delegation.make(self._config.cgroup_name, self._constraints.controllers)  # a new unit of systemd's
            tree.make_step(path, controllers, *confinement)


def _connect_client() -> tuple[list[int], list[int]]:
    """Make the connections between a client and a stepd. Return the stepd's ends, and the client's. Raises OSError.

    They are a socket for the client's streams, a pipe for its orders, a pipe for events. The daemon makes them, so that
    neither side depends on descriptors that the other side made.
    """
    made: list[int] = []
    try:
        for make in (_socketpair, _pipe, _pipe):
            made += make()
        streams, way, orders, commands, events, news = made
        os.set_blocking(orders, False)
        os.set_blocking(news, False)
    except OSError:
        framing.close(made)
        raise
    return [streams, orders, news], [way, events, commands]


def _socketpair() -> tuple[int, int]:
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    return ours.detach(), theirs.detach()


def _pipe() -> tuple[int, int]:
    return os.pipe2(os.O_CLOEXEC)


def _name(live: LiveStep) -> Name:
    return {"job": live.step.job_id, "step": live.step.step_id}
