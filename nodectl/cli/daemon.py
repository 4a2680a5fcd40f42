"""`nodectl daemon`: the service itself.

It executes its companions before it imports anything else of the daemon, so that all three import at the same time.
"""

import os
import sys

from nodectl.model import lean_code
from nodectl.service.daemon.processes import companions

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from nodectl.client.command import GlobalOptions
    from nodectl.model.config import Config


def add_arguments(parser: "argparse.ArgumentParser") -> None:
    """Set the epilog of the parser; the command has no options, because the configuration has everything."""
    parser.epilog = (
        "Run by systemd as nodectld.service; in the foreground when run by hand. SIGHUP reads the keys container_* "
        "anew, for the jobs to come, and looks up accounts anew; SIGTERM ends it."
    )


def main(arguments: "argparse.Namespace") -> int:
    """Serve, when argparse has parsed the command line."""
    return serve(arguments.settings)


def serve(settings: "GlobalOptions") -> int:
    """Run the service in the foreground. Return the exit status."""
    if os.geteuid() != 0 and settings.config is None:
        reason = "must be root, to start other users' steps; a node of your own is `nodectl --user daemon`"
        print(f"nodectl daemon: {reason}", file=sys.stderr)
        return 1
    lean_code.begin()  # a service stays
    begun = companions.begin()
    from nodectl.service.daemon.main import run  # beside the companions' imports, and before all that imports typing

    lean_code.end()
    from nodectl.model.config import ConfigError

    read = _reader(settings.config)
    try:
        config = read()
        if settings.socket:
            config = _with(config, socket=settings.socket)
    except ConfigError as error:
        print(f"nodectl daemon: {error}", file=sys.stderr)
        return 1
    return run(config, read, begun)


def private(directory: str, config_path: str | None, config: "Config | None" = None) -> int:
    """Run a private node in a directory; see `nodectl.client.private_node`. `config`: already read, or None."""
    begun = companions.begin()
    from nodectl.service.daemon.main import run
    from nodectl.service.daemon.recovery.sweep import remove_dead_private_nodes

    read = _reader(config_path)
    config = config or read()
    remove_dead_private_nodes(config.runtime_dir)
    own = _with(
        config,
        runtime_dir=directory,
        socket=f"{directory}/nodectl.sock",
        log_ended_steps=False,  # its log is a terminal
        warm_runners=0,  # no step follows that could use one
        cgroup_name=f"{config.cgroup_name}-{directory.rpartition('/')[2]}",
    )
    status = run(own, read, begun, private=True)
    try:
        _remove(directory)
    except OSError:
        pass  # the next private node removes what is left
    return status


def of_agent(directory: str, config_path: str, kill_wait: int) -> int:
    """Run the node of a cluster's agent, in the agent's directory: `nodectl/cluster/agent/node.py`.

    The node outlives neither its steps nor the agent; the last of them removes the directory. `kill_wait`: seconds, the
    most for a step of this node.
    """
    begun = companions.begin()
    from nodectl.service.daemon.main import run

    read = _reader(config_path)
    config = read()
    containers = config.container_base_path
    if containers == f"{config.state_dir}/containers":  # in a home, perhaps shared with other nodes of the job
        containers = f"{directory}/state/containers"
    own = _with(
        config,
        runtime_dir=f"{directory}/node",
        state_dir=f"{directory}/state",
        container_base_path=containers,
        socket=f"{directory}/node/nodectl.sock",
        log_ended_steps=False,
        kill_wait=min(config.kill_wait, kill_wait),
        cgroup_name=f"nodectl-{directory.rpartition('/')[2]}",
    )
    status = run(own, read, begun, private=True)
    os.set_blocking(0, False)
    try:
        if os.read(0, 1):
            return status
        _remove_containers(own)
        if _is_left(directory):
            gone = f"{directory}.{os.getpid()}"  # the next agent may take the directory's name meanwhile
            os.rename(directory, gone)
            _remove(gone)
    except OSError:
        pass  # the agent was quicker
    return status


def _remove_containers(config: "Config") -> None:
    """Remove the containers of the parts on this node; report failures.

    The job may have further containers on other nodes.
    """
    from nodectl import messages
    from nodectl.launch import container
    from nodectl.launch.container import job_dir, settings

    if config.job_container_type == container.USER:
        for line in job_dir.sweep(settings.base_path(config), lambda _: "", ended=f"{config.runtime_dir}/steps"):
            messages.tell("container-failed", line)


def _is_left(directory: str) -> bool:
    """Return True if the agent, which locks the directory, has exited; keep the lock then. Raises OSError."""
    import fcntl  # at the end of a node, not at its start

    lock = os.open(f"{directory}/lock", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True  # it stays locked until this process ends


def _remove(directory: str) -> None:
    """Remove a directory in which only this process' user could write. Raises OSError.

    Without shutil, whose import takes longer than all of this.
    """
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
            else:
                os.unlink(entry.path)
    os.rmdir(directory)


def _reader(given: str | None) -> "Callable[[], Config]":
    """Return a function for reading the configuration, even after a change of the daemon's working directory."""
    from nodectl.service.config_file.reader import DEFAULT_PATH, load

    path = DEFAULT_PATH if given is None else os.path.abspath(given)
    return lambda: load(path, must_exist=given is not None)


def _with(config: "Config", **changes: object) -> "Config":
    from nodectl.service.config_file.reader import build

    values = {name: list(value) if isinstance(value, tuple) else value for name, value in config if value is not None}
    return build({**values, **changes})
