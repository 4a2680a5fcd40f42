"""Rare options of `nodectl run`, and options without meaning here: rows as in `job_options`.

Ignored options are kept as a list of names under `IGNORED`; refused options give the reason.
"""

from nodectl.client.command import BadOption
from nodectl.client.job_options import count, open_mode, yes
from nodectl.client.run_options import (
    MAYBE_ARGUMENT,
    NO_ARGUMENT,
    Option,
    RunParser,
    positive,
)
from nodectl.client.srun import names
from nodectl.model.number import mebibytes, seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import NoReturn

    from nodectl.client.run_options import PluginOption

IGNORED = "ignored"  # the dest of all options that mean nothing here


def yes_or_no(text: str) -> bool:
    """Parse --send-libs: yes when empty."""
    if text.lower() not in ("", "yes", "no"):
        raise ValueError(f"Invalid value {text[:20]!r}, yes or no is allowed")
    return text.lower() != "no"


def components(text: str) -> str:
    """Parse --het-group: the components of a heterogeneous job. Here a job has a single component."""
    if text not in ("0", "0-0"):
        raise ValueError(f"Invalid component {text[:20]!r}: a job has one, 0,")
    return text


def _switch(long: str, short: str, help: str) -> Option:  # noqa: A002  # the column's name in such tables
    return Option(long, short, "", help, yes, has_arg=NO_ARGUMENT)


FURTHER = (
    _switch("debugger-test", "", "tasks stop before their programs, and are listed: who attaches to one continues it"),
    _switch("disable-status", "X", "pass each Ctrl-C on at once, without telling how the tasks are"),
    Option("epilog", "", "FILE", "script that this command runs when the step has ended"),
    Option("export-file", "", "FILE", "environment of the tasks: NAME=VALUE, each with a NUL byte behind it"),
    Option("het-group", "", "LIST", "components of the job: 0", components),
    Option("mpi", "", "TYPE", "how MPI tasks find each other: pmi2 (MPICH), pmix (Open MPI), none; list names all"),
    _switch("multi-prog", "", "the program is a file that says which tasks run what"),
    Option("open-mode", "", "append|truncate", "what is done with files of output that are there", open_mode),
    _switch("preserve-env", "E", "a step of a job keeps SLURM_NNODES and SLURM_NTASKS as the job has them"),
    Option("prolog", "", "FILE", "script that this command runs before the step begins"),
    _switch("quiet", "Q", "say only what went wrong"),
    _switch("quit-on-interrupt", "", "the first Ctrl-C ends the step"),
    _switch("test-only", "", "tell when it would start; run nothing"),
    Option("wait", "W", "SECONDS", "end the step so long after its first task has ended; 0: never", count),
    Option("bcast", "", "FILE", "copy the program to FILE first, and run that", has_arg=MAYBE_ARGUMENT),
    Option("bcast-exclude", "", "PATHS", "accepted and ignored: --send-libs sends nothing", str),
    Option("compress", "", "TYPE", "accepted and ignored: --bcast sends nothing over a network", str,
            has_arg=MAYBE_ARGUMENT),
    Option("send-libs", "", "yes|no", "accepted and ignored: on one machine the libraries are there", yes_or_no,
            has_arg=MAYBE_ARGUMENT),
    Option("nodefile", "F", "FILE", "on the nodes that this file names"),
    Option("tmp", "", "SIZE", "at least so much room in /tmp, in MiB or with K, M, G, T", mebibytes),
    Option("time-min", "", "TIME", "the least that --time may be cut down to: refused where --deadline leaves less",
            seconds),
    Option("account", "A", "NAME", "whose work it is: shown with the job, told as SLURM_JOB_ACCOUNT", str.lower),
    Option("x11", "", "WHICH", "refused without DISPLAY; windows need no forwarding on this machine",
            has_arg=MAYBE_ARGUMENT),
    _switch("external-launcher", "", "beside the job's other steps, bound to nothing: for launchers of MPI"),
    Option("accel-bind", "", "LETTERS", "g: tasks see the GPUs nearest to their CPUs"),
    Option("cpus-per-gpu", "", "N", "CPUs for each GPU", positive),
    Option("gpus-per-socket", "", "[TYPE:]N", "GPUs for each socket"),
    Option("mem-per-gpu", "", "SIZE", "memory for each GPU", mebibytes),
    Option("ntasks-per-gpu", "", "N", "tasks for each GPU", positive),
    Option("ntasks-per-tres", "", "N", "the same", positive, dest="ntasks_per_gpu"),
    Option("tres-bind", "", "gres/gpu:BIND", "as --gpu-bind"),
    Option("tres-per-task", "", "LIST", "cpu:N, gres/gpu[:TYPE]:N for each task"),
    _switch("usage", "", "how the command is called"),
    _switch("version", "V", "which nodectl this is"),
)  # fmt: skip


_OF_JOBS = frozenset({"account", "cpus-per-gpu", "export-file", "gpus-per-socket", "mem-per-gpu", "nodefile",
                      "ntasks-per-gpu", "ntasks-per-tres", "time-min", "tres-bind", "tres-per-task"})  # fmt: skip


def further(known: "Mapping[str, Option]") -> tuple[Option, ...]:
    """Return all options beyond `known`, by long name: FURTHER, aliases, ignored and refused options."""
    here = {**known, **{option.long: option for option in FURTHER}}
    others = [_renamed(old, here[new]) for old, new in names.ALIASES.items() if new in here]
    return (*FURTHER, *others, *without_meaning())


def of_jobs(_known: "Mapping[str, Option]") -> tuple[Option, ...]:
    """Return the options of FURTHER which a batch script may have, too."""
    return tuple(option for option in FURTHER if option.long in _OF_JOBS)


def parser(extra: "Iterable[PluginOption]" = (), own: "Iterable[Option]" = ()) -> RunParser:
    """Return a parser with all options of `nodectl run`."""
    return RunParser(extra, own, further)


def without_meaning() -> tuple[Option, ...]:
    """Return the ignored and the refused options."""
    refused = [
        Option(long, letter, "", "", lambda _, words=f"--{long}: {reason}": _refuse(words), has_arg=has_arg)  # type: ignore[misc]
        for long, (has_arg, letter, reason) in names.REFUSED.items()
    ]
    return (*ignored_options(names.IGNORED), *refused)


def ignored_options(*tables: "tuple[tuple[int, str], ...]") -> tuple[Option, ...]:
    """Return the ignored options; a given option only stores the name."""
    return tuple(
        Option(long, letter, "", "", lambda _, long=long: long, dest=IGNORED, has_arg=has_arg, many=True)  # type: ignore[misc]
        for long, letter, has_arg in names.rows(*tables)
    )


def _renamed(old: str, option: Option) -> Option:
    return Option(old, "", "", "", option.take, dest=option.dest, has_arg=option.has_arg, many=option.many)


def _refuse(words: str) -> "NoReturn":
    raise BadOption(words)
