"""The forkserver: a lean Python, started once by the daemon, from which every stepd is forked.

Starting an interpreter costs tens of milliseconds, forking this one half a millisecond. It imports everything a step
can need before any step exists, has one thread, and runs no plugin code of a step: SPANK plugins are read and
compiled here (once per change of the file) and executed in the stepd. It ends when the daemon's end of the channel
closes; stepds do not.

Channel: one SEQPACKET message a step, {"step": "42.0", "spec": path, "cgroup": ..., "plugins": [...]} with the
descriptors in the order of `Descriptors`. Answers: {"step": ..., "pid": ...} or {"step": ..., "error": ..., "errno":
...}.
"""

import _signal
import _socket
import gc
import os
import sys

import prctl

from nodectl import _kernel, cgroup, kernel_file, lean_json
from nodectl.plugin import PluginRefused, compile_plugin
from nodectl.spank.stack import witness_if_tried
from nodectl.step import Step
from nodectl.stepd import main as stepd
from nodectl.stepd.node_plugins import load_node_plugins
from nodectl.stepd.run import Descriptors
from nodectl.stepd.task import IGNORED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

    from nodectl.plugin import Source
    from nodectl.stepd.node_plugins import NodePlugins

CHANNEL = 3  # the descriptors that the daemon leaves open for us
LOCK = 4
MAX_MESSAGE = 1 << 17
_MAX_SOURCES = 512
_INT = 4
_FIXED = 4  # trace, board, listener, link; after them the client's four, where there is a client


class Sources:
    """Compiled SPANK plugins by path, looked at again when size, time or file have changed."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, ...], Source | PluginRefused]] = {}

    def refresh(self, path: str) -> None:
        """Compiles `path` if it is new or has changed. What is wrong with it is kept for the stepd to report."""
        try:
            status = os.stat(path)
        except OSError:
            self._known.pop(path, None)
            return
        stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_uid, status.st_mode)
        known = self._known.get(path)
        if known is not None and known[0] == stamp:
            return
        if len(self._known) >= _MAX_SOURCES:
            self._known.clear()
        try:
            self._known[path] = (stamp, compile_plugin(path))
        except PluginRefused as refused:
            self._known[path] = (stamp, refused)

    def __getitem__(self, path: str) -> "Source":
        known = self._known.get(path)
        source = compile_plugin(path) if known is None else known[1]
        if isinstance(source, PluginRefused):
            raise source
        return source


def main(arguments: "Mapping[str, object]") -> None:
    """Serves the channel until the daemon is gone. `arguments`: task_plugin, proctrack_type, plugin_dir, from the
    configuration.
    """
    prctl.set_name("nodectl-fork")
    # Nobody waits for stepds: the daemon hears of their ends elsewhere.
    for number in (*IGNORED, _signal.SIGCHLD):
        _signal.signal(number, _signal.SIG_IGN)
    os.chdir("/")
    os.umask(0o022)
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, CHANNEL)
    os.set_inheritable(CHANNEL, False)
    os.set_inheritable(LOCK, False)
    witness_if_tried()
    try:
        node = load_node_plugins(
            arguments["task_plugin"],  # type: ignore[arg-type]  # our own daemon's words
            arguments["proctrack_type"],  # type: ignore[arg-type]
            arguments["plugin_dir"],  # type: ignore[arg-type]
        )
    except PluginRefused as refused:
        _answer(channel, {"ready": False, "error": str(refused)})
        return
    _one_thread()
    gc.collect()
    gc.freeze()
    gc.disable()  # a short-lived stepd gains nothing from collecting, and every collection would copy pages
    _answer(channel, {"ready": True})
    sources = Sources()
    mount = cgroup.find_mount()
    while True:
        data, ancillary, _, _ = channel.recvmsg(MAX_MESSAGE, _socket.CMSG_SPACE(16 * _INT), _socket.MSG_CMSG_CLOEXEC)
        if not data:
            return
        fds = [
            fd
            for level, kind, raw in ancillary
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS
            for fd in memoryview(raw).cast("i").tolist()
        ]
        try:
            _answer(channel, _fork(channel, lean_json.load_object(data), fds, node, mount, sources))
        finally:
            for fd in fds:
                os.close(fd)


def _answer(channel: "_socket.socket", message: "Mapping[str, object]") -> None:
    channel.send(lean_json.dumps(message).encode("ascii"), _socket.MSG_NOSIGNAL)


def _fork(  # everything a stepd starts from
    channel: "_socket.socket",
    request: "Mapping[str, object]",
    fds: "list[int]",
    node: "NodePlugins",
    mount: str,
    sources: Sources,
) -> "Mapping[str, object]":
    """One stepd, born in its own cgroup. Returns the answer to the daemon; in the child it does not return."""
    for path in request["plugins"]:  # type: ignore[attr-defined]
        sources.refresh(path)
    group = str(request["cgroup"])
    spec = str(request["spec"])
    place = -1
    try:
        # Here and not in the stepd: what is decoded before the fork costs no copied page after it.
        step = Step.from_json(lean_json.load_object(kernel_file.read(spec)))
        if group:
            place = cgroup.Group(f"{mount}{group}/stepd").open()
        try:
            pid = _kernel.fork_into(place) if place >= 0 else os.fork()
        except OSError as error:
            if place < 0 or error.errno not in stepd.NO_BIRTH:
                raise
            pid = os.fork()
            if pid == 0:
                cgroup.Group(f"{mount}{group}/stepd").add(0)
        if pid == 0:
            channel.close()
            os.close(LOCK)
            stem = spec.removesuffix(".json")
            _become_stepd(step, stem, fds, node, mount, sources, traced=bool(request["trace"]))
    except OSError as error:
        what = f"start a step runner: {error.strerror}"
        return {"step": request["step"], "error": f"{what}: {error.filename}" if error.filename else what}
    finally:
        if place >= 0:
            os.close(place)
    return {"step": request["step"], "pid": pid}


def _become_stepd(  # as _fork
    step: Step, stem: str, fds: "list[int]", node: "NodePlugins", mount: str, sources: Sources, *, traced: bool
) -> "NoReturn":
    lock, board, listener, link = fds[:_FIXED]  # the trace file, whose lock says that this stepd lives
    client = fds[_FIXED:] or [-1, -1, -1, -1]
    trace = lock if traced else -1
    stepd.main(step, stem, Descriptors(trace, board, listener, link, client), node, mount, sources.__getitem__)


def _one_thread() -> None:
    """A fork of a threaded process inherits whatever locks the other threads held. Checked, not hoped."""
    if len(os.listdir("/proc/self/task")) != 1:
        sys.exit("nodectl forkserver: a plugin left a thread running at start")
