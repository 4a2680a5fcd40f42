"""The module and the parser of every command, for completion, manuals and the like."""

import argparse
import importlib
from types import ModuleType

from nodectl.client.command_parser import CommandParser, status_lines
from nodectl.model.exit_statuses import of_command

# A module may not be called like one of the standard library.
_MODULES = {
    "queue": "list_jobs", "select": "select_plugins", "signal": "send_signal", "slurm-commands": "write_slurm_commands",
    "trace": "print_trace",
}  # fmt: skip


def module_of(command: str) -> ModuleType:
    """Import and return the module of a command."""
    return importlib.import_module(f"nodectl.cli.{_MODULES.get(command, command)}")


def parser_of(command: str, description: str) -> argparse.ArgumentParser:
    """Return the argparse parser of a command; the description comes from `main.COMMANDS`."""
    parser = CommandParser(prog=f"nodectl {command}", description=description)
    module_of(command).add_arguments(parser)
    parser.epilog = " ".join(filter(None, (parser.epilog, status_lines(of_command(command)))))
    return parser
