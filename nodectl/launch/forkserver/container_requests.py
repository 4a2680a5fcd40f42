"""Container requests: the daemon's orders for a job's container, outside of any step.

    {"container": "delete", "spec": path, "timeout": s}   container_p_delete for the step's job
    {"container": "restore", "plugin": type, "base": path, "timeout": s}
                                                          container_p_restore, after the start of a daemon
    {"container": "reconfigure", "timeout": s}            container_p_reconfig, in the forkserver itself, for the
                                                          processes that it forks later

    {"container": "enter" or "bcast", "spec": path, ...}  a program or a file for a running job's container (`enter.py`,
                                                          `bcast.py`)

The forkserver forks a process for each request but "reconfigure": root, one thread. A process that blocks delays no
other request. The descriptor is a connection: it brings the step's trace, if there is one, and takes the answer,
{"why": ""} or one line. For "enter" and "bcast", {"ready": true} may come before the answer, with a socket: the
descriptors that the user sent with the call go there, and never into a process of root's.
"""

import _signal
import _socket
import os
import sys

import prctl

from nodectl import messages
from nodectl.kernel import pseudo_file
from nodectl.kernel.closing import close_in_time
from nodectl.launch import container
from nodectl.launch.confine import confinement
from nodectl.launch.forkserver import bcast, enter
from nodectl.model import launch_order
from nodectl.model.step import Step
from nodectl.model.wire import framing, lean_json
from nodectl.plugin_api import PluginError
from nodectl.plugin_host.caller import PluginCaller
from nodectl.plugin_host.loader import PluginRefused
from nodectl.plugin_host.tracing.recorder import Recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from nodectl.launch.forkserver.runners import Runners
    from nodectl.plugin_host.node_plugins import NodePlugins

_LONGEST_ANSWER = 4096


def begin(
    request: "Mapping[str, object]",
    fds: "list[int]",
    node: "NodePlugins",
    runners: "Runners",
    others: "tuple[int, ...]",
) -> None:
    """Serve the request here or in a forked process, and close the request's descriptors.

    `runners` and `others` are the forkserver's.
    """
    try:
        if request["container"] == "reconfigure":
            if why := _call(node, launch_order.CONTAINER_RECONFIG, request, -1):
                messages.tell("container-failed", why)
            runners.spare.let_go()  # it has the old configuration
            return
        if os.fork() == 0:
            runners.let_go()
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
        if name in _IN_CONTAINER:
            _enter(_IN_CONTAINER[name], request, answer, node)
        else:
            _answer(answer, _PLUGIN_CALLS[name](request, fds, node))
        status = 0
    except framing.DescriptorsLost as lost:
        _answer(answer, f"receive the descriptors of a container request: {lost.strerror}")
    except BaseException:  # the top of a process
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _read_step(request: "Mapping[str, object]") -> Step:
    path = str(request["spec"])
    step = Step.from_json(lean_json.load_object(pseudo_file.read(path)))
    container.introduce(step, path)
    messages.concerns(step.job_id)
    return step


def _enter(
    act: "Callable[[Mapping[str, object], Step, list[int]], None]",
    request: "Mapping[str, object]",
    answer: int,
    node: "NodePlugins",
) -> None:
    status = 1
    try:
        step = _read_step(request)
        confinement.load(confinement.PROGRAMS, step.secure)
        caller = _caller(Recorder(-1, "container"), step.hook_timeout, answer)
        why, status = enter.enter(act, request, step, answer, node.for_job(step).container, caller)
    except (OSError, PluginError, PluginRefused) as error:
        why = str(error)
    _answer(answer, why, status)


def _delete(request: "Mapping[str, object]", fds: "list[int]", node: "NodePlugins") -> str:
    step = _read_step(request)
    recorder = Recorder(fds[1] if len(fds) > 1 else -1, "container")
    caller = _caller(recorder, _seconds(request), fds[0])
    try:
        return node.for_job(step).call(caller, launch_order.CONTAINER_DELETE, (step.job_id,)).why
    except PluginRefused as refused:
        return str(refused)


def _restore(request: "Mapping[str, object]", fds: "list[int]", node: "NodePlugins") -> str:
    container.introduce_base(str(request["base"]))
    try:
        node = node.with_container(str(request["plugin"]))
    except PluginRefused as refused:
        return str(refused)
    return _call(node, launch_order.CONTAINER_RESTORE, request, fds[0])


def _call(node: "NodePlugins", call: str, request: "Mapping[str, object]", answer: int) -> str:
    """Call a function of the container plugin that is no row of a launch. Return the error, "" for none."""
    function = node.container.hooks.get(call)
    if function is None:
        return ""
    messages.speaker(node.container.type)
    outcome = _caller(Recorder(-1, "container"), _seconds(request), answer).silent(function, ())
    return "" if outcome else f"plugin {node.container.title}: {call}: {outcome.why}"


def _seconds(request: "Mapping[str, object]") -> float:
    return float(str(request["timeout"]))


def _caller(recorder: Recorder, seconds: float, answer: int) -> PluginCaller:
    late = f"took longer than {seconds:g} s"
    return PluginCaller(recorder, None, 0, seconds, single_threaded=False, last_words=lambda: _answer(answer, late))


def _answer(fd: int, why: str, status: int = 0) -> None:
    try:
        os.write(fd, lean_json.dumps({"why": why[:_LONGEST_ANSWER], "status": status}).encode("ascii"))
    except OSError:
        pass  # the daemon has gone; the next one asks again


_PLUGIN_CALLS: "Mapping[str, Callable[[Mapping[str, object], list[int], NodePlugins], str]]" = {
    "delete": _delete,
    "restore": _restore,
}
_IN_CONTAINER: "Mapping[str, Callable[[Mapping[str, object], Step, list[int]], None]]" = {
    "enter": enter.execute,
    "bcast": bcast.write,
}
