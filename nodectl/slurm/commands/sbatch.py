"""sbatch: `nodectl submit`, which takes sbatch's options."""

from nodectl.cli import submit
from nodectl.client.command import GlobalOptions


def main(settings: GlobalOptions, words: list[str]) -> int:
    """Run the whole command. Return the exit status."""
    return submit.main(settings, words)
