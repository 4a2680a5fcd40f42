"""A private node: a daemon for the length of one command of root's, or of `nodectl --user`, where no service runs.

It has a runtime directory and a cgroup of its own, shares the history with the service to come, and ends when the
command does: it reads the end of the pipe that only the command holds, however the command ends.
"""

import os
import select
import sys

from nodectl.client import patience
from nodectl.client.command import Failed
from nodectl.config import Config, own_node
from nodectl.spank import probe_variable

_START = (
    "import gc, os, sys; gc.disable(); "  # until it serves: a tenth of its imports
    "sys.path[:0] = {path!r}; from nodectl.cli import daemon; "
    "os._exit(daemon.private({directory!r}, {config!r}))"  # a plugin may have left a thread
)
# Where a user's own node has its files: `config_file/own_node.py`.
_PLACES = ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")


def start(config_path: str | None, config: Config, seconds: float) -> tuple[int, int, str]:
    """Starts it and waits until it listens: its pid, the pipe whose end ends it, its socket. Raises Failed."""
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
    code = _START.format(path=[p for p in sys.path if p], directory=directory, config=config_path)
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-c", code],
        {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "NODECTL_READY_FD": "3",
            **{name: os.environ[name] for name in _PLACES if name in os.environ},
            **probe_variable.environment(),
        },
        file_actions=[
            (os.POSIX_SPAWN_DUP2, reader, 0),
            (os.POSIX_SPAWN_DUP2, told, 3),
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
        ],
        setpgroup=0,  # a Ctrl-C at the terminal is for the step, not for its node
    )
    os.close(reader)
    os.close(told)
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
