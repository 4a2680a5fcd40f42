"""scontrol: show jobs, steps, node and partition, and change jobs and node."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import closing

from nodectl.client.command import BadOption, Failed, GlobalOptions, complain
from nodectl.client.render.terminal import put
from nodectl.client.session import Session
from nodectl.slurm.commands import scontrol_changes, scontrol_processes, scontrol_show
from nodectl.slurm.commands.command_line import HELP, read_line
from nodectl.slurm.commands.option_words import ARGUMENT, Given, Option

_TABLE = (
    Option("all", "a", text="of all partitions (there is one)"),
    Option("details", "d", text="more of jobs"),
    Option("oneliner", "o", text="one line for each"),
    Option("quiet", "Q", text="say only what went wrong"),
    *HELP,
    Option("clusters", "M", ARGUMENT),
    Option("federation"),
    Option("future", "F"),
    Option("hide"),
    Option("local"),
    Option("sibling"),
    Option("uid", "u", ARGUMENT),
)
_USAGE = (
    "[OPTIONS] show job|step|node|partition|config|reservation|hostnames|hostlist ... | update KEY=VALUE... | "
    "create reservation KEY=VALUE... | delete ReservationName=NAME | "
    "hold|uhold|release|requeue|requeuehold|suspend|resume JOB... | wait_job JOB | listpids [JOB] | pidinfo PID | "
    "ping | version | help"
)
Verb = Callable[[Session, Given, list[str]], int]
_VERBS: dict[str, Verb] = {
    "show": scontrol_show.show,
    "update": scontrol_changes.update,
    "hold": scontrol_changes.hold,
    "uhold": scontrol_changes.hold,
    "release": scontrol_changes.release,
    "requeue": scontrol_changes.requeue,
    "requeuehold": scontrol_changes.requeue_and_hold,
    "suspend": scontrol_changes.suspend,
    "resume": scontrol_changes.resume,
    "wait_job": scontrol_changes.wait_job,
    "ping": scontrol_show.ping,
    "create": scontrol_changes.create,
    "delete": scontrol_changes.delete,
    "pidinfo": scontrol_processes.pidinfo,
    "listpids": scontrol_processes.listpids,
}
_ELSEWHERE = {
    "reconfigure": "`systemctl reload nodectld` has the configuration read again",
    "shutdown": "`systemctl stop nodectld` stops the service",
    "top": "`scontrol update JobId=N Priority=TOP` does this for one job",
}
_ALONE = ("version", "exit", "quit", "help", "completing")
_HELP_LINES = {
    "completing": "lists jobs that hang while they end",
    "create": "reservation Users=NAMES Duration=TIME KEY=VALUE...: makes a reservation",
    "delete": "ReservationName=NAME: deletes a reservation",
    "exit": "ends scontrol, as quit does",
    "help": "prints this",
    "hold": "JOB...: they do not start; as uhold",
    "listpids": "[JOB[.STEP]]: the tasks' processes",
    "pidinfo": "PID: which job a process is in",
    "ping": "tells whether the service answers",
    "reconfigure": "says what does that here",
    "release": "JOB...: held ones may start",
    "requeue": "JOB...: running batch jobs wait again",
    "requeuehold": "JOB...: and do not start again",
    "resume": "JOB...: suspended ones go on",
    "show": "ENTITY [ID]: job, step, node, partition, config, reservation, hostnames, hostlist",
    "suspend": "JOB...: running ones stand still",
    "update": "JobId=... or NodeName=..., KEY=VALUE...: changes a job, drains or resumes the node",
    "version": "prints the version",
    "wait_job": "JOB: until it has its resources",
    "!!": "what was typed before once more",
}


def main(settings: GlobalOptions, words: list[str]) -> int:
    """Run the whole command. Return the exit status."""
    given = read_line(words, _TABLE, _USAGE)
    if given.words:
        return _once(settings, given, given.words)
    return _typed(settings, given)


def _typed(settings: GlobalOptions, given: Given) -> int:
    """Run the lines from standard input, until exit. Return the last exit status."""
    status, prompt = 0, "scontrol: " if sys.stdin.isatty() else ""
    before: list[str] = []
    while True:
        print(prompt, end="", flush=True)
        line = sys.stdin.readline()
        words = _words_of(line) if line else ["exit"]
        words = before if words == ["!!"] else words
        before = words
        if words[:1] in (["exit"], ["quit"], ["q"]):
            return status
        if words:
            try:
                status = _once(settings, given, words)
            except (Failed, BadOption) as failed:
                complain(str(failed))
                status = 1


def _words_of(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # a quote that is not closed
        return line.split()


def _once(settings: GlobalOptions, given: Given, words: list[str]) -> int:
    name = _named(words[0])
    if name == "version":
        from nodectl.slurm.commands.entry import version  # which has imported this file

        print(version())
        return 0
    if name == "help":
        put(["Valid <COMMAND> values are:", *(f"  {verb:16} {text}" for verb, text in _HELP_LINES.items())])
        return 0
    if name == "completing":
        return 0  # jobs are not hidden from squeue while they end
    if name == "show" and scontrol_show.needs_no_service(words[1:]):
        return scontrol_show.host_names(words[1:])
    if name in _ELSEWHERE:
        raise Failed(f"{name}: {_ELSEWHERE[name]}")
    if name not in _VERBS:
        raise Failed(f"invalid keyword: {words[0][:40]}")
    with closing(Session(settings, start_private=False)) as session:
        return _VERBS[name](session, given, words[1:])


def _named(word: str) -> str:
    """Return the full name of a possibly abbreviated command."""
    known = (*_VERBS, *_ELSEWHERE, *_ALONE)
    lower = word.lower()
    found = [name for name in known if name.startswith(lower)]
    return lower if lower in known or not found else found[0]
