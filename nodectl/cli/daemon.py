"""`nodectl daemon`: the service itself."""

import argparse
import shutil
import sys

from nodectl.config import DEFAULT_PATH, Config, ConfigError, build, load
from nodectl.daemon.main import run
from nodectl.daemon.sweep import remove_dead_private_nodes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options of its own: everything is in the configuration."""
    parser.epilog = (
        "Run by systemd as nodectld.service; in the foreground when run by hand. SIGHUP reads the keys container_* "
        "anew, for the jobs to come, and looks up accounts anew; SIGTERM ends it."
    )


def main(arguments: argparse.Namespace) -> int:
    """The service in the foreground."""
    settings = arguments.settings

    def read() -> Config:
        return load(settings.config or DEFAULT_PATH, must_exist=settings.config is not None)

    try:
        config = read()
    except ConfigError as error:
        print(f"nodectl daemon: {error}", file=sys.stderr)
        return 1
    if settings.socket:
        config = _with(config, socket=settings.socket)
    return run(config, read)


def private(directory: str, config_path: str | None) -> int:
    """A private node in a directory of its own; see `nodectl.cli.private`."""

    def read() -> Config:
        return load(config_path or DEFAULT_PATH, must_exist=config_path is not None)

    config = read()
    remove_dead_private_nodes(config.runtime_dir)
    own = _with(
        config,
        runtime_dir=directory,
        socket=f"{directory}/nodectl.sock",
        cgroup_name=f"{config.cgroup_name}-{directory.rpartition('/')[2]}",
    )
    status = run(own, read, private=True)
    shutil.rmtree(directory, ignore_errors=True)
    return status


def _with(config: Config, **changes: object) -> Config:
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in config if value is not None}
    return build({**values, **changes})
