"""Visits: a program, or a file, brought into a running job's container from outside of its steps.

An errand's work (`errand.py`): a child is put among the step's processes, so that it ends with them, enters the job's
container, becomes the job's user, and only then opens or executes anything.
"""

import _signal
import _socket
import errno
import fcntl
import os
import select
import stat
import termios

from nodectl import messages
from nodectl.cgroup import tree
from nodectl.confine.confinement import Confinement
from nodectl.kernel import _kernel, signals
from nodectl.kernel.closing import close_all_but
from nodectl.kernel.identity import become_user, sign_in
from nodectl.plugin_api import PluginError
from nodectl.plugin_host.loader import BUILTIN_DIR
from nodectl.task import environment, rlimits
from nodectl.task.main import exec_along_path
from nodectl.wire import framing
from nodectl.wire.names import STEP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nodectl.model.step import Step
    from nodectl.plugin_host.caller import PluginCaller
    from nodectl.plugin_host.loader import Plugin

_CHUNK = 1 << 20
_STREAMS = 3
_LONGEST = 4096
_LONGEST_STATUS = 8 << 20
_PATIENCE = 60  # seconds for a stepd whose hooks may take any time
_OWN_DESCRIPTORS = "/proc/self/fd"


def enter(request: "Mapping[str, object]", step: "Step", fds: "list[int]") -> None:
    """Becomes the program, with the job's environment; the first fds are its standard streams, perhaps a terminal."""
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
    rlimits.soften(step.rlimits)
    error = exec_along_path(argv, variables)
    raise OSError(error.errno, f"execute: {error.strerror}", argv[0])


def bcast(request: "Mapping[str, object]", step: "Step", fds: "list[int]") -> None:
    """Writes what the descriptor holds to the path, whole or not at all; over another file only with `force`."""
    if not stat.S_ISREG(os.fstat(fds[0]).st_mode):
        raise OSError(errno.EINVAL, "what came with the call is no regular file")
    path = os.path.join(step.cwd, str(request["path"]))
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _write_whole(request, fds[0], directory, os.path.basename(path))
    except OSError as error:  # which names, if any, the file that is not whole yet
        why = f"{error.strerror}; --force replaces it" if error.errno == errno.EEXIST else error.strerror
        raise OSError(error.errno, why, path) from None


def _write_whole(request: "Mapping[str, object]", source: int, directory: int, name: str) -> None:
    partial = f".{name[:200]}.{os.urandom(6).hex()}"
    fd = _open_nameless(directory)
    nameless = fd >= 0
    if not nameless:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        while data := os.read(source, _CHUNK):
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        os.fchmod(fd, int(str(request["mode"])) & 0o777)
        if nameless:
            os.link(f"{_OWN_DESCRIPTORS}/{fd}", partial, dst_dir_fd=directory, follow_symlinks=True)
        if request["force"]:
            os.rename(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
        else:
            os.link(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
            os.unlink(partial, dir_fd=directory)
    except BaseException:
        try:
            os.unlink(partial, dir_fd=directory)
        except FileNotFoundError:
            pass  # it had no name yet
        raise


def _open_nameless(directory: int) -> int:
    """A file that goes with its writer, who may be killed while it is not whole; -1 where there is no such thing."""
    if not os.access(_OWN_DESCRIPTORS, os.X_OK):
        return -1  # it could not be given a name
    try:
        return os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=directory)
    except OSError:
        return -1


def visit(
    act: "Callable[[Mapping[str, object], Step, list[int]], None]",
    request: "Mapping[str, object]",
    step: "Step",
    fds: "list[int]",
    plugin: "Plugin",
    plugin_caller: "PluginCaller",
) -> tuple[str, int]:
    """Runs `act` in the job's container. Returns what went wrong, "" for nothing, and the child's exit status.

    The last descriptor is a pipe of the caller's: when its other end is closed nobody waits for the child, and it ends.
    The plugin is called through `door`; what it fails ends the visit: nothing runs outside of the container. Raises
    OSError, PluginError.
    """
    if not fds:
        return "the descriptors of the call never came", 1
    caller = fds.pop()
    mount = tree.find_mount()
    if "container_p_add_cont" in plugin.hooks:
        # The built-in one does not look at it, so that nobody has to wait for a stepd that is in a hook.
        built_in = plugin.path.startswith(BUILTIN_DIR)
        tracked = 0 if built_in else _container_id(str(request["spec"]), step)
        _require(plugin_caller, plugin, "container_p_add_cont", (step.job_id, tracked))
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _be_visitor(act, request, step, fds, plugin, plugin_caller, mount, writer)
    os.close(writer)
    framing.close(fds)  # a terminal ends when its last holder has gone
    why = _wait_for(pid, reader, caller)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return why.decode(errors="replace"), code if code >= 0 else 128 - code


def _require(plugin_caller: "PluginCaller", plugin: "Plugin", call: str, arguments: "Sequence[object]") -> None:
    """Calls the plugin's function, where it has it. Raises PluginError for whatever is a failure in a launch, too."""
    function = plugin.hooks.get(call)
    if function is None:
        return
    messages.speaker(plugin.type)
    outcome = plugin_caller.silent(function, arguments)
    if not outcome:
        raise PluginError(outcome.errno or errno.EIO, f"plugin {plugin.type}: {call}: {outcome.why}")


def _container_id(spec: str, step: "Step") -> int:
    """What the tracker has made for the step's processes: its stepd knows. Raises OSError where that does not answer,
    as while it is in a hook of a plugin for long.
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


def _wait_for(pid: int, told: int, caller: int) -> bytes:
    """Until the child has ended, by SIGKILL when the caller has gone; what it said before."""
    child = os.pidfd_open(pid)
    poll = select.poll()
    for fd, events in ((child, select.POLLIN), (told, select.POLLIN), (caller, 0)):
        poll.register(fd, events)
    said = b""
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if told in ready:
            data = os.read(told, _LONGEST)
            said += data
            if not data:
                poll.unregister(told)
        elif child in ready:
            return said
        if caller in ready:
            signals.send(child, signals.KILL)
            poll.unregister(caller)


def _join_processes(user: tree.Group, step: "Step") -> None:
    """The caller is one of the step's. Raises OSError: before the step's tasks are confined nobody else is there."""
    if step.device_rules:
        place = user.open()
        confined = _kernel.device_programs(place)
        os.close(place)
        if not confined:
            raise OSError(errno.EAGAIN, "the step has not begun yet")
    user.child("visitors").make().add(0)


def _go_to(directory: str) -> None:
    try:
        os.chdir(directory)
    except OSError:
        os.chdir("/tmp")  # as the job's tasks


def _be_visitor(  # what the visit knows, in its child
    act: "Callable[[Mapping[str, object], Step, list[int]], None]",
    request: "Mapping[str, object]",
    step: "Step",
    fds: "list[int]",
    plugin: "Plugin",
    plugin_caller: "PluginCaller",
    mount: str,
    told: int,
) -> None:
    status = 1
    try:
        os.setsid()
        sign_in(step.uid)
        if not step.cgroup:
            raise OSError(errno.EOPNOTSUPP, "the node tracks no cgroups, so nothing would end it with the job")
        rlimits.hold(step.hard_limits)
        _join_processes(tree.Group(f"{mount}{step.cgroup}/user"), step)
        _require(plugin_caller, plugin, "container_p_add_pid", (step.job_id, os.getpid(), step.uid))
        confinement = Confinement(step, step.environment)
        confinement.limit_capabilities()
        become_user(step.identity)
        close_all_but((*fds, told))
        _go_to(step.cwd)
        confinement.confine()
        act(request, step, fds)
        status = 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        os.write(told, f"{where}{error.strerror} (as {step.user_name})".encode())
    except BaseException as error:  # the top of a process
        os.write(told, str(error)[:_LONGEST].encode())
    finally:
        os._exit(status)
