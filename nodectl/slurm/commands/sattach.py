"""sattach: `nodectl attach`, with sattach's options."""

from __future__ import annotations

from nodectl.cli import attach
from nodectl.client.command import BadUsage, GlobalOptions
from nodectl.slurm.commands.command_line import HELP, hand_on, read_line
from nodectl.slurm.commands.option_words import ARGUMENT, Option

_TABLE = (
    Option("error-filter", "", ARGUMENT, "show only this task's errors"),
    Option("input-filter", "", ARGUMENT, "only this task gets what is typed"),
    Option("label", "l", text="begin each line with its task's number"),
    Option("layout", "", text="print where the step's tasks are, and attach to nothing"),
    Option("output-filter", "", ARGUMENT, "show only this task's output"),
    Option("pty", "", text="type each key at the step's terminal"),
    Option("quiet", "Q", text="say nothing about what could not be shown"),
    Option("help", "h", text="print this"),
    Option("usage", "u", text="print this"),
    *HELP[2:],
)
_FLAGS = ("label", "layout", "pty", "quiet")
_FILTERS = ("error-filter", "input-filter", "output-filter")


def main(settings: GlobalOptions, words: list[str]) -> int:
    """Run the whole command. Return the exit status."""
    given = read_line(words, _TABLE, "[OPTIONS] JOB.STEP")
    if len(given.words) != 1:
        raise BadUsage("sattach wants one JOB.STEP", 1)
    translated = [f"--{name}" for name in _FLAGS if name in given]
    translated += [f"--{name}={given.value(name)}" for name in _FILTERS if name in given]
    return hand_on(attach, settings, [*translated, "--", *given.words])
