"""A private node: a daemon for the length of a command of root's, or of `nodectl --user`, where no service runs.

It has a runtime directory and a cgroup of its own, shares the history with the service to come, and ends when the
command does: the daemon reads the end of a pipe held only by the command, however the command ends.

It is a fork of the command, which has the same user, and has already imported and read what a daemon begins with. Where
the command runs inside a foreign program, with threads, modules or a file system encoding of its own, the daemon is
executed instead.
"""

import gc
import importlib
import os
import select
import signal
import sys
from typing import TYPE_CHECKING

from nodectl.client import patience
from nodectl.client.command import Failed
from nodectl.model.config import Config, own_node
from nodectl.spank import probe_variable

if TYPE_CHECKING:
    from typing import NoReturn

_START = (
    "import gc, os, sys; gc.disable(); "  # until it serves: a tenth of its imports
    "sys.path[:0] = {path!r}; from nodectl.cli import daemon; "
    "os._exit(daemon.private({directory!r}, {config!r}))"  # a plugin may have left a thread
)
_READY = 3  # where the node tells that it listens
# Where a user's own node has its files: `config_file/own_node.py`.
_PLACES = ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")


def start(config_path: str | None, config: Config, seconds: float) -> tuple[int, int, str]:
    """Start a private node and wait until the node listens. Raises Failed.

    Return the pid, the pipe whose end ends the node, and the socket.
    """
    directory = f"{config.runtime_dir}/private.{os.getpid()}"
    try:
        os.makedirs(config.runtime_dir, mode=0o755, exist_ok=True)
        if own_node.is_own(config_path):
            own_node.must_be_ours(config.runtime_dir)
    except OSError as error:
        raise Failed(f"start a private node: {config.runtime_dir}: {error.strerror}") from None
    except own_node.NotOurs as error:
        raise Failed(f"start a private node: {error}") from None
    reader, writer = os.pipe2(os.O_CLOEXEC)
    ready, told = os.pipe2(os.O_CLOEXEC)
    if _may_be_forked():
        pid = _fork(reader, told, directory, config_path, config)
    else:
        pid = _execute(reader, told, directory, config_path)
    os.close(reader)
    os.close(told)
    from nodectl.client import launch_request  # noqa: F401  # imported while the node starts

    patience.tell(ready, "a private node to start, as no service runs")
    poll = select.poll()
    poll.register(ready, select.POLLIN)
    listening = bool(poll.poll(seconds * 1000)) and os.read(ready, 1) == b"1"
    os.close(ready)
    if not listening:
        os.close(writer)
        os.waitpid(pid, 0)
        raise Failed("start a private node: it did not come up (its own message is above)")
    return pid, writer, f"{directory}/nodectl.sock"


def _may_be_forked() -> bool:
    """Return True if this process is a command of nodectl's alone, with the interpreter of a daemon."""
    alone = sys.flags.isolated and sys.flags.no_site and len(os.listdir("/proc/self/task")) == 1
    return bool(alone) and sys.getfilesystemencoding() == "utf-8"


def _environment() -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "NODECTL_READY_FD": str(_READY),
        **{name: os.environ[name] for name in _PLACES if name in os.environ},
        **probe_variable.environment(),
    }


def _fork(reader: int, told: int, directory: str, config_path: str | None, config: Config) -> int:
    """Fork the node and return the pid. Raises OSError."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        pid = os.fork()
        if pid == 0:
            _be_the_node(reader, told, before)
            _serve(directory, config_path, config)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _be_the_node(reader: int, told: int, before: "set[int]") -> None:
    """Set up the fork: keep the imports, and the signals blocked or ignored before."""
    os.setpgid(0, 0)  # a Ctrl-C at the terminal is for the step, not for its node
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # also one that has come already
    signal.signal(signal.SIGINT, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.dup2(reader, 0)
    os.dup2(told, _READY, inheritable=False)
    os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
    os.closerange(_READY + 1, os.sysconf("SC_OPEN_MAX"))
    kept = _environment()
    os.environ.clear()
    os.environ.update(kept)


def _serve(directory: str, config_path: str | None, config: Config) -> "NoReturn":
    status = 1
    try:
        gc.disable()  # until it serves
        daemon = importlib.import_module("nodectl.cli.daemon")  # no module of a command imports the daemon
        status = daemon.private(directory, config_path, config)
    except BaseException:  # the top of a process
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)  # a plugin may have left a thread


def _execute(reader: int, told: int, directory: str, config_path: str | None) -> int:
    """Execute the node and return the pid. Raises OSError."""
    code = _START.format(path=[p for p in sys.path if p], directory=directory, config=config_path)
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-c", code],
        _environment(),
        file_actions=[
            (os.POSIX_SPAWN_DUP2, reader, 0),
            (os.POSIX_SPAWN_DUP2, told, _READY),
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
        ],
        setpgroup=0,  # as in _be_the_node: a Ctrl-C is for the step, not for its node
    )
