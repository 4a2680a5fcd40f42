"""The forkserver's main program: a lean Python, executed by the daemon, from which every stepd is forked.

Starting an interpreter takes tens of milliseconds, forking this one half a millisecond. It imports everything that a
step can need before any step exists. It has one thread and calls no hook of a SPANK plugin: it compiles Python plugins
(once per change of the file), which the stepd executes, and it opens native ones. It ends when the daemon's end of the
channel closes. Its stepds live on.

Channel: the first message comes with the descriptors of the daemon's lock and of the compiled filters that confine
steps, {"plugins": types by kind, "plugin_dir": ..., "earlier": types of other containers that still exist, "timeout":
that of a hook, "spank_versions": ..., "warm_runners": ..., "warm_runner_time": ...}. Then comes one SEQPACKET message a
step, {"step": "42.0", "spec": path, "cgroup": ..., "trace": true} with the descriptors of `Descriptors`. The daemon has
made all of these descriptors: users' descriptors never come here, and the stepd reads the step's file. "client" is the
uid of the client that waits for the step, null for none; "keep" is the uid of its user if a warm runner may serve the
step (`runners.py`); "cgroup" is the stepd's cgroup, unless the stepd becomes a warm runner; "runners" is the cgroup of
warm runners and of everything charged to no job. "plugins": [...] is present when the stack differs from the last one
or one of its files has changed. Answers: {"step": ..., "pid": ...} or {"step": ..., "error": ...}. With "waited" the
order lies with a warm runner; if that ends without having taken it, another answer follows. A message with "container"
is a container request (`forkserver/container_requests.py`), which is answered on a connection of its own.
"""

import _signal
import _socket
import fcntl
import gc
import os
import sys

import prctl

from nodectl import messages
from nodectl.kernel import _kernel, pseudo_file
from nodectl.kernel.closing import close_in_time
from nodectl.launch.cgroup import tree
from nodectl.launch.confine.confinement import PROGRAMS
from nodectl.launch.forkserver import container_requests
from nodectl.launch.forkserver.runners import Runners
from nodectl.launch.forkserver.stepds import LOCK, Stepds
from nodectl.launch.stepd.orders import drop, receive
from nodectl.launch.stepd.run import LINK
from nodectl.launch.task.stages import IGNORED
from nodectl.model.wire import lean_json
from nodectl.model.wire.framing import LONGEST_ORDER, DescriptorsLost
from nodectl.plugin_host.loader import PluginRefused
from nodectl.plugin_host.node_plugins import Host, load_node_plugins
from nodectl.spank import preload, probe_variable, versions
from nodectl.spank.plugin_store import PluginStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

    from nodectl.plugin_host.loader import Plugin
    from nodectl.plugin_host.node_plugins import NodePlugins

    Order = tuple[bytes, list[int]]  # a message and the descriptors that came with it

CHANNEL = 3  # the descriptor that the daemon leaves open for us
_OUT_OF_THE_WAY = 10  # dup2 onto 4 must not overwrite a descriptor that will become 5
_OWN_WORDS = 5  # python -I -S -c CODE


def main() -> "NoReturn":
    """Serve the channel until the daemon is gone."""
    status = 1
    try:
        _serve_the_daemon()
        status = 0
    except BaseException:  # the top of a process
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)  # a plugin's leftover thread must not keep the process, and with it the lock


def _serve_the_daemon() -> None:
    prctl.set_name("nodectl-fork")
    # Stepds are not waited for: the daemon learns of their ends in other ways.
    for number in (*IGNORED, _signal.SIGCHLD):
        _signal.signal(number, _signal.SIG_IGN)
    _kernel.default_signals()  # steps' programs inherit the forkserver's signals
    os.chdir("/")
    os.umask(0o022)
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, CHANNEL)
    os.set_inheritable(CHANNEL, False)
    preload.remove()
    first, handed_over = _handed_over() or (_begin(channel), None)
    if not first:
        return
    arguments = lean_json.load_object(first)
    probe_variable.start_probe()
    messages.log("forkserver")
    tell = _print if handed_over is not None else lambda why: _answer(channel, {"ready": False, "error": why})
    versions.accept(str(arguments["spank_versions"]))
    try:
        node = load_node_plugins(
            arguments["plugins"],  # type: ignore[arg-type]  # our own daemon's words
            arguments["plugin_dir"],  # type: ignore[arg-type]
            Host(float(str(arguments["timeout"])), tell, forks=True, compiled=_open_container),
            arguments["earlier"],  # type: ignore[arg-type]
        )
    except PluginRefused as refused:
        tell(str(refused))
        return
    if handed_over is None:
        _answer(channel, {"ready": True})
    gc.collect()  # the first order does not come at once
    gc.freeze()
    gc.disable()  # a short-lived stepd gains nothing from collecting, and every collection would copy pages
    runners = Runners(int(str(arguments["warm_runners"])), int(str(arguments["warm_runner_time"])))
    order = _serve(channel, node, handed_over, runners)
    node.end()
    if order is not None:
        _execute_again(first, *order)


def _open_container(path: str) -> "Plugin":
    """Open a compiled job_container plugin. Raises PluginRefused."""
    from nodectl.spank.container_plugin import open_container  # few nodes have one, and nothing was forked yet

    return open_container(path)


def _serve(
    channel: "_socket.socket", node: "NodePlugins", handed_over: "Order | None", runners: Runners
) -> "Order | None":
    """Serve until the daemon is gone. Return an order which needs a newly executed forkserver, or None."""
    store = PluginStore()
    mount = tree.find_mount()
    if mount:
        pseudo_file.hold(mount)
    stepds = Stepds(channel, node, mount, store, runners)
    while True:
        for data, fds in runners.not_taken(channel, lambda lost: _refuse(channel, lost)):
            _start(channel, stepds, data, lean_json.load_object(data), fds)
        try:
            data, fds = handed_over or receive(channel)
        except DescriptorsLost as lost:
            _refuse(channel, lost)
            # The orders behind it say nothing of the plugins that this order names.
            store.refresh(lean_json.load_object(lost.message).get("plugins", ()))  # type: ignore[arg-type]
            drop(channel)
            continue
        handed_over = None
        if not data:
            return None
        request = lean_json.load_object(data)
        if "container" in request:
            container_requests.begin(request, fds, node, runners, others=(CHANNEL, LOCK))
            continue
        if not store.refresh(request.get("plugins", ())):  # type: ignore[arg-type]
            return data, fds
        _start(channel, stepds, data, request, fds)


def _start(
    channel: "_socket.socket", stepds: Stepds, data: bytes, request: "Mapping[str, object]", fds: "list[int]"
) -> None:
    """Start the step, close the descriptors, and only then answer the daemon.

    The client's streams may come once the daemon has the answer, so nothing here may hold their destination any more.
    The end of the link is closed after the answer, because the daemon would learn less from it.
    """
    answer = stepds.start(data, request, fds)
    link = fds.pop(LINK)
    close_in_time(fds)
    _answer(channel, answer)
    os.close(link)
    stepds.prepare()


def _refuse(channel: "_socket.socket", lost: DescriptorsLost) -> None:
    """Refuse an order with more descriptors than this process has room for.

    The order is still in its socket, and is dropped there after the answer: its link to the daemon closes then.
    """
    step = lean_json.load_object(lost.message).get("step")
    of_what = "a container request" if step is None else f"the order of step {step}"
    why = f"receive the descriptors of {of_what}: {lost.strerror}"
    messages.to_log(f"nodectl forkserver: {why}", "runner-cannot-begin")
    if step is not None:
        _answer(channel, {"step": step, "error": f"start a step runner: {why}"})


def _begin(channel: "_socket.socket") -> bytes:
    """Wait for the first order and move the descriptors to LOCK and PROGRAMS.

    Return b"" if the daemon has gone, or has been told that there is no room for them.
    """
    try:
        data, fds = receive(channel)
    except DescriptorsLost as lost:
        _answer(channel, {"ready": False, "error": f"receive the descriptors of the first order: {lost.strerror}"})
        return b""
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY) for fd in fds]
    for fd, place in zip(copies, (LOCK, PROGRAMS), strict=False):
        os.dup2(fd, place, inheritable=False)
    for fd in {*copies, *fds} - {LOCK, PROGRAMS}:
        os.close(fd)
    return data


def _print(why: str) -> None:
    """Log why a re-executed forkserver cannot start. The daemon gets no answer, but notices the process's end."""
    messages.tell("forkserver-cannot-start", why)


def _execute_again(first: bytes, data: bytes, fds: "list[int]") -> "NoReturn":
    """Execute this program again with the unserved order, because a loaded library cannot be replaced."""
    memory = os.memfd_create("nodectl-order", 0)
    os.fchmod(memory, 0o600)
    os.write(memory, data)
    for fd in (CHANNEL, LOCK, PROGRAMS, *fds):
        os.set_inheritable(fd, True)
    preload.add(os.environ)
    os.execv(sys.executable, [*sys.orig_argv[:_OWN_WORDS], first.decode("ascii"), *map(str, (memory, *fds))])


def _handed_over() -> "tuple[bytes, Order] | None":
    """Return the first order and the order handed over by `_execute_again`, or None in the first forkserver."""
    if len(sys.argv) == 1:
        return None
    first = sys.argv[1].encode("ascii")
    for fd in (LOCK, PROGRAMS):
        os.set_inheritable(fd, False)
    memory, *fds = map(int, sys.argv[2:])
    data = os.pread(memory, LONGEST_ORDER, 0)
    os.close(memory)
    for fd in fds:
        os.set_inheritable(fd, False)
    return first, (data, fds)


def _answer(channel: "_socket.socket", message: "Mapping[str, object]") -> None:
    try:
        channel.send(lean_json.dumps(message).encode("ascii"), _socket.MSG_NOSIGNAL)
    except ConnectionError:
        return  # the daemon has ended since it asked; the next receive says so
