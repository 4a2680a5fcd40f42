"""The stepd, or step runner: from the receipt of a step to the saved record.

The forkserver forks one stepd for each step: root, one thread, its own session; it outlives the daemon. `run_step`
is the launch from top to bottom; it calls the rows of `nodectl.model.launch_order` by their names.
"""

import os
import select
import sys
import time

import prctl

from nodectl import messages
from nodectl.kernel import _kernel, pseudo_file
from nodectl.kernel.closing import close_all_but
from nodectl.kernel.identity import own_keyring, sign_in
from nodectl.launch import container
from nodectl.launch.cgroup import slurms, tree
from nodectl.launch.stepd import mpi, preload, record, user_helpers
from nodectl.launch.stepd.bulk_commands import LONGEST_MESSAGE
from nodectl.launch.stepd.connections import MAX_MESSAGE, Links
from nodectl.launch.stepd.methods import Methods
from nodectl.launch.stepd.orders import ForkedAhead, Order, Orders, Unreadable
from nodectl.launch.stepd.plugin_output import PluginOutput
from nodectl.launch.stepd.reaper import Reaper
from nodectl.launch.stepd.relays import forget, start_relays
from nodectl.launch.stepd.run import STEPD_SLOT, LaunchFailed, Run
from nodectl.launch.stepd.script_messages import ScriptMessages
from nodectl.launch.stepd.start import confine_runner, start_tasks
from nodectl.launch.stepd.termination import OUTPUT_LIMIT
from nodectl.launch.streams import client_streams
from nodectl.launch.task import environment, rlimits, users_process
from nodectl.model import features, launch_order
from nodectl.model.states import CANCELLED, RUNNING
from nodectl.model.step_number import BATCH, EXTERN
from nodectl.model.wire.lean_json import dumps
from nodectl.plugin_host.tracing import room as trace_room

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

    from nodectl.model.step import Task
    from nodectl.plugin_host.node_plugins import NodePlugins
    from nodectl.spank.plugin_store import PluginStore

_BULK = features.kind_of_step("bulk")  # imported by the forkserver, because a stepd imports nothing
_TRIES, _PAUSE = 8, 0.01  # seconds
_LINK = 3  # the place of the connection to the daemon in an order
_PRIVATE = "/private."  # in every path of a private node
_SPARED = 1 << 20  # bytes of the step's file; the stepd needs many times as much memory


def main(
    request: "Mapping[str, object]",
    fds: "list[int]",
    node: "NodePlugins",
    cgroup_mount: str,
    store: "PluginStore",
    orders: "Orders | None",
    ahead: "ForkedAhead | None" = None,
) -> "NoReturn":
    """Run the whole life of a stepd: the first order, and further `orders` where the stepd is kept. Never returns.

    With `ahead`, the stepd was forked ahead of its order.
    """
    status = 1
    order: Order | None = None
    try:
        os.setsid()
        prctl.set_child_subreaper(1)  # directory, umask and ignored signals are inherited from the forkserver
        order = Order(request, fds)
        sign_in(order.step.uid)
        _obey(order, node, cgroup_mount, store, orders, ahead)
        while orders is not None and (following := orders.next()) is not None:
            order = following
            _obey(order, node, cgroup_mount, store, orders)
        if ahead is not None:
            ahead.step_ends()
        status = 0
    except Unreadable as error:
        messages.to_log(str(error))
        _tell_daemon(fds, str(error))
    except BaseException as error:  # the top of a process; the daemon records its death
        sys.excepthook(*sys.exc_info())
        _tell_daemon(fds if order is None else [order.fds.link.fileno()], f"{type(error).__name__}: {error}")
    finally:
        _end(order, status)


def _tell_daemon(fds: "list[int]", why: str) -> None:
    """Tell the daemon what this process dies of, for the step's record and its client. `fds`: of the order.

    Most such errors come before a client is attached. Nothing here may fail: the process is about to end.
    """
    event = {"parameters": {"event": {"event": "died", "why": why}}, "continues": True}
    try:
        link = fds[min(_LINK, len(fds) - 1)]
        os.set_blocking(link, False)
        os.write(link, dumps(event).encode("ascii") + b"\0")
    except (OSError, IndexError):
        pass  # no daemon listens, or this step's end is told already


def _end(order: "Order | None", status: int) -> "NoReturn":
    """End the process, as the step's user if descriptors of the user's processes are left to close.

    The exit of the process closes the client's streams that no process has received, and whatever else the user's
    processes have sent. Closing them may hang in a file system of the user's, and no signal ends that. So the process
    becomes the user first and closes all other descriptors.
    """
    try:
        if order is not None and (left := _left(order)):
            users_process.become(order.step)
            close_all_but(left)
    finally:
        os._exit(status)


def _left(order: Order) -> "list[int]":
    left = order.fds.of_user
    if order.fds.client is not None and client_streams.are_left(order.fds.streams):
        left = [*left, order.fds.streams]
    return left


def _obey(
    order: Order,
    node: "NodePlugins",
    cgroup_mount: str,
    store: "PluginStore",
    orders: "Orders | None",
    ahead: "ForkedAhead | None" = None,
) -> None:
    """Run a step, from the order to the end of the step."""
    step = order.step
    messages.serves(step.job_id, str(step), step.uid)
    own_keyring()
    _kernel.limit_trace(trace_room.of(step))
    prctl.set_name(f"stepd {step}")
    container.introduce(step, f"{order.stem}.json")
    run = Run(step, order.fds, node, cgroup_mount, kept=orders is not None)
    run.seen_at = f"{order.stem}.view"
    if step.within:
        run.private.append(order.fds.lifeline)
        run.aside = tree.Group(cgroup_mount + order.runners)
    if order.fds.views >= 0:
        run.private.append(order.fds.views)
    if ahead is not None:
        run.on_begun = ahead.tasks_begin
        run.private.append(ahead.fd())
    run.may_be_spared = _may_be_spared(f"{order.stem}.json")
    try:
        _serve(run, order.stem, store)
    except Exception as error:
        run.say(run.unforeseen(error))  # the last words of this process, for clients still connected
        raise
    if orders is not None:
        orders.step_over(run)


def _may_be_spared(spec: str) -> bool:
    """Return True if the stepd is to be protected from the out-of-memory killer.

    Return False for a large spec file, because its user chooses the size, and for a root without the capability, as in
    a container. The protection inherited from the service is removed first, so that tasks do not inherit it.
    """
    if not _kernel.capabilities()[0] & rlimits.CAP_SYS_RESOURCE:
        return False
    pseudo_file.write("/proc/self/oom_score_adj", b"0")
    return os.stat(spec).st_size <= _SPARED


def _serve(run: Run, stem: str, store: "PluginStore") -> None:
    poll = select.poll()
    reaper = Reaper(run, poll)
    run.links = Links(run.fds.listener, poll, Methods(run, reaper.termination).table)
    directory = os.open(os.path.dirname(stem), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    run.private.append(directory)
    name = os.path.basename(stem)
    run.links.on_gone = reaper.termination.launcher_gone
    if run.fds.client is not None:
        longest = LONGEST_MESSAGE if run.step.bulk else MAX_MESSAGE
        run.links.adopt_launcher(run.fds.orders, run.fds.news, run.fds.client, longest)
        client_streams.greet(run.client_streams)
    daemon = run.links.adopt(run.fds.link)
    _listen(run, reaper)
    if run.step.stack:
        _redirect_stderr(run, directory, stem)
    reaper.turn(0)
    for line in run.step.told:
        run.links.broadcast_line(line)
    _launch(run, reaper, store)
    finish(run, reaper)
    result = dumps(record.compose(run))
    try:
        record.save(directory, f"{name}.record", result)
    except OSError as error:
        messages.error(f"step {run.step}: save its record: {error.strerror}")
        run.links.attach(daemon)  # then the daemon takes it from the last event
    run.pass_on_plugin_output()
    run.progress.done(STEPD_SLOT)
    run.links.broadcast_end(result)
    try:
        os.unlink(f"{name}.sock", dir_fd=directory)
    except FileNotFoundError:
        pass  # a daemon that took this stepd for dead has removed it
    run.links.drain()
    messages.listen(lambda line: messages.to_log(f"{line} (step {run.step})"), level=messages.INFO)
    run.spank.end()  # last: whatever happens there, the step's end is known
    run.pass_on_plugin_output()


def _launch(run: Run, reaper: Reaper, store: "PluginStore") -> None:
    try:
        run_step(run, reaper, store)
    except LaunchFailed:
        pass  # reported where it happened
    except Exception as error:  # `failed` tells the clients, and `finish` ends all that has begun
        run.failed(run.unforeseen(error))
        if run.gate_writer >= 0 and not run.gate_is_open:
            run.close_gate()


def _listen(run: Run, reaper: Reaper) -> None:
    """From here on send messages to the step's user: to clients, or for a script to the script's file."""
    if run.step.step_id == BATCH:
        run.script = ScriptMessages(run, lambda: reaper.termination.has_begun(run.tasks[0]))
        run.links.on_line = run.script.add
    messages.listen(run.links.broadcast_line, level=run.step.verbose + messages.ERROR)


def _redirect_stderr(run: Run, directory: int, stem: str) -> None:
    """From here on mark plugins' output, to stderr and to the log, as output of plugins."""
    private = _PRIVATE in stem  # its log is the terminal of the command
    if not private:
        messages.keep(messages.plugin_to_log, run.plugin_being_called)
    try:
        run.plugin_output = PluginOutput(directory, os.path.basename(stem))
    except OSError:
        return  # the disk is full: it goes to the log only
    run.private.extend(run.plugin_output.private())
    messages.log_is(-1 if private else run.plugin_output.log)


def run_step(run: Run, reaper: Reaper, store: "PluginStore") -> None:
    """Launch the step. Raises LaunchFailed where a row's failure ends the step; `finish` is called in any case."""
    step = run.step
    if step.is_first:  # a further step joins what its job has
        run.call(launch_order.CONTAINER_CREATE, step.job_id)
    run.call(launch_order.PROCTRACK_CREATE, step)
    run.call(launch_order.CONTAINER_ADD_CONT, step.job_id, step.container_id)
    step.environment.update(environment.announced(step))
    run.require(run.spank.load(step.stack, store.__getitem__, store.ready))
    run.call(launch_order.SPANK_INIT)
    if step.step_id != EXTERN:
        run.require(run.spank.process_options(step.options))
    run.call(launch_order.SPANK_INIT_POST_OPT)
    step.environment.update(environment.for_step(step))
    run.call(launch_order.TASK_PRE_SETUID, step)
    run.tell_unlimited()
    run.call(launch_order.SPANK_USER_INIT)
    reaper.turn(0)
    if run.state != RUNNING:
        return
    make_ready(run, reaper)
    if step.bulk:
        if _BULK is None:
            raise run.failed(features.is_missing("bulk"))
        _BULK.run_commands(run, reaper)
        return
    if step.mpi:
        mpi.begin(run, reaper)
    start_tasks(run, reaper)
    try:
        # The step that holds an allocation has as many tasks as were asked for, and starts one.
        for task in run.tasks[:1] if step.step_id == EXTERN else run.tasks:
            run.call(launch_order.SPANK_TASK_POST_FORK, task=task)
        start_relays(run)
        reaper.turn(0)
        if run.state == RUNNING:
            open_gate(run)
            reaper.watch_gate()
    finally:
        if not run.gate_is_open:
            run.close_gate()
        run.streams.close()
        reaper.wait()


def make_ready(run: Run, reaper: Reaper) -> None:
    """Prepare the step before the first task. Raises LaunchFailed."""
    wait_for_streams(run, reaper)
    confine_runner(run)
    if run.step.preload:
        preload.begin(run, reaper)


def wait_for_streams(run: Run, reaper: Reaper) -> None:
    """Wait for the client's streams. Raises LaunchFailed if the streams never come.

    The client has sent them before the stepd was forked.
    """
    if run.fds.client is None:
        return
    while run.state == RUNNING and not _streams_are_there(run):
        reaper.wait_for(run.client_streams)
    if run.state != RUNNING:
        raise LaunchFailed(run.reason)


def _streams_are_there(run: Run) -> bool:
    try:
        return client_streams.has_come(run.client_streams)
    except OSError as error:
        raise run.failed(f"the streams of its client never came: {error.strerror}") from None


def open_gate(run: Run) -> None:
    """Write a byte for each task to the gate: from here on the user's code runs.

    When the last task has become its program, no process holds the gate's reading end any more (`Reaper`).
    """
    started = run.enter(launch_order.OPEN_GATE)
    try:
        os.write(run.gate_writer, b"\1" * run.step.ntasks)
    except BrokenPipeError:
        pass  # every task has ended before it
    run.gate_is_open = True
    run.leave(launch_order.OPEN_GATE, started)
    told = {} if run.step.part is None else {"tasks": run.step.numbers}
    run.links.broadcast({"event": "start", "pids": [task.pid for task in run.tasks], **told})
    if run.on_begun is not None:
        run.on_begun()


def finish(run: Run, reaper: Reaper) -> None:
    """End the step: kill the remaining processes, call the plugins' last hooks, remove the cgroups."""
    step = run.step
    run.mpi.finish()
    run.preload.finish()
    if step.container_id:
        run.call(launch_order.PROCTRACK_SIGNAL, step.container_id, 9)
        run.unkillable = run.call(launch_order.PROCTRACK_WAIT, step.container_id).why
    reaper.collect()  # the killed orphans are our children
    run.relays.let_go()
    for pid, awaited in run.relays:
        wait_for_relay(run, reaper, pid, awaited=awaited)
    forget(run)
    run.call(launch_order.TASK_POST_STEP, step)
    why = run.call(launch_order.SPANK_EXIT).why
    run.spoiled = run.spoiled or why
    if step.container_id:
        run.call(launch_order.PROCTRACK_DESTROY, step.container_id)
    run.end_reasons.step_ended()
    run.mpi.remove_group()
    run.preload.remove_group()
    if run.group is not None:
        remove_groups(run.group, run.tasks)
        if run.aside is not None:
            leave(run.group, run.aside)
    if run.script is not None:
        run.pass_on_plugin_output()  # what the last hooks wrote is for the file, too
        run.script.finish(lambda pid, seconds: user_helpers.wait_a_while(reaper, pid, seconds))


def leave(group: tree.Group, aside: tree.Group) -> None:
    """Move the stepd to the cgroup `aside` and remove the step's cgroup, for a step within another manager's job.

    The step must leave nothing there, even while the daemon is away: the manager removes its own cgroups when the job
    is over. The stepd does the rest of its work in `aside`.
    """
    try:
        aside.make().add(0)
    except OSError as error:
        messages.error(f"leave the cgroup of its job: {error.strerror}")
        return  # the daemon removes it
    for left in reversed(range(_TRIES)):
        if slurms.remove(group, patient=left > 0):
            return
        time.sleep(_PAUSE)


def wait_for_relay(run: Run, reaper: Reaper, pid: int, *, awaited: bool) -> None:
    """End an input relay, or wait until an output relay has written everything.

    The stepd waits as long as the client (which may be a pager) is there, but after an early end of the step no longer
    than kill_wait. If the step is told to end during this wait, or reaches its time limit, the step is cancelled.
    """
    if not awaited:
        run.relays.end(pid)
    limit = None
    killed = float("inf") if awaited else time.monotonic()
    if run.state != RUNNING:
        limit = time.monotonic() + run.step.kill_wait
    elif not run.links.has_launcher():
        limit = time.monotonic() + OUTPUT_LIMIT
    while pid not in reaper.gone:
        now = time.monotonic()
        late = reaper.termination.late
        if awaited and late is not None and now > late[1]:
            run.end_as(CANCELLED, late[0])
            limit = now
        if limit is not None and now >= limit:
            run.relays.end(pid)
            killed = min(killed, now)
        if now >= killed + run.step.unkillable_timeout:
            run.unkillable = run.unkillable or f"process {pid}, which copies its streams, does not die"
            return
        reaper.turn(1.0)


def remove_groups(group: tree.Group, tasks: "list[Task]") -> None:
    """Remove the user's part of the step's cgroups.

    The daemon removes the stepd's own cgroup when the stepd has ended (daemon/jobs/cgroup_removals.py).
    """
    user = group.child("user")
    for task in tasks:
        user.child(f"task_{task.local_id}").remove()
    user.remove()
