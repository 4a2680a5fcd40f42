"""The service's main program: the start, sockets, signals, systemd, and the end.

systemd starts it (socket activation, readiness and watchdog by sd_notify(3)), or a person by hand, or a client for the
length of one command (a private node). SIGHUP reads the keys container_* again, for later jobs, and empties the cache
of accounts. SIGTERM ends the daemon; steps go on.
"""

from nodectl.service.daemon import lean_typing

# isort: split

from nodectl.service.daemon import lean_asyncio  # noqa: F401  # before all that imports asyncio

# isort: split

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import sqlite3
import time
import tomllib  # noqa: F401  # for the reader: at a reload there may be no descriptor for an import
from collections.abc import Callable

from nodectl import messages
from nodectl.kernel import _kernel, signals
from nodectl.launch.cgroup import delegation, tree
from nodectl.launch.cgroup.constraints import (
    CannotConstrain,
    Constraints,
    is_memory_shared,
    wanted_controllers,
    wants_cgroups,
)
from nodectl.launch.cgroup.delegation import Base
from nodectl.launch.cgroup.slurms import BEYOND_SLURMS
from nodectl.launch.confine import keys as confine_keys
from nodectl.launch.container import NAMESPACE
from nodectl.launch.container import settings as container_settings
from nodectl.model.config import Config, ConfigError, own_node
from nodectl.model.wire import framing
from nodectl.model.wire.dispatch import STANDARD
from nodectl.plugin_host import kinds
from nodectl.plugin_host.compiled import described
from nodectl.plugin_host.loader import PluginRefused
from nodectl.plugin_host.node_plugins import Host, NodePlugins, load_node_plugins
from nodectl.selection.answers import SelectionFailed
from nodectl.service.config_file.reader import with_section
from nodectl.service.daemon import loop_errors
from nodectl.service.daemon.admission.slurm_job import scope_of
from nodectl.service.daemon.connections.supervisor import ListenerFailed, ListenerSupervisor
from nodectl.service.daemon.history import journal, retention
from nodectl.service.daemon.history.store import Store, StoreError
from nodectl.service.daemon.jobs.background_tasks import TimeToEnd
from nodectl.service.daemon.jobs.cgroup_removals import remove_base
from nodectl.service.daemon.jobs.slurmd_context import SlurmdContext, SlurmdRefused
from nodectl.service.daemon.node import Node
from nodectl.service.daemon.processes.companions import Companions
from nodectl.service.daemon.processes.forkserver_channel import ForkserverDied
from nodectl.service.daemon.recovery.lock import Lock
from nodectl.service.daemon.recovery.sweep import remove_dead_private_nodes, sweep
from nodectl.service.daemon.service_manager import ServiceManager
from nodectl.spank.left_out import left_out

lean_typing.end()

_FIRST_PASSED_FD = 3  # sd_listen_fds(3)
_LOCK_SECONDS = 15
_END_SECONDS = 8  # well below the time after which a service manager kills
_BACKLOG = 512
_LEAST_DESCRIPTORS = 256
_ANSWER_SECONDS = 1.0
_MORE_SECONDS = 60  # for the start
_GARBAGE = 5000  # objects: the steps of a quarter of a second are looked through at once
_LONGEST_ANSWER = 1 << 16


class CannotStart(Exception):
    """Raised when the daemon cannot start; str() is a line for the log and the terminal."""


def run(config: Config, read: Callable[[], Config], begun: Companions, *, private: bool = False) -> int:
    """Run the daemon until a signal ends the service. Return the exit status.

    Runs as root, or as the user whose own node this is. `read` reads the configuration file again; it raises
    ConfigError. The companions in `begun` end with this process.
    """
    messages.log("daemon")
    _tell_what_is_left_out(config)
    try:
        with contextlib.ExitStack() as ending:
            asyncio.run(signals.until_end(_serve(config, read, begun, ending, private=private)))
    except OSError as error:
        messages.tell("cannot-start", loop_errors.in_one_line(error))
        return 1
    except (
        CannotStart,
        StoreError,
        PluginRefused,
        ForkserverDied,
        SlurmdRefused,
        ListenerFailed,
        SelectionFailed,
        sqlite3.Error,
    ) as error:
        messages.tell("cannot-start", str(error))
        return 1
    return 0


async def _serve(
    config: Config, read: Callable[[], Config], begun: Companions, ending: contextlib.ExitStack, *, private: bool
) -> None:
    asyncio.get_running_loop().set_exception_handler(loop_errors.tell)
    lock, manager = _prepare(config), ServiceManager()
    slurmd = SlurmdContext(config)
    slurmd.begin()  # while the rest is prepared
    connections = ListenerSupervisor(config, begun.listener)
    store = _history(config)
    plugins = _load_plugins(config, ending)
    await slurmd.ready()
    base, constraints = _confine(config, private=private)  # after all that may fail: nothing would remove it
    node = Node(config, store, plugins, lock=lock.fd, base=base, constraints=constraints, forkserver=begun.forkserver)
    if not private:
        _look_at_machine(config, node, constraints)
    # Only root's service has steps in Slurm's jobs: other nodes would find foreign cgroups there.
    await _take_over(node, base, "" if private or os.geteuid() else scope_of(config), manager)
    if not private:  # only its user can connect to a private node
        await node.begin_service()
    node.forkserver.start()
    node.jobs.containers.restore()
    stop = _told_to_stop(node, read, manager, private=private)
    await connections.ready()
    listener, inherited = _listen(config, private=private)  # a client that finds the socket may send signals
    store.serve()
    connections.listen(listener, node.service(), node.has_account)
    _collect_less(private=private)
    manager.tell("READY=1")
    _tell_client_ready()
    heart = asyncio.create_task(_heartbeat(store, manager))
    await stop.wait()
    manager.tell("STOPPING=1")
    heart.cancel()
    connections.pause()
    if not inherited:
        os.unlink(config.socket)
    await node.settle(TimeToEnd(None if private else _END_SECONDS), wait_for_steps=private)
    await slurmd.end()
    await connections.close()
    listener.detach()  # the process's end closes connections left there, without waiting for users
    node.close(wait_for_forkserver=private)
    store.close()
    if base.path:
        remove_base(base.mount + base.path, steps_run=bool(node.registry.live))


def _tell_what_is_left_out(config: Config) -> None:
    if os.geteuid() != 0 and (names := left_out(config)):
        messages.tell("plugins-left-out", f"as uid {os.geteuid()}, not called: {', '.join(names)}: root's")


def _collect_less(*, private: bool) -> None:
    """Exempt the present objects, which stay, from further garbage collections.

    A private node does not live long enough to be worth even a first collection.
    """
    if not private:
        gc.collect()
        _kernel.trim()  # memory of the imports
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    gc.enable()


async def _take_over(node: Node, base: Base, scope: str, manager: ServiceManager) -> None:
    """Take over an earlier daemon's steps, then the queue. Raises SelectionFailed, ForkserverDied."""
    sweep(node.registry, node.jobs, base, scope)
    node.forkserver.tell()  # the forkserver loads plugins in the meantime
    starting = asyncio.create_task(_ask_for_time(manager))
    try:
        await node.restore_queue()
    except SelectionFailed:
        if base.path:
            tree.Group(base.mount + base.path).remove()  # unless steps run
        raise
    finally:
        starting.cancel()


async def _ask_for_time(manager: ServiceManager) -> None:
    """Ask the service manager for more time to start, again and again, because a queue may be of any length."""
    while True:
        manager.tell(f"EXTEND_TIMEOUT_USEC={_MORE_SECONDS * 1_000_000}")
        await asyncio.sleep(_MORE_SECONDS / 3)


def _told_to_stop(
    node: Node, read: Callable[[], Config], manager: ServiceManager, *, private: bool
) -> asyncio.Event:  # fmt: skip
    """Return an event set by SIGTERM, by SIGINT, and by the end of a private node's client. SIGHUP reloads."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: _reload(loop, node, read, manager))
    if private:
        _stop_with_client(stop)
    return stop


def _load_plugins(config: Config, ending: contextlib.ExitStack) -> NodePlugins:
    """Load the node's plugins, and have `ending` call each fini(). Raises PluginRefused."""
    plugins = load_node_plugins(
        kinds.configured(config),
        config.plugin_dir,
        Host(config.spank_hook_timeout, lambda why: messages.tell("plugin-late", why), forks=False, compiled=described),
    )
    ending.callback(plugins.end)
    return plugins


def _history(config: Config) -> Store:
    """Open the history. Raises StoreError."""
    tell = journal.tell if config.log_ended_steps else None
    path = f"{config.state_dir}/history.db"
    least_job = BEYOND_SLURMS if config.slurm_scope else 1
    return Store(path, config.history_limit, config.history_bytes, tell, config.history_days, least_job)


def _prepare(config: Config) -> Lock:
    """Create the runtime directories and take the lock. Raises CannotStart."""
    os.umask(0o022)
    os.chdir("/")
    _have_descriptors()
    wrong = container_settings.check(config) or confine_keys.check(config)
    if wrong:
        raise CannotStart(wrong)
    try:
        os.makedirs(config.runtime_dir, mode=0o755, exist_ok=True)
        if os.geteuid() != 0:
            own_node.must_be_ours(config.runtime_dir)
        os.makedirs(f"{config.runtime_dir}/steps", mode=0o700, exist_ok=True)
        os.chmod(f"{config.runtime_dir}/steps", 0o700)  # the names of the files tell which steps there are
        status = os.stat(config.runtime_dir)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise CannotStart(f"{config.runtime_dir}: others than its user may write there")
        # A daemon that is ending has closed its socket; its forkserver may need a moment longer.
        lock = Lock.take(config.runtime_dir, wait=0 if _is_served(config) else _LOCK_SECONDS)
    except own_node.NotOurs as error:
        raise CannotStart(str(error)) from None
    except OSError as error:
        raise CannotStart(f"prepare {error.filename or config.runtime_dir}: {error.strerror}") from error
    if lock is None:
        doctor = "nodectl doctor" if os.geteuid() == 0 else "nodectl --user doctor"
        raise CannotStart(f"another daemon serves {config.runtime_dir}; `{doctor}` has its pid")
    return lock


def _have_descriptors() -> None:
    """Raise the limit of descriptors if too low. Raises CannotStart if the hard limit is too low.

    The limits of steps are different: their clients'.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < _LEAST_DESCRIPTORS:
        words = f"RLIMIT_NOFILE is {hard}, and {_LEAST_DESCRIPTORS} are needed: ulimit -n, or LimitNOFILE of the unit"
        raise CannotStart(words)
    if soft < _LEAST_DESCRIPTORS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_LEAST_DESCRIPTORS, hard))


def _is_served(config: Config) -> bool:
    """Return True if a daemon answers on the socket.

    A listening socket alone proves nothing: it may be systemd's, or that of a daemon that has just ended.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(_ANSWER_SECONDS)
        try:
            sock.connect(config.socket)
            framing.send(sock, {"method": f"{STANDARD}.GetInfo"})
            return framing.receive(sock, framing.Inbox(_LONGEST_ANSWER)) is not None
        except (OSError, framing.BrokenWire):
            return False


def _confine(config: Config, *, private: bool) -> tuple[Base, Constraints]:
    """Return the base of jobs' cgroups and the constraints on jobs. Raises CannotStart.

    The log says once which constraints are not enforced; a private node tells its user only about requested ones.
    """
    base = Base(tree.find_mount(), "", (), {})
    try:
        if wants_cgroups(config) and base.mount:
            base = delegation.make(config.cgroup_name, wanted_controllers(config))
        constraints = Constraints(config, base)
    except OSError as error:
        raise CannotStart(f"make the cgroup {error.filename}: {error.strerror}") from error
    except CannotConstrain as error:
        if base.path:
            tree.Group(base.mount + base.path).remove()
        raise CannotStart(str(error)) from None
    complaints = constraints.complaints
    if complaints and os.geteuid() != 0 and not wants_cgroups(config):  # each would give the same reason
        complaints = ["memory, CPU time and processes of steps are not limited here; `nodectl --user doctor` says why"]
    for line in () if private else complaints:
        messages.tell("not-enforced", line)
    return base, constraints


def _look_at_machine(config: Config, node: Node, constraints: Constraints) -> None:
    """Remove what dead private nodes left. Tell the log where the memory of the GPUs found is only counted, and where
    users' files can take the room of the queue.
    """
    remove_dead_private_nodes(config.runtime_dir)
    if config.job_container_type == NAMESPACE:
        from nodectl.launch.container import disk_room  # imported only where configured

        if why := disk_room.complaint(config):
            messages.tell("state-can-fill", f"{why}: {disk_room.ADVICE}")
    if constraints.gpu_memory_complaint and is_memory_shared(node.devices):
        messages.tell("not-enforced", constraints.gpu_memory_complaint)


def _listen(config: Config, *, private: bool) -> tuple[socket.socket, bool]:
    """Return the listening socket and whether the socket was inherited from systemd. Raises CannotStart.

    The socket of a private node admits only root: the node would have to wait for the steps of others.
    """
    if os.environ.get("LISTEN_PID") == str(os.getpid()) and int(os.environ.get("LISTEN_FDS", "0")) >= 1:
        return socket.socket(fileno=_FIRST_PASSED_FD), True
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        new = f"{config.socket}.new"
        if os.path.exists(new):
            os.unlink(new)  # ours: we hold the lock
        listener.bind(new)
        # Permissions are decided per call, by SO_PEERCRED. A user's own node admits no other user.
        os.chmod(new, 0o600 if private or os.geteuid() != 0 else 0o666)
        listener.listen(_BACKLOG)
        os.rename(new, config.socket)  # after a crash, the old socket or a listening socket is there
    except OSError as error:
        raise CannotStart(f"listen on {config.socket}: {error.strerror}") from error
    return listener, False


def _tell_client_ready() -> None:
    """Tell a private node's client, by the client's descriptor, of the readiness. A service uses sd_notify."""
    fd = os.environ.pop("NODECTL_READY_FD", "")
    if fd:
        with contextlib.suppress(BrokenPipeError):  # the client has given up, and the daemon ends without its client
            os.write(int(fd), b"1")
        os.close(int(fd))


async def _heartbeat(store: Store, manager: ServiceManager) -> None:
    """Start the regular pruning of the history, then feed the watchdog twice per period."""
    retention.begin(store)
    usec = int(os.environ.get("WATCHDOG_USEC", "0"))
    while usec:
        manager.feed_watchdog()
        await asyncio.sleep(usec / 2e6)


def _reload(
    loop: asyncio.AbstractEventLoop, node: Node, read: Callable[[], Config], manager: ServiceManager
) -> None:  # fmt: skip
    """Handle SIGHUP: look up accounts and the admin group again, and reread the keys for later containers.

    plugstack.conf is read at each launch anyway.
    """
    manager.tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
    config = node.config
    try:
        new = with_section(node.config, "containers", read())
        if wrong := container_settings.check(new):
            raise ConfigError(wrong)
        config = new
    except ConfigError as error:
        messages.tell("reload-failed", f"reload: {error}; what was read before is kept")
    task = loop.create_task(node.reload(config))
    task.add_done_callback(lambda _: manager.tell("READY=1"))


def _stop_with_client(stop: asyncio.Event) -> None:
    """Set `stop` when the private node's client ends. Standard input is a pipe from the client, without data."""
    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(0)  # the closed pipe stays readable, and the last step may take long
        stop.set()

    loop.add_reader(0, ended)
