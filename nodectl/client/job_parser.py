"""The command lines of `nodectl submit` and `nodectl alloc`: sbatch's and salloc's options for a single machine.

The words come from three places, of which the later override the earlier: the script's own lines, variables (SBATCH_*,
SALLOC_*), the command line.
"""

from nodectl.client.command import Program
from nodectl.client.job_options import ALLOC, RESUBMIT, SUBMIT
from nodectl.client.option_lines import option_lines, status_lines, wrapped
from nodectl.client.run_options import (
    ARGUMENT,
    MAYBE_ARGUMENT,
    NO_ARGUMENT,
    OPTIONS,
    Option,
    Parsed,
    PluginOption,
    RunParser,
    layout_options,
    options_of,
)
from nodectl.client.srun import names
from nodectl.client.srun.options import ignored_options, of_jobs
from nodectl.model import part_variables
from nodectl.model.request_fields import JobOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Of the options of `run` those that say something of tasks. Who has them asks for a step.
_OF_STEPS = frozenset({"cpu-bind", "error", "input", "jobid", "kill-on-bad-exit", "label", "output",
                       "preload", "pty", "task-epilog", "task-prolog", "trace", "unbuffered"})  # fmt: skip
_STEP_LAYOUT = frozenset({"exact", "exclusive", "overlap", "relative", "whole"})
_TABLE = tuple(option for option in OPTIONS if option.long not in _OF_STEPS)
# Taken since many scripts have them, and without effect on one machine, beside those of srun.
_IGNORED = (
    (ARGUMENT, "batch context tmp wait-all-nodes"),
    (MAYBE_ARGUMENT, "get-user-env"),  # of alloc; submit has a meaning for it
    (NO_ARGUMENT, "bell ignore-pbs no-bell"),
)
# Variables whose names are not those of their options.
_VARIABLES = {"array": "ARRAY_INX", "time": "TIMELIMIT", "mem": "MEM_PER_NODE"}
_NEVER = ("help", "verbose", "uid", "gid", "wrap", "parsable", "test-only", "no-shell")  # no variable gives them
_TITLES_OF_SLURM = ("Parallel run options", "Consumable resources related options", "Constraint options")
_OFF = ("", "0", "no", "false")


class JobParser(RunParser):
    """The parser of jobs' command lines, see the module. `dry`: only find the options, and tell plugins nothing."""

    _table = _TABLE

    def __init__(self, command: str, extra: "Iterable[PluginOption]" = (), *, dry: bool = False) -> None:
        self._command = command
        self._of_slurm = "salloc" if command == "alloc" else "sbatch"
        self.own = options_of({"submit": SUBMIT, "resubmit": RESUBMIT}.get(command, ALLOC))
        super().__init__(extra, self.own, of_jobs)
        self._dry = dry
        self._add(ignored_options(_IGNORED, names.IGNORED))

    def _tell(self, option: PluginOption, value: str | None) -> None:
        if not self._dry:
            super()._tell(option, value)

    def _layout_options(self) -> tuple[Option, ...]:
        return tuple(option for option in layout_options() if option.long not in _STEP_LAYOUT)

    def _job_options(self) -> tuple[Option, ...]:
        return self.own

    def variables(self, environment: "Mapping[str, str]") -> list[str]:
        """Return the options of SBATCH_* or SALLOC_* as words of a command line."""
        if self._command == "resubmit":
            return []  # its options are those of then
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
        """Return the text of --help."""
        lines = [f"Usage: {self.usage()}", "", *wrapped(self.about(), max(columns - 2, 20))]
        for title, options in self.groups().items():
            lines += ["", *([f"{title}:"] if title else []), *option_lines(options, columns)]
        lines += status_lines(self._command, columns)
        return "\n".join(lines)

    def usage(self) -> str:
        """Return the usage line, with the name by which the command was called."""
        words = {"submit": "[SCRIPT [ARGS...]]", "resubmit": "JOB"}.get(self._command, "[COMMAND [ARGS...]]")
        return f"{self._called()} [OPTIONS] {words}"

    def _called(self) -> str:
        return Program.name if Program.is_slurms() else f"nodectl {self._command}"

    def about(self) -> str:
        """Return the description of the command."""
        if self._command == "resubmit":
            return (
                "Submit a batch job once more, with its script, options, environment and directory as they were, but "
                "not --begin, --deadline, --dependency and --hold. New options replace the earlier ones. JOB: 42 or "
                "last; some tasks of an array: 42_3, 42_[0-4]."
            )
        if self._of_slurm == "sbatch":
            return (
                "Queue a batch script. Options stand in its lines #SBATCH and #NODECTL before the first command, too. "
                f"As in: {self._called()} --time=1:00:00 --mem=4G -c4 job.sh"
            )
        return "Wait for an allocation, run a command or a shell in it, and end it with that."

    def groups(self) -> "dict[str, Iterable[Option]]":
        """Return the options by title; the first title may be empty."""
        titles = _TITLES_OF_SLURM if Program.is_slurms() else ("", "Of the job", "Layout")
        groups = dict(zip(titles, (self.own, self._table, self._layout_options()), strict=True))
        return groups | ({"Options provided by plugins": self.extra} if self.extra else {})


def job_options(parsed: Parsed) -> dict[str, object]:
    """Remove JobOptions of the service's Submit and Allocate from the parsed options. Return the removed ones."""
    return {name: parsed.values.pop(name) for name in JobOptions.__annotations__ if name in parsed.values}


def outside_of_jobs(environment: "Mapping[str, str]") -> dict[str, str]:
    """Return the environment for a new job, without variables describing a surrounding job."""
    if "NODECTL_JOB_ID" not in environment:
        return dict(environment)
    of_a_job = ("SLURM_", "SLURMD_", "NODECTL_JOB_")
    found = {name: value for name, value in environment.items() if not name.startswith(of_a_job)}
    part_variables.remove(found)
    return found


def ignored(parsed: Parsed) -> list[str]:
    """Remove the options without effect here from the parsed options, and return the names."""
    found: list[str] = parsed.values.pop("ignored", [])  # type: ignore[assignment]  # as they were added
    return list(dict.fromkeys(found))
