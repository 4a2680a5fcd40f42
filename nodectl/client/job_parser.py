"""The command lines of `nodectl submit` and `nodectl alloc`: sbatch's and salloc's options for one machine.

Their words come from three places, of which the later goes before the earlier: the script's own lines, variables
(SBATCH_*, SALLOC_*), the command line.
"""

import os

from nodectl.client.job_options import ALLOC, SUBMIT
from nodectl.client.run_options import (
    ARGUMENT,
    MAYBE_ARGUMENT,
    NO_ARGUMENT,
    OPTIONS,
    Option,
    Parsed,
    Parser,
    PluginOption,
    layout_options,
    option_lines,
    options_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Of the options of `run` those that say something of tasks. Who has them asks for a step.
_OF_STEPS = frozenset({"cpu-bind", "error", "input", "jobid", "kill-on-bad-exit", "label", "output", "task-epilog",
                       "task-prolog", "trace", "unbuffered"})  # fmt: skip
_STEP_LAYOUT = frozenset({"exact", "exclusive", "overlap", "relative", "whole"})
_TABLE = tuple(option for option in OPTIONS if option.long not in _OF_STEPS)
# Taken since many scripts have them, and without effect on one machine: option, letter, whether it has an argument.
IGNORED: "dict[str, tuple[str, int]]" = {
    "account": ("A", ARGUMENT), "acctg-freq": ("", ARGUMENT), "batch": ("", ARGUMENT), "bb": ("", ARGUMENT),
    "bbf": ("", ARGUMENT), "bell": ("", NO_ARGUMENT), "cluster": ("", ARGUMENT), "cluster-constraint": ("", ARGUMENT),
    "clusters": ("M", ARGUMENT), "context": ("", ARGUMENT), "cpu-freq": ("", ARGUMENT), "delay-boot": ("", ARGUMENT),
    "extra": ("", ARGUMENT), "get-user-env": ("", MAYBE_ARGUMENT), "gpu-freq": ("", ARGUMENT),
    "ignore-pbs": ("", NO_ARGUMENT), "licenses": ("L", ARGUMENT), "mail-type": ("", ARGUMENT),
    "mail-user": ("", ARGUMENT), "mcs-label": ("", ARGUMENT), "network": ("", ARGUMENT), "no-bell": ("", NO_ARGUMENT),
    "no-kill": ("k", MAYBE_ARGUMENT), "partition": ("p", ARGUMENT), "power": ("", ARGUMENT), "prefer": ("", ARGUMENT),
    "profile": ("", ARGUMENT), "reboot": ("", NO_ARGUMENT), "spread-job": ("", NO_ARGUMENT),
    "stepmgr": ("", NO_ARGUMENT), "switches": ("", ARGUMENT), "time-min": ("", ARGUMENT), "tmp": ("", ARGUMENT),
    "wait-all-nodes": ("", ARGUMENT), "wckey": ("", ARGUMENT),
}  # fmt: skip
# Variables whose names are not those of their options.
_VARIABLES = {"array": "ARRAY_INX", "time": "TIMELIMIT", "mem": "MEM_PER_NODE"}
_NEVER = ("help", "verbose", "uid", "gid", "wrap", "parsable", "test-only", "no-shell")  # no variable gives them
_OFF = ("", "0", "no", "false")


class JobParser(Parser):
    """See the module. `dry`: finds out which words are options, and tells plugins nothing."""

    _table = _TABLE

    def __init__(self, command: str, extra: "Iterable[PluginOption]" = (), *, dry: bool = False) -> None:
        self._of_slurm = "sbatch" if command == "submit" else "salloc"
        self.own = options_of(SUBMIT if command == "submit" else ALLOC)
        super().__init__(extra, self.own)
        self._dry = dry
        for name, (letter, has_arg) in IGNORED.items():
            self._long[name] = Option(name, letter, "", "", str, has_arg=has_arg)
            if letter:
                self._short[letter] = self._long[name]

    def _tell(self, option: PluginOption, value: str | None) -> None:
        if not self._dry:
            super()._tell(option, value)

    def _layout_options(self) -> tuple[Option, ...]:
        return tuple(option for option in layout_options() if option.long not in _STEP_LAYOUT)

    def _job_options(self) -> tuple[Option, ...]:
        return self.own

    def variables(self, environment: "Mapping[str, str]") -> list[str]:
        """What SBATCH_* or SALLOC_* say, as words of a command line."""
        self._learn()
        prefix = f"{self._of_slurm.upper()}_"
        words = []
        for option in dict.fromkeys(self._long.values()):
            name = _VARIABLES.get(option.long, option.long.upper().replace("-", "_"))
            text = environment.get(prefix + name)
            if text is None or option.long in _NEVER or isinstance(option, PluginOption):
                continue
            if option.has_arg != NO_ARGUMENT:
                words.append(f"--{option.long}={text}" if text else f"--{option.long}")
            elif text.lower() not in _OFF or not text:
                words.append(f"--{option.long}")
        return words

    def help(self, columns: int = 80) -> str:
        """The text of --help."""
        submit = self._of_slurm == "sbatch"
        usage = "submit [OPTIONS] [SCRIPT [ARGS...]]" if submit else "alloc [OPTIONS] [COMMAND [ARGS...]]"
        what = (
            ("Queue a batch script. Options stand in its lines #SBATCH and #NODECTL before", "the first command, too.")
            if submit
            else ("Wait for an allocation, run a command or a shell in it, and end it with that.",)
        )
        lines = [f"Usage: nodectl {usage}", "", *what, "", *option_lines(self.own, columns)]
        lines += ["", "Of the job:", *option_lines(self._table, columns)]
        lines += ["", "Layout:", *option_lines(self._layout_options(), columns)]
        if self._extra:
            lines += ["", "Options provided by plugins:", *option_lines(self._extra, columns)]
        return "\n".join(lines)


def job_options(parsed: Parsed) -> dict[str, object]:
    """Takes JobOptions of the service's Submit and Allocate out of what was parsed."""
    names = ("array", "begin", "comment", "constraint", "contiguous", "deadline", "dependency", "exclusive", "hold",
             "kill_on_invalid_dep", "nice", "open_mode", "oversubscribe", "priority", "qos", "requeue", "reservation",
             "signal")  # fmt: skip
    return {name: parsed.values.pop(name) for name in names if name in parsed.values}


def outside_of_jobs(environment: "Mapping[str, str]") -> dict[str, str]:
    """The environment for a new job, where this one may be a job's: what describes that job is left out."""
    if "NODECTL_JOB_ID" not in environment:
        return dict(environment)
    of_a_job = ("SLURM_", "SLURMD_", "NODECTL_JOB_")
    return {name: value for name, value in environment.items() if not name.startswith(of_a_job)}


def ignored(parsed: Parsed) -> list[str]:
    """The options that were given and have no effect here, which are taken out."""
    return [name for name in IGNORED if parsed.values.pop(name.replace("-", "_"), None) is not None]


def columns() -> int:
    """The width of help texts, as other commands take it."""
    from nodectl.model.number import whole

    found = whole(os.environ.get("COLUMNS", ""), 99_999)
    return 80 if found is None else found
