"""`nodectl update`: other limits for a running step and its job."""

import argparse
from collections.abc import Callable

from nodectl.client.command import Failed
from nodectl.client.run_options import mebibytes, percent, positive, processes
from nodectl.client.session import Session
from nodectl.client.step_name import step_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `nodectl update` to its parser."""
    parser.add_argument(
        "step", type=step_argument, metavar="JOB[.STEP]", help="the step; a job alone means its first step"
    )
    for name, metavar, take, text in (
        ("mem", "SIZE", mebibytes, "memory, in MiB or with K, M, G, T; 0 for all there is"),
        ("cpu-max", "PERCENT%", percent, "most CPU time, in percent of one CPU, or max"),
        ("cpu-weight", "N", positive, "weight when jobs compete for CPU time, 1 to 10000"),
        ("io-weight", "N", positive, "weight when jobs compete for a disk, 1 to 10000"),
        ("pids-max", "N", processes, "most processes and threads, or max"),
    ):
        parser.add_argument(f"--{name}", metavar=metavar, type=_taken(take), help=text)
    parser.add_argument(
        "--io-max",
        metavar="DISK:FIGURES",
        action="append",
        help="most input and output of a disk, as /dev/vda:rbps=10M,wiops=max; once for each disk",
    )
    parser.add_argument(
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
    """Change what was given; 0."""
    job, step = arguments.step
    names = ("mem", "cpu_max", "cpu_weight", "io_max", "io_weight", "pids_max", "hugetlb_max")
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    if not given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise Failed(f"nothing to change: give one of {options}", 2)
    session = Session(arguments.settings)
    try:
        session.call("Update", job=job, step=step, **given)
    finally:
        session.close()
    return 0


def _taken(take: Callable[[str], int]) -> Callable[[str], int]:
    """An option's reader as argparse wants it."""

    def read(text: str) -> int:
        try:
            return take(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read
