"""sbcast: `nodectl bcast`, by default for the job around the command."""

from __future__ import annotations

import os

from nodectl.cli import bcast
from nodectl.client.cluster_gateway import CLUSTER
from nodectl.client.command import BadUsage, Failed, GlobalOptions
from nodectl.slurm.commands.command_line import HELP, hand_on, read_line
from nodectl.slurm.commands.option_words import ARGUMENT, MAYBE_ARGUMENT, Option

_TABLE = (
    Option("force", "f", text="replace a file that is there"),
    Option("jobid", "j", ARGUMENT, "of this job; default: the one that this is typed in"),
    Option("preserve", "p", text="keep the times of access and modification"),
    *HELP,
    Option("compress", "C", MAYBE_ARGUMENT),
    Option("exclude", "", ARGUMENT),
    Option("fanout", "F", ARGUMENT),
    Option("send-libs", "", MAYBE_ARGUMENT),
    Option("size", "s", ARGUMENT),
    Option("timeout", "t", ARGUMENT),
    Option("treewidth", "", ARGUMENT),
)


def main(settings: GlobalOptions, words: list[str]) -> int:
    """Run the whole command. Return the exit status."""
    given = read_line(words, _TABLE, "[OPTIONS] SOURCE DESTINATION")
    if len(given.words) != 2:
        raise BadUsage(f"Need two file names, have {len(given.words)} names", 1)
    job = given.value("jobid") or os.environ.get("SLURM_JOB_ID", "")
    if not job and CLUSTER not in os.environ:
        raise Failed("Command only valid from within SLURM job")
    options = [f"--job={job}"] if job else []
    if "force" in given or "SBCAST_FORCE" in os.environ:
        options.append("--force")
    if "preserve" in given or "SBCAST_PRESERVE" in os.environ:
        options.append("--preserve")
    return hand_on(bcast, settings, [*options, "--", *given.words])
