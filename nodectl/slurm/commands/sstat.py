"""sstat: the use of running steps so far, with sacct's fields."""

from __future__ import annotations

import os
import time
from contextlib import closing

from nodectl.cli.acct import listing, parsable
from nodectl.client.accounting import Asked, ask, named
from nodectl.client.command import BadUsage, Failed, GlobalOptions
from nodectl.client.render.terminal import put
from nodectl.client.session import Session
from nodectl.model.accounting import fields
from nodectl.model.accounting.fields import AcctField, Style, UnknownField
from nodectl.model.accounting.rows import Row
from nodectl.model.step_number import BATCH
from nodectl.slurm.commands.command_line import HELP, read_line
from nodectl.slurm.commands.option_words import ARGUMENT, Given, Option

_USUAL = (
    "jobid,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,averss,maxpages,maxpagesnode,"
    "maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,avecpufreq,reqcpufreqmin,reqcpufreqmax,"
    "reqcpufreqgov,consumedenergy,maxdiskread,maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,"
    "maxdiskwritenode,maxdiskwritetask,avediskwrite"
)
_TABLE = (
    Option("allsteps", "a", text="all steps of the jobs, not their first"),
    Option("format", "o", ARGUMENT, "these fields, with %width"),
    Option("fields", "", ARGUMENT, "as --format"),
    Option("helpformat", "e", text="list the fields"),
    Option("jobs", "j", ARGUMENT, "of these jobs and steps: 7, 7.0, 7.batch"),
    Option("noconvert", "", text="bytes as plain numbers"),
    Option("noheader", "n", text="no lines above the table"),
    Option("parsable", "p", text="fields end with |"),
    Option("parsable2", "P", text="fields stand between |"),
    Option("help", "h", text="print this"),
    *HELP[1:],
    Option("pidformat", "i"),
)


def main(settings: GlobalOptions, words: list[str]) -> int:
    """Run the whole command. Return the exit status."""
    given = read_line(words, _TABLE, "[OPTIONS] [JOB[.STEP]...]")
    if "helpformat" in given:
        put(sorted(field.name for field in fields.FIELDS.values()))
        return 0
    names = ",".join([*given.listed("jobs"), *given.words])
    if not names:
        raise BadUsage("You didn't give me any jobs to stat.", 1)
    columns = _columns(given)
    with closing(Session(settings, start_private=False)) as session:
        rows = _running(session, names, every="allsteps" in given)
    style = Style(time.time(), plain="noconvert" in given)
    header = "noheader" not in given
    if "parsable" in given or "parsable2" in given:
        put(parsable(columns, rows, style, "|", ends="parsable" in given, header=header))
    else:
        put(listing(columns, rows, style, header=header))
    return 0


def _columns(given: Given) -> list[tuple[AcctField, int]]:
    text = ",".join(given.listed("format", "fields")) or os.environ.get("SSTAT_FORMAT") or _USUAL
    try:
        return fields.columns(text)
    except UnknownField as error:
        raise Failed(str(error)) from None


def _running(session: Session, names: str, *, every: bool) -> list[Row]:
    """Return the requested running steps: of a job the first step except the batch script, or all if `every`."""
    asked = named(session, names)
    found = ask(session, Asked((), asked))
    rows: list[Row] = []
    for job, steps in found:
        running = [step for step in steps if not step.ended]
        by_step = any(one.step is not None and one.has(job) for one in asked)
        if not every and not by_step:
            running = ([step for step in running if step.step != BATCH] or running)[:1]
        rows += running
    if not rows:
        raise Failed(f"no steps running for job {names[:40]}")
    return rows
