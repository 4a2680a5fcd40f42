"""salloc: `nodectl alloc`, which takes salloc's options."""

from nodectl.cli import alloc
from nodectl.client.command import GlobalOptions


def main(settings: GlobalOptions, words: list[str]) -> int:
    """Run the whole command. Return the exit status."""
    return alloc.main(settings, words)
