"""Every exit status of every command: a table for `--help`, the manual and the tests. Pure."""

from typing import NamedTuple


class ExitStatus(NamedTuple):
    """A status as shown to people (128+N stands for many) and the meaning."""

    status: str
    meaning: str


DONE = ExitStatus("0", "it was done")
FAILED = ExitStatus("1", "it could not be done; a line on standard error says why")
USAGE = ExitStatus("2", "the command line makes no sense")
INTERRUPTED = ExitStatus("130", "Ctrl-C ended the command")
NO_READER = ExitStatus("141", "the reader of its output has gone")

# The statuses of most commands.
GENERAL = (DONE, FAILED, USAGE, INTERRUPTED, NO_READER)
_BY_SIGNAL = "128+N"
_UNKNOWN_OPTION = ExitStatus("255", "an option is unknown, or lacks its argument")
_WITHDRAWN = ExitStatus(_BY_SIGNAL, "signal N ended it while it waited for its turn")


def _in_part(verb: str) -> tuple[ExitStatus, ...]:
    """Return the statuses of a command for several jobs or steps."""
    return (DONE, ExitStatus("1", f"one at least could not be {verb}; the others were"), *GENERAL[2:])


def _finds(what: str) -> tuple[ExitStatus, ...]:
    """Return the statuses of an examining command."""
    return (ExitStatus("0", "nothing is wrong"), ExitStatus("1", what), *GENERAL[2:])


# Commands with statuses of their own.
OF_COMMANDS: dict[str, tuple[ExitStatus, ...]] = {
    "run": (
        ExitStatus("0", "every task ended with 0"),
        ExitStatus("N", "the highest exit code of the tasks"),
        ExitStatus("1", "the step could not be run (SLURM_EXIT_ERROR is a status in its place, and SLURM_EXIT_IMMEDIATE"
                   " where --immediate finds nothing free), or it ran out of memory"),
        ExitStatus("2, 13, 8", "the program is missing, is not executable, has a format that the kernel does not know: "
                   "the errno of execve(2)"),
        ExitStatus(_BY_SIGNAL, "signal N ended a task, or the command before there was a step"),
        ExitStatus("143", "the time limit was reached"),
        _UNKNOWN_OPTION,
    ),
    "bulk": (
        ExitStatus("0", "every command ended with 0"),
        ExitStatus("1-100", "so many commands failed; --halt has statuses of its own, as GNU parallel"),
        ExitStatus("101", "more than 100 commands failed"),
        ExitStatus(_BY_SIGNAL, "signal N ended it"),
        ExitStatus("255", "something else went wrong"),
    ),
    "bind": (
        ExitStatus("0", "there is such a layout"),
        ExitStatus("1", "a run with these options would be refused; the reason is told"),
        _UNKNOWN_OPTION,
    ),
    "submit": (
        ExitStatus("0", "the job is in the queue; with --wait, it ended with 0"),
        ExitStatus("N", "with --wait, the exit code of the job, the highest one of an array"),
        ExitStatus("1", "the job was refused; a line on standard error says why"),
        _WITHDRAWN,
        _UNKNOWN_OPTION,
    ),
    "resubmit": (
        ExitStatus("0", "the job is in the queue; with --wait, it ended with 0"),
        ExitStatus("N", "with --wait, the exit code of the job, the highest one of an array"),
        ExitStatus("1", "the job was refused, or is not kept any more; a line on standard error says why"),
        _WITHDRAWN,
        _UNKNOWN_OPTION,
    ),
    "wait": (
        ExitStatus("0", "every job ended with 0"),
        ExitStatus("N", "the exit status of the first job, as they were named, that did not end with 0; of an array "
                   "the highest; with --any that of the job that ended; 1 for a job that was cancelled before it ran"),
        ExitStatus("124", "the time of --timeout is over"),
        *GENERAL[1:],
    ),
    "alloc": (
        ExitStatus("N", "the exit code of the command or of the shell"),
        ExitStatus("1", "there is no allocation, or the job ended before the command"),
        _WITHDRAWN,
        _UNKNOWN_OPTION,
    ),
    "enter": (
        ExitStatus("N", "the exit code of the program, 128+N for a signal"),
        ExitStatus("1", "the job cannot be entered; a line on standard error says why"),
        *GENERAL[2:],
    ),
    "cancel": _in_part("cancelled"),
    "hold": _in_part("held"),
    "release": _in_part("released"),
    "requeue": _in_part("requeued"),
    "signal": _in_part("signalled"),
    "suspend": _in_part("suspended"),
    "resume": _in_part("resumed"),
    "show": _in_part("found"),
    "explain": _in_part("explained"),
    "doctor": _finds("steps cannot run on this machine: a check says fail"),
    "plugins": _finds("a plugin that is configured or required cannot be used"),
    "config": (DONE, ExitStatus("1", "the file is not valid; a line on standard error says where"), *GENERAL[2:]),
    "init": (
        ExitStatus("0", "the configuration is written"),
        ExitStatus("1", "nothing was written; a line on standard error says why"),
        ExitStatus("2", "the command line is wrong, or there is no terminal to ask on"),
        *GENERAL[3:],
    ),
    "select": _finds("the plugin is not as it should be, or a play of it went wrong"),
    "spank": (
        ExitStatus("0", "nothing is wrong with the plugin"),
        ExitStatus("1", "the plugin is not as it should be, or failed when it was tried"),
        USAGE,
        ExitStatus("3", "it could be tried in part only"),
        ExitStatus("4", "the program beside which it was tried failed, and not the plugin"),
        *GENERAL[3:],
    ),
}  # fmt: skip


def of_command(command: str) -> tuple[ExitStatus, ...]:
    """Return the exit statuses of a command."""
    return OF_COMMANDS.get(command, GENERAL)
