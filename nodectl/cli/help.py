"""`nodectl help`: print the list of the commands, or the help of a command."""

import argparse

from nodectl.cli import main as command_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl help` to the parser."""
    parser.add_argument("command", nargs="?", metavar="NAME", help="the command; without it, all commands are listed")


def main(arguments: argparse.Namespace) -> int:
    """Print what `nodectl --help` or `nodectl COMMAND --help` prints. Return the exit status."""
    if arguments.command is None:
        print(command_line.usage())
        return 0
    return command_line.run_command(arguments.settings, arguments.command, ["--help"])
