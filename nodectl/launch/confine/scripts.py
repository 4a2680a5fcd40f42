"""Scripts around tasks and in containers, and their execution.

TaskProlog and TaskEpilog, the site's and the user's, run around a task as the user; scripts and programs of job
containers run as root, unconfined.

A task prolog changes its task by its standard output: `export NAME=VALUE`, `unset NAME`, `print TEXT`, each at the
start of a line; other lines are ignored. Order: the site's first before a task, the user's first after it.
"""

import _signal
import os
import select
import time

from nodectl.kernel import signals, user_path
from nodectl.kernel.children import NO_PROGRAM
from nodectl.kernel.closing import close_all_but

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from nodectl.launch.confine.confinement import Confinement

_CHUNK = 65536
_MOST = 1 << 20  # bytes; what a prolog writes beyond is ignored


def run(
    path: str, environment: "Mapping[str, str]", *, words: "Iterable[str]" = (), timeout: float | None = None,
    confinement: "Confinement | None" = None,
) -> tuple[int, bytes]:  # fmt: skip
    """Run a script, or a program with `words`, in a new process group. Returns the exit status and the output.

    The status is 1 for a signal or a time-out. Raises OSError where it cannot be forked.

    Reads until the output and the script have ended. Processes left by the script in its group are killed.
    """
    status, output = _run([path, *words], environment, timeout, confinement)
    code = os.waitstatus_to_exitcode(status)
    return (code if code >= 0 else 1), output


def start_as(
    path: str, environment: "Mapping[str, str]", cwd: str, *, errors: int, become: "Callable[[], bool]",
    confinement: "Confinement", words: "Iterable[str]" = (), source: int = -1,
) -> int:  # fmt: skip
    """Start a script, or a program with `words`, as the user, called by root, in a new process group. Returns the pid.

    It reads from the descriptor `source`, -1 for nothing. Its standard error goes to `errors`, its output nowhere.
    `become` makes the process its user's; if that fails the script does not run. The pid is for a caller that waits for
    its children anyway. Raises OSError where it cannot be forked.
    """
    pid = os.fork()
    if pid == 0:
        argv = [path, *words]
        _become_script(argv, environment, -1, confinement, errors=errors, become=become, cwd=cwd, source=source)
    _lead_group(pid)
    return pid


def _lead_group(pid: int) -> None:
    """Make the script the leader of a group. Called by both processes.

    A script whose time is over before it has run must be in its group to be killed.
    """
    try:
        os.setpgid(pid, pid)
    except OSError:
        pass  # it has executed its program, or has ended


def _run(
    argv: list[str], environment: "Mapping[str, str]", timeout: float | None, confinement: "Confinement | None"
) -> tuple[int, bytes]:
    """Return wait status and output."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if pid == 0:
        _become_script(argv, environment, writer, confinement, errors=writer)
    os.close(writer)
    _lead_group(pid)
    pidfd = os.pidfd_open(pid)
    output = _gather(reader, pidfd, timeout)
    os.close(reader)
    os.close(pidfd)
    signals.send_group_of_child(pid, signals.KILL)
    _, status = os.waitpid(pid, 0)
    return status, output


def _become_script(
    argv: list[str], environment: "Mapping[str, str]", writer: int, confinement: "Confinement | None", *, errors: int,
    become: "Callable[[], bool] | None" = None, cwd: str | None = None, source: int = -1,
) -> None:  # fmt: skip
    """Execute the script in the new process. `writer` takes the output, -1 for nothing; `errors` standard error."""
    try:
        os.setpgid(0, 0)
        for number in range(1, _signal.NSIG):
            if _signal.getsignal(number) == _signal.SIG_IGN:  # the stepd and the task ignore some
                _signal.signal(number, _signal.SIG_DFL)
        if become is not None and not become():
            return
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        os.dup2(null if source < 0 else source, 0, inheritable=True)  # not the task's own input
        os.dup2(null if writer < 0 else writer, 1, inheritable=True)
        os.dup2(errors, 2, inheritable=True)
        close_all_but()  # a plugin's descriptors may lack close-on-exec
        if cwd is not None:
            _go_to(cwd)
        if confinement is not None:
            confinement.confine()
        os.execve(argv[0], argv, environment)
    finally:
        os._exit(NO_PROGRAM)


def _go_to(directory: str) -> None:
    try:
        user_path.go_to(directory)
    except OSError:
        os.chdir("/tmp")  # as a task


def _gather(reader: int, pidfd: int, timeout: float | None) -> bytes:
    """Read until the script has ended or the time is over. Returns the output, up to a limit.

    It reads on beyond the limit, so that the script never blocks.
    """
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    poll.register(pidfd, select.POLLIN)
    output = b""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        ready = poll.poll(None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000)
        if not ready or (deadline is not None and time.monotonic() >= deadline):
            return output
        fds = {fd for fd, _ in ready}
        data = os.read(reader, _CHUNK) if reader in fds else b""
        if len(output) < _MOST:
            output += data
        if not data and pidfd in fds:
            return output
        if not data and reader in fds:
            poll.unregister(reader)


def apply_prolog(output: bytes, environment: dict[str, str]) -> bytes:
    """Apply a prolog's lines to the task's environment. Returns the text to print on the task's stdout."""
    printed = b""
    for line in output.split(b"\n"):
        command, _, rest = line.partition(b" ")
        if command == b"print":
            printed += rest.lstrip() + b"\n"
        elif command == b"export" and b"=" in rest:
            name, _, value = rest.partition(b"=")
            if name.strip() and b"\0" not in rest:
                environment[os.fsdecode(name.strip())] = os.fsdecode(value)
        elif command == b"unset":
            environment.pop(os.fsdecode(rest.strip()), None)
    return printed
