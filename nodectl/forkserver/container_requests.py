"""Errands: what is done to a job's container outside of a step, each in a process that the forkserver forks.

    {"container": "delete", "spec": path, "timeout": s}   container_p_delete for the step's job
    {"container": "restore", "plugin": type, "base": path, "timeout": s}
                                                          container_p_restore, after the start of a daemon
    {"container": "reconfigure", "timeout": s}            container_p_reconfig, in the forkserver itself: its children
                                                          to come are to know it

    {"container": "enter" or "bcast", "spec": path, ...}  a visit to a running job's container (`visit.py`)

The first descriptor is a connection. It takes the answer, {"why": ""} or one line, and hands over the step's trace, if
it has one. For a visit there is a second, through which its user hands over what came with the request. Root, one
thread, lean; what blocks here blocks nobody else.
"""

import _signal
import _socket
import os
import sys

import prctl

from nodectl import container, messages
from nodectl.confine import confinement
from nodectl.forkserver import enter
from nodectl.kernel import pseudo_file
from nodectl.kernel.closing import close_in_time
from nodectl.model.step import Step
from nodectl.plugin_api import PluginError
from nodectl.plugin_host.caller import PluginCaller
from nodectl.plugin_host.loader import PluginRefused
from nodectl.tracing.recorder import Recorder
from nodectl.wire import framing, lean_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from nodectl.plugin_host.caller import Outcome
    from nodectl.plugin_host.node_plugins import NodePlugins

_LONGEST_ANSWER = 4096


def begin(request: "Mapping[str, object]", fds: "list[int]", node: "NodePlugins", others: "tuple[int, ...]") -> None:
    """Does the errand or forks who does it, and closes the descriptors; `others` are the forkserver's own."""
    try:
        if request["container"] == "reconfigure":
            _reconfigure(request, node)
            return
        if os.fork() == 0:
            for fd in others:
                os.close(fd)
            _main(request, fds, node)
    except OSError as error:
        _answer(fds[0], f"fork: {error.strerror}")
    finally:
        close_in_time(fds)


def _main(request: "Mapping[str, object]", given: "list[int]", node: "NodePlugins") -> "NoReturn":
    status = 1
    answer = given[0]
    try:
        os.setsid()
        prctl.set_name("nodectl-errand")
        messages.log("errand")
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # a plugin's scripts are waited for
        name = str(request["container"])
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, answer)
        fds = [answer, *framing.take_over(connection)]
        if name in _VISITS:
            streams = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, given[1])
            _visit(_VISITS[name], request, [answer, *framing.take_over(streams)], node)
        else:
            _answer(answer, _ERRANDS[name](request, fds, node))
        status = 0
    except BaseException:  # the top of a process
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _introduced(request: "Mapping[str, object]") -> Step:
    path = str(request["spec"])
    step = Step.from_json(lean_json.load_object(pseudo_file.read(path)))
    container.introduce(step, path)
    messages.concerns(step.job_id)
    return step


def _visit(
    act: "Callable[[Mapping[str, object], Step, list[int]], None]",
    request: "Mapping[str, object]",
    fds: "list[int]",
    node: "NodePlugins",
) -> None:
    answer, *theirs = fds
    status = 1
    try:
        step = _introduced(request)
        confinement.load(confinement.PROGRAMS, step.secure)
        caller = _caller(Recorder(-1, "container"), step.hook_timeout, answer)
        why, status = enter.visit(act, request, step, theirs, node.for_job(step).container, caller)
    except (OSError, PluginError, PluginRefused) as error:
        why = str(error)
    _answer(answer, why, status)


def _delete(request: "Mapping[str, object]", fds: "list[int]", node: "NodePlugins") -> str:
    step = _introduced(request)
    recorder = Recorder(fds[1] if len(fds) > 1 else -1, "container")
    caller = _caller(recorder, _seconds(request), fds[0])
    try:
        return node.for_job(step).call_container(caller, "container_p_delete", (step.job_id,)).why
    except PluginRefused as refused:
        return str(refused)


def _restore(request: "Mapping[str, object]", fds: "list[int]", node: "NodePlugins") -> str:
    container.introduce_base(str(request["base"]))
    try:
        node = node.with_container(str(request["plugin"]))
    except PluginRefused as refused:
        return str(refused)
    return _why(node, "container_p_restore", _silently(node, "container_p_restore", request, fds[0]))


def _reconfigure(request: "Mapping[str, object]", node: "NodePlugins") -> None:
    why = _why(node, "container_p_reconfig", _silently(node, "container_p_reconfig", request, -1))
    if why:
        print(f"nodectl forkserver: {why}", file=sys.stderr)


def _silently(node: "NodePlugins", call: str, request: "Mapping[str, object]", answer: int) -> "Outcome | None":
    function = node.container.hooks.get(call)
    if function is None:
        return None
    messages.speaker(node.container.type)
    return _caller(Recorder(-1, "container"), _seconds(request), answer).silent(function, ())


def _why(node: "NodePlugins", call: str, outcome: "Outcome | None") -> str:
    return "" if outcome is None or outcome else f"plugin {node.container.type}: {call}: {outcome.why}"


def _seconds(request: "Mapping[str, object]") -> float:
    return float(str(request["timeout"]))


def _caller(recorder: Recorder, seconds: float, answer: int) -> PluginCaller:
    late = f"took longer than {seconds:g} s"
    return PluginCaller(recorder, None, 0, seconds, single_threaded=False, last_words=lambda: _answer(answer, late))


def _answer(fd: int, why: str, status: int = 0) -> None:
    try:
        os.write(fd, lean_json.dumps({"why": why[:_LONGEST_ANSWER], "status": status}).encode("ascii"))
    except OSError:
        pass  # who asked has gone; the next daemon asks again


_ERRANDS: "Mapping[str, Callable[[Mapping[str, object], list[int], NodePlugins], str]]" = {
    "delete": _delete,
    "restore": _restore,
}
_VISITS: "Mapping[str, Callable[[Mapping[str, object], Step, list[int]], None]]" = {
    "enter": enter.enter,
    "bcast": enter.bcast,
}
