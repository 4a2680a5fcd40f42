"""`nodectl resume`: lets steps that were suspended run again."""

import argparse

from nodectl.cli.suspend import add_steps, call_all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl resume` to its parser."""
    add_steps(parser)


def main(arguments: argparse.Namespace) -> int:
    """Resume every step; 0, or 1 with a line on stderr for each that could not be."""
    return call_all(arguments, "Resume")
