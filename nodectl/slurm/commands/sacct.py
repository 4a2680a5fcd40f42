"""sacct: `nodectl acct`, with the options and the usual columns of sacct."""

from __future__ import annotations

import os

from nodectl.cli import acct
from nodectl.client.command import GlobalOptions
from nodectl.slurm.commands.command_line import HELP, hand_on, read_line
from nodectl.slurm.commands.option_words import ARGUMENT, MAYBE_ARGUMENT, Given, Option

_USUAL = "jobid,jobname,partition,account,alloccpus,state,exitcode"
_BRIEF = "jobid,state,exitcode"
_LONG = (
    "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,"
    "averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,alloccpus,elapsed,"
    "state,exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,"
    "maxdiskreadnode,maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,reqtres,"
    "alloctres,tresusageinave,tresusageinmax,tresusageoutmax,tresusageouttot"
)
_TABLE = (
    Option("account", "A", ARGUMENT, "of these accounts"),
    Option("allocations", "X", text="only jobs, without their steps"),
    Option("allusers", "a", text="of all users whose jobs you may see"),
    Option("brief", "b", text=f"--format={_BRIEF}"),
    Option("delimiter", "", ARGUMENT, "this in place of |"),
    Option("duplicates", "D", text="every run of a job that was requeued"),
    Option("endtime", "E", ARGUMENT, "submitted by then"),
    Option("format", "o", ARGUMENT, "these fields, with %width; a width below 0 is flush left"),
    Option("fields", "", ARGUMENT, "as --format"),
    Option("helpformat", "e", text="list the fields"),
    Option("jobs", "j", ARGUMENT, "these: 7, 7.0, 7.batch, 7_3"),
    Option("json", "", text="one JSON object"),
    Option("long", "l", text="nearly all fields"),
    Option("name", "", ARGUMENT, "of these names"),
    Option("noconvert", "", text="bytes as plain numbers"),
    Option("noheader", "n", text="no lines above the table"),
    Option("parsable", "p", text="fields end with |"),
    Option("parsable2", "P", text="fields stand between |"),
    Option("starttime", "S", ARGUMENT, "not ended before then"),
    Option("state", "s", ARGUMENT, "in these states"),
    Option("uid", "", ARGUMENT, "as --user"),
    Option("units", "", ARGUMENT, "bytes in this unit"),
    Option("user", "u", ARGUMENT, "of these users"),
    Option("help", "h", text="print this"),
    *HELP[1:],
    Option("accounts", "", ARGUMENT, same="account"),
    Option("allclusters", "L"),
    Option("associations", "x", ARGUMENT),
    Option("clusters", "M", ARGUMENT),
    Option("completion", "c"),
    Option("constraints", "C", ARGUMENT),
    Option("federation"),
    Option("flags", "F", ARGUMENT),
    Option("gid", "g", ARGUMENT),
    Option("group", "", ARGUMENT),
    Option("local"),
    Option("ncpus", "I", ARGUMENT),
    Option("nnodes", "i", ARGUMENT),
    Option("nodelist", "N", ARGUMENT),
    Option("partition", "r", ARGUMENT),
    Option("qos", "q", ARGUMENT),
    Option("reason", "R", ARGUMENT),
    Option("timelimit-max", "K", ARGUMENT),
    Option("timelimit-min", "k", ARGUMENT),
    Option("truncate", "T"),
    Option("use-local-uid"),
    Option("wckeys", "W", ARGUMENT),
    Option("whole-hetjob", "", MAYBE_ARGUMENT),
)
_AS_THEY_ARE = (
    "account", "allocations", "allusers", "delimiter", "duplicates", "endtime", "helpformat", "jobs", "json", "name",
    "noconvert", "noheader", "parsable", "parsable2", "starttime", "state", "units", "user",
)  # fmt: skip


def main(settings: GlobalOptions, words: list[str]) -> int:
    """Run the whole command. Return the exit status."""
    given = read_line(words, _TABLE, "[OPTIONS]")
    return hand_on(acct, settings, translated(given))


def translated(given: Given) -> list[str]:
    """Return the words for `nodectl acct`."""
    if "uid" in given:
        given.options.setdefault("user", []).extend(given.options["uid"])
    words = []
    for name in _AS_THEY_ARE:
        if name in given:
            values = [value for value in given.options[name] if value]
            words.append(f"--{name}={','.join(values)}" if values and name != "delimiter" else f"--{name}")
            if name == "delimiter":
                words[-1] = f"--delimiter={given.value(name)}"
    return [*words, f"--format={_format(given)}"]


def _format(given: Given) -> str:
    fields = given.listed("format", "fields")
    if fields:
        return ",".join(fields)
    if "brief" in given or "long" in given:
        return _BRIEF if "brief" in given else _LONG
    return os.environ.get("SACCT_FORMAT") or _USUAL
