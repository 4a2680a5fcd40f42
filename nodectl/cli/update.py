"""`nodectl update`: change a job, waiting or running, or the limits of a running step and the step's job."""

import argparse
from typing import Any

from nodectl.client.command import Failed
from nodectl.client.job_changes import CHANGES, assigned, option_of, taken
from nodectl.client.job_name import job_or_step
from nodectl.client.run_options import mebibytes, percent, positive, processes
from nodectl.client.session import Session
from nodectl.model.step_number import FIRST
from nodectl.model.wire.names import NODE

MIXED = True
_NO_STEP = (f"{NODE}.NoSuchStep", f"{NODE}.WrongState")
_LIMITS = ("mem", "cpu_max", "cpu_weight", "io_max", "io_weight", "pids_max", "hugetlb_max")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl update` to the parser."""
    parser.add_argument(
        "job",
        type=job_or_step,
        metavar="JOB[.STEP]",
        help="the job; for limits of a step a job alone means its first step",
    )
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="scontrol's way: TimeLimit=1:00:00 Nice=10")
    job = parser.add_argument_group("of a job")
    for name, (_, take, metavar, text) in CHANGES.items():
        job.add_argument(option_of(name), dest=name, metavar=metavar, type=taken(take), help=text)
    step = parser.add_argument_group("of a running step and its job")
    for name, metavar, read, text in (
        ("mem", "SIZE", mebibytes, "memory, in MiB or with K, M, G, T; 0 for all there is"),
        ("cpu-max", "PERCENT", percent, "most CPU time, in percent of one CPU, or max"),
        ("cpu-weight", "N", positive, "weight when jobs compete for CPU time, 1 to 10000"),
        ("io-weight", "N", positive, "weight when jobs compete for a disk, 1 to 10000"),
        ("pids-max", "N", processes, "most processes and threads, or max"),
    ):
        step.add_argument(f"--{name}", metavar=metavar, type=taken(read), help=text)
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
        "`nodectl show` tells them. Its CPUs, its devices and what it may do (--secure) remain as they are."
    )


def main(arguments: argparse.Namespace) -> int:
    """Make the requested changes. Return 0."""
    limits: dict[str, Any] = {name: value for name in _LIMITS if (value := getattr(arguments, name)) is not None}
    changes: dict[str, Any] = {name: value for name in CHANGES if (value := getattr(arguments, name)) is not None}
    try:
        changes |= assigned(arguments.changes)
    except ValueError as error:
        raise Failed(str(error), 2) from None
    if "mem" in changes:
        limits["mem"] = changes.pop("mem")
    if not limits and not changes:
        options = ", ".join(map(option_of, (*CHANGES, *_LIMITS)))
        raise Failed(f"nothing to change: give one of {options}", 2)
    if isinstance(arguments.job, tuple) and changes:
        raise Failed(f"{', '.join(map(option_of, changes))}: of jobs only, not of steps", 2)
    session = Session(arguments.settings)
    try:
        _change(session, arguments.job, limits, changes)
    finally:
        session.close()
    return 0


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
            except Failed:
                raise failed from None
    elif limits:
        raise Failed(f"{name}: {', '.join(map(option_of, limits))} of one running step at a time", 2)
    if changes:
        session.call("UpdateJob", job=name, **changes)
