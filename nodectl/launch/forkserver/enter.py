"""Enters a running job's container from outside of the job's steps, for `nodectl enter` and `nodectl bcast`.

    request (root)        calls the plugin, forks the guard, and waits for it; it holds no descriptor that the user sent
      guard (the user)    enters the cgroup of the step's processes, so that it ends with them, joins the job's
                          container, becomes the job's user, and only then receives the user's descriptors
        visitor           executes the program, or writes the file

Closing a user's descriptor may take for ever, and no signal ends it. So only the guard and the visitor ever hold it:
they count among the user's processes, and the request, which the daemon counts as a call of the user's, lasts as long.
Part of a container request (`container_requests.py`).
"""

import _signal
import _socket
import errno
import fcntl
import os
import select
import termios

import prctl

from nodectl import messages
from nodectl.kernel import _kernel, signals
from nodectl.kernel.closing import close_all_but
from nodectl.launch.cgroup import tree
from nodectl.launch.confine.confinement import Confinement
from nodectl.launch.task import environment, rlimits, users_process
from nodectl.launch.task.stages import program
from nodectl.model import launch_order
from nodectl.model.wire import framing
from nodectl.model.wire.names import STEP
from nodectl.plugin_api import PluginError
from nodectl.plugin_host import BUILTIN_DIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import NoReturn

    from nodectl.model.step import Step
    from nodectl.plugin_host.caller import PluginCaller
    from nodectl.plugin_host.loader import Plugin

    Act = Callable[[Mapping[str, object], Step, list[int]], None]

_STREAMS = 3
READY = b'{"ready":true}'
_LONGEST = 4096
_LONGEST_STATUS = 8 << 20
_PATIENCE = 60  # seconds for a stepd whose hooks may take any time


def execute(request: "Mapping[str, object]", step: "Step", fds: "list[int]") -> None:
    """Execute the program with the job's environment. The first fds are the standard streams, perhaps a terminal."""
    for number, fd in enumerate(fds[:_STREAMS]):
        os.dup2(fd, number, inheritable=True)
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in range(1, _signal.NSIG):
        if _signal.getsignal(number) == _signal.SIG_IGN:
            _signal.signal(number, _signal.SIG_DFL)
    variables = {**step.environment, **environment.announced(step), **environment.for_step(step)}
    variables.update(request["environment"])  # type: ignore[call-overload]  # the daemon's words
    argv: list[str] = request["argv"] or [variables.get("SHELL", "/bin/sh")]  # type: ignore[assignment]
    _kernel.cloexec_from(3)
    rlimits.set_soft(step.rlimits)
    _kernel.perform(program(argv, variables), None)


def enter(
    act: "Act",
    request: "Mapping[str, object]",
    step: "Step",
    answer: int,
    plugin: "Plugin",
    plugin_caller: "PluginCaller",
) -> tuple[str, int]:
    """Run `act` in the job's container. Return the error, "" for none, and the visitor's exit status.

    The guard sends READY through `answer`, with the socket by which it receives the descriptors of the call. If the
    plugin fails, the guard ends: nothing runs outside of the container. Raises OSError, PluginError.
    """
    mount = tree.find_mount()
    if launch_order.CONTAINER_ADD_CONT.call in plugin.hooks:
        # The built-in plugin does not use the number, so it need not wait for a stepd in a hook.
        built_in = plugin.path.startswith(BUILTIN_DIR)
        tracked = 0 if built_in else _container_id(str(request["spec"]), step)
        _require(plugin_caller, plugin, launch_order.CONTAINER_ADD_CONT.call, (step.job_id, tracked))
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _guard(act, request, step, answer, plugin, plugin_caller, mount, writer)
    os.close(writer)
    why = _wait_for(pid, reader)
    _, status = os.waitpid(pid, 0)
    return why.decode(errors="replace"), _exit_status(status)


def _exit_status(status: int) -> int:
    """Return a shell's exit status for a status of wait(2)."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _require(plugin_caller: "PluginCaller", plugin: "Plugin", call: str, arguments: "Sequence[object]") -> None:
    """Call the plugin's function, if defined. Raises PluginError where a launch would fail, too."""
    function = plugin.hooks.get(call)
    if function is None:
        return
    messages.speaker(plugin.type)
    outcome = plugin_caller.silent(function, arguments)
    if not outcome:
        raise PluginError(outcome.errno or errno.EIO, f"plugin {plugin.title}: {call}: {outcome.why}")


def _container_id(spec: str, step: "Step") -> int:
    """Ask the step's stepd for the number which the tracker gave the step's processes.

    Raises OSError if the stepd does not answer, as during a plugin's long hook.
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


def _wait_for(pid: int, errors: int) -> bytes:
    """Wait for the child's end. Return the beginning of the error written by the child."""
    child = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(child, select.POLLIN)
    poll.register(errors, select.POLLIN)
    text = b""
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if errors in ready:
            data = os.read(errors, _LONGEST)
            text = (text + data)[:_LONGEST]
            if not data:
                poll.unregister(errors)
        elif child in ready:
            return text


def _go_to(directory: str) -> None:
    try:
        os.chdir(directory)
    except OSError:
        os.chdir("/tmp")  # as a task


def _guard(  # everything the guard needs
    act: "Act",
    request: "Mapping[str, object]",
    step: "Step",
    answer: int,
    plugin: "Plugin",
    plugin_caller: "PluginCaller",
    mount: str,
    errors: int,
) -> "NoReturn":
    """Run the guard, as root at first."""
    status = 1
    try:
        if not step.cgroup:
            raise OSError(errno.EOPNOTSUPP, "the node tracks no cgroups, so nothing would end it with the job")
        visitors = tree.make_among(f"{mount}{step.cgroup}", tree.VISITORS, confined=bool(step.device_rules))
        confinement = Confinement(step, step.environment)

        def join() -> bool:
            arguments = (step.job_id, os.getpid(), step.uid)
            _require(plugin_caller, plugin, launch_order.CONTAINER_ADD_PID.call, arguments)
            return True

        users_process.become(step, confinement, group=visitors, enter=join, signs_in=True)
        prctl.set_dumpable(0)  # until the visitor executes a program, no process looks into guard or visitor
        fds = _receive(answer, errors)
        status = _be_guard(_begin_visitor(act, request, step, fds, confinement, errors), fds)
    except BaseException as error:  # the top of a process
        _tell(errors, step, error)
    finally:
        os._exit(status)


def _tell(errors: int, step: "Step", error: BaseException) -> None:
    text = str(error)[:_LONGEST]
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        text = f"{where}{error.strerror} (as {step.user_name})"
    os.write(errors, text.encode())


def _receive(answer: int, errors: int) -> "list[int]":
    """As the user, let the daemon send the call's descriptors here and nowhere else. Raises OSError."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    theirs.shutdown(_socket.SHUT_RD)
    close_all_but((answer, errors, ours.fileno(), theirs.fileno()))
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, answer)
    framing.send_some(channel, READY, [theirs.fileno()])
    channel.close()
    theirs.close()
    fds = framing.take_over(ours)
    ours.close()
    if not fds:
        raise OSError(errno.EBADF, "the descriptors of the call never came")
    try:
        fcntl.fcntl(fds[-1], fcntl.F_GETPIPE_SZ)
    except OSError:
        raise OSError(errno.EINVAL, "the last descriptor of the call is no pipe") from None
    return fds


def _begin_visitor(
    act: "Act",
    request: "Mapping[str, object]",
    step: "Step",
    fds: "list[int]",
    confinement: Confinement,
    errors: int,
) -> int:
    """Fork the visitor, which ends with the guard. Return the visitor's pid. Raises OSError."""
    guard = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        prctl.set_pdeathsig(_signal.SIGKILL)
        if os.getppid() != guard:
            return os._exit(status)
        os.setsid()
        os.close(fds.pop())
        _go_to(step.cwd)
        confinement.confine()
        act(request, step, fds)
        status = 0
    except BaseException as error:  # the top of a process
        _tell(errors, step, error)
    finally:
        os._exit(status)


def _be_guard(visitor: int, fds: "list[int]") -> int:
    """Wait for the visitor; kill the visitor when the caller has gone. Return the exit status. Raises OSError.

    The caller has gone when the other end of the last descriptor is closed.
    """
    child, caller = os.pidfd_open(visitor), fds.pop()
    framing.close(fds)  # a terminal ends when its last holder has gone
    poll = select.poll()
    poll.register(child, select.POLLIN)
    poll.register(caller, 0)
    while child not in (ready := [fd for fd, _ in poll.poll()]):
        if caller in ready:
            poll.unregister(caller)
            signals.send(child, signals.KILL)
    return _exit_status(os.waitpid(visitor, 0)[1])
