"""`nodectl update`: change a job, waiting or running, or the limits of a running step and the step's job."""

import argparse
from collections.abc import Callable
from typing import Any

from nodectl.client import batch_script
from nodectl.client.command import Failed, complain
from nodectl.client.job_changes import CHANGES, assigned, option_of
from nodectl.client.job_name import add_jobs, for_argparse, in_dependency, named
from nodectl.client.run_options import percent, positive, processes
from nodectl.client.session import Session
from nodectl.model.number import mebibytes
from nodectl.model.step_number import FIRST
from nodectl.model.wire.names import NODE, WRAP

MIXED = True
_NO_STEP = (f"{NODE}.NoSuchStep", f"{NODE}.WrongState")
_NO_JOB = (f"{NODE}.NoSuchJob", f"{NODE}.NotPermitted")  # for who may not know of the job
# Options that change what a batch job was submitted with: letter, argument, reader, help.
_REWRITES: dict[str, tuple[tuple[str, ...], str, Callable[[str], object], str]] = {
    "ntasks": (("-n",), "N", positive, "number of tasks"),
    "cpus-per-task": (("-c",), "N", positive, "CPUs for each task"),
    "gpus": (("-G",), "[TYPE:]N", str, "GPUs of the job"),
    "gres": ((), "LIST", str, "devices of the job: gpu:2"),
    "command": ((), "LINE", str, "this line of shell instead of its script"),
    "script": ((), "FILE", str, "this script instead of its own"),
}
_LIMITS = ("mem", "cpu_max", "cpu_weight", "io_max", "io_weight", "pids_max", "hugetlb_max")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl update` to the parser."""
    add_jobs(parser, "the job, or a range of jobs; for limits of a step a job alone means its first step",
             steps=True, one=True)  # fmt: skip
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="scontrol's way: TimeLimit=1:00:00 Nice=10")
    job = parser.add_argument_group("of a job")
    for name, (_, take, metavar, text) in CHANGES.items():
        job.add_argument(option_of(name), dest=name, metavar=metavar, type=for_argparse(take), help=text)
    waits = parser.add_argument_group("of a batch job that waits")
    for name, (short, metavar, read, text) in _REWRITES.items():
        names = [*short, f"--{name}"]
        waits.add_argument(*names, metavar=metavar, type=for_argparse(read), help=text)
    step = parser.add_argument_group("of a running step and its job")
    for name, metavar, read, text in (
        ("mem", "SIZE", mebibytes, "memory, in MiB or with K, M, G, T; 0 for all there is"),
        ("cpu-max", "PERCENT", percent, "most CPU time, in percent of one CPU, or max"),
        ("cpu-weight", "N", positive, "weight when jobs compete for CPU time, 1 to 10000"),
        ("io-weight", "N", positive, "weight when jobs compete for a disk, 1 to 10000"),
        ("pids-max", "N", processes, "most processes and threads, or max"),
    ):
        step.add_argument(f"--{name}", metavar=metavar, type=for_argparse(read), help=text)
    step.add_argument(
        "--io-max",
        metavar="DISK:FIGURES",
        action="append",
        help="most input and output of a disk, as /dev/vda:rbps=10M,wiops=max; once for each disk",
    )
    step.add_argument(
        "--hugetlb-max",
        metavar="SIZE:MOST",
        action="append",
        help="most memory in huge pages of a size, as 2MB:1G or 2MB:max; once for each",
    )
    parser.epilog = (
        "The owner of a step may lower its limits; root and members of the admin group may raise them too. "
        "`nodectl show` tells them. Its CPUs, its devices and what it may do (--secure) remain as they are. Options "
        "in the script of --script are not read."
    )


def main(arguments: argparse.Namespace) -> int:
    """Make the requested changes. Return 0, or 1 with a line on stderr for each failure among several jobs."""
    limits: dict[str, Any] = {name: value for name in _LIMITS if (value := getattr(arguments, name)) is not None}
    changes: dict[str, Any] = {name: value for name in CHANGES if (value := getattr(arguments, name)) is not None}
    try:
        changes |= assigned(arguments.changes)
    except ValueError as error:
        raise Failed(str(error), 2) from None
    changes |= _rewriting(arguments)
    if "mem" in changes:
        limits["mem"] = changes.pop("mem")
    if not limits and not changes:
        options = ", ".join(map(option_of, (*CHANGES, *_REWRITES, *_LIMITS)))
        raise Failed(f"nothing to change: give one of {options}", 2)
    if changes and any("." in name for name in arguments.jobs):
        raise Failed(f"{', '.join(map(option_of, changes))}: of jobs only, not of steps; name the job alone", 2)
    session = Session(arguments.settings)
    status = 0
    try:
        if "dependency" in changes:
            changes["dependency"] = in_dependency(session, changes["dependency"])
        for name in named(session, arguments.jobs):
            try:
                _change(session, name, limits, changes)
            except Failed as failed:
                if len(arguments.jobs) == 1:
                    raise
                complain(f"update {name}: {failed}")
                status = 1
    finally:
        session.close()
    return status


def _rewriting(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the changes of a waiting job's request and script, for UpdateJob. Raises Failed."""
    request: dict[str, Any] = {}
    for name in ("ntasks", "cpus_per_task"):
        if (value := getattr(arguments, name)) is not None:
            request[name] = value
    if "cpus_per_task" in request:
        request["environment"] = {"SLURM_CPUS_PER_TASK": str(request["cpus_per_task"])}
    if layout := {name: value for name in ("gpus", "gres") if (value := getattr(arguments, name)) is not None}:
        request["layout"] = layout
    found: dict[str, Any] = {}
    if arguments.command is not None and arguments.script is not None:
        raise Failed("--command and --script: a job has one of them", 2)
    if arguments.command is not None:
        request["argv"], found["script"] = [WRAP], batch_script.wrapped(arguments.command)
    elif arguments.script is not None:
        request["argv"], found["script"] = [arguments.script], batch_script.read(arguments.script)
    return found | ({"request": request} if request else {})


def _change(session: Session, name: "str | tuple[int, int]", limits: dict[str, Any], changes: dict[str, Any]) -> None:
    step = name if isinstance(name, tuple) else (int(name), FIRST) if name.isdecimal() else None
    if limits and step is not None:
        try:
            session.call("Update", job=step[0], step=step[1], **limits)
        except Failed as failed:
            waits = failed.name in _NO_STEP and isinstance(name, str) and limits.keys() == {"mem"}
            if not waits:
                raise
            try:
                session.call("UpdateJob", (), job=name, **limits)
            except Failed as refused:
                waits = failed.name.endswith(".NoSuchStep") and refused.name not in _NO_JOB
                raise (refused if waits else failed) from None
    elif limits:
        raise Failed(f"{name}: {', '.join(map(option_of, limits))} of one running step at a time", 2)
    if changes:
        session.call("UpdateJob", job=name, **changes)
