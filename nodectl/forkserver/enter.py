"""Enters a running job's container from outside of its steps, for `nodectl enter` and `nodectl bcast`.

Part of a container request (`container_requests.py`), root: a child is put among the step's processes, so that it ends
with them, joins the job's container, becomes the job's user, and only then opens or executes anything.
"""

import _signal
import _socket
import errno
import fcntl
import os
import select
import termios

from nodectl import messages
from nodectl.cgroup import tree
from nodectl.confine.confinement import Confinement
from nodectl.kernel import _kernel, signals
from nodectl.kernel.closing import close_all_but
from nodectl.kernel.identity import become_user, sign_in
from nodectl.plugin_api import PluginError
from nodectl.plugin_host import BUILTIN_DIR
from nodectl.task import environment, rlimits
from nodectl.task.stages import program
from nodectl.wire import framing
from nodectl.wire.names import STEP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nodectl.model.step import Step
    from nodectl.plugin_host.caller import PluginCaller
    from nodectl.plugin_host.loader import Plugin

_STREAMS = 3
_LONGEST = 4096
_LONGEST_STATUS = 8 << 20
_PATIENCE = 60  # seconds for a stepd whose hooks may take any time


def execute(request: "Mapping[str, object]", step: "Step", fds: "list[int]") -> None:
    """Executes the program with the job's environment. The first fds are its standard streams, perhaps a terminal."""
    for number, fd in enumerate(fds[:_STREAMS]):
        os.dup2(fd, number, inheritable=True)
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in range(1, _signal.NSIG):
        if _signal.getsignal(number) == _signal.SIG_IGN:
            _signal.signal(number, _signal.SIG_DFL)
    os.umask(step.umask)
    variables = {**step.environment, **environment.announced(step), **environment.for_step(step)}
    variables.update(request["environment"])  # type: ignore[call-overload]  # the daemon's words
    argv: list[str] = request["argv"] or [variables.get("SHELL", "/bin/sh")]  # type: ignore[assignment]
    _kernel.cloexec_from(3)
    rlimits.set_soft(step.rlimits)
    _kernel.perform(program(argv, variables), None)


def enter(
    act: "Callable[[Mapping[str, object], Step, list[int]], None]",
    request: "Mapping[str, object]",
    step: "Step",
    fds: "list[int]",
    plugin: "Plugin",
    plugin_caller: "PluginCaller",
) -> tuple[str, int]:
    """Runs `act` in the job's container. Returns what went wrong, "" for nothing, and the child's exit status.

    The last descriptor is a pipe of the caller's: when its other end is closed nobody waits for the child, and it is
    killed. Where the plugin fails the child ends: nothing runs outside of the container. Raises OSError, PluginError.
    """
    if not fds:
        return "the descriptors of the call never came", 1
    caller = fds.pop()
    mount = tree.find_mount()
    if "container_p_add_cont" in plugin.hooks:
        # The built-in plugin does not use the number: so it need not wait for a stepd that is in a hook.
        built_in = plugin.path.startswith(BUILTIN_DIR)
        tracked = 0 if built_in else _container_id(str(request["spec"]), step)
        _require(plugin_caller, plugin, "container_p_add_cont", (step.job_id, tracked))
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _run_child(act, request, step, fds, plugin, plugin_caller, mount, writer)
    os.close(writer)
    framing.close(fds)  # a terminal ends when its last holder has gone
    why = _wait_for(pid, reader, caller)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return why.decode(errors="replace"), code if code >= 0 else 128 - code


def _require(plugin_caller: "PluginCaller", plugin: "Plugin", call: str, arguments: "Sequence[object]") -> None:
    """Calls the plugin's function, if it has one. Raises PluginError for what is a failure in a launch, too."""
    function = plugin.hooks.get(call)
    if function is None:
        return
    messages.speaker(plugin.type)
    outcome = plugin_caller.silent(function, arguments)
    if not outcome:
        raise PluginError(outcome.errno or errno.EIO, f"plugin {plugin.type}: {call}: {outcome.why}")


def _container_id(spec: str, step: "Step") -> int:
    """Asks the step's stepd for the number that the tracker gave the step's processes. Raises OSError where the stepd
    does not answer, as during a plugin's long hook.
    """
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC, 0)
    try:
        sock.settimeout(step.hook_timeout or _PATIENCE)
        sock.connect(f"{spec.removesuffix('.json')}.sock")
        framing.send(sock, {"method": f"{STEP}.Status", "parameters": {}})
        reply = framing.receive(sock, framing.Inbox(_LONGEST_STATUS)) or {}
        return int(reply["parameters"]["step"]["container_id"])  # type: ignore[index]
    except (OSError, framing.BrokenWire, KeyError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "no answer"
        raise OSError(errno.EAGAIN, f"ask the step runner for the step's processes: {why}") from None
    finally:
        sock.close()


def _wait_for(pid: int, errors: int, caller: int) -> bytes:
    """Waits until the child has ended, and kills it when the caller has gone. Returns the error that it wrote."""
    child = os.pidfd_open(pid)
    poll = select.poll()
    for fd, events in ((child, select.POLLIN), (errors, select.POLLIN), (caller, 0)):
        poll.register(fd, events)
    text = b""
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if errors in ready:
            data = os.read(errors, _LONGEST)
            text += data
            if not data:
                poll.unregister(errors)
        elif child in ready:
            return text
        if caller in ready:
            signals.send(child, signals.KILL)
            poll.unregister(caller)


def _join_processes(user: tree.Group, step: "Step") -> None:
    """Puts the caller among the step's processes. Raises OSError before the step's devices are confined."""
    if step.device_rules:
        fd = user.open()
        confined = _kernel.device_programs(fd)
        os.close(fd)
        if not confined:
            raise OSError(errno.EAGAIN, "the step has not begun yet")
    user.child("visitors").make().add(0)


def _go_to(directory: str) -> None:
    try:
        os.chdir(directory)
    except OSError:
        os.chdir("/tmp")  # as a task


def _run_child(  # everything that the child needs
    act: "Callable[[Mapping[str, object], Step, list[int]], None]",
    request: "Mapping[str, object]",
    step: "Step",
    fds: "list[int]",
    plugin: "Plugin",
    plugin_caller: "PluginCaller",
    mount: str,
    errors: int,
) -> None:
    status = 1
    try:
        os.setsid()
        sign_in(step.uid)
        if not step.cgroup:
            raise OSError(errno.EOPNOTSUPP, "the node tracks no cgroups, so nothing would end it with the job")
        rlimits.set_hard(step.hard_limits)
        _join_processes(tree.Group(f"{mount}{step.cgroup}/user"), step)
        _require(plugin_caller, plugin, "container_p_add_pid", (step.job_id, os.getpid(), step.uid))
        confinement = Confinement(step, step.environment)
        confinement.limit_capabilities()
        become_user(step.identity)
        close_all_but((*fds, errors))
        _go_to(step.cwd)
        confinement.confine()
        act(request, step, fds)
        status = 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        os.write(errors, f"{where}{error.strerror} (as {step.user_name})".encode())
    except BaseException as error:  # the top of a process
        os.write(errors, str(error)[:_LONGEST].encode())
    finally:
        os._exit(status)
