"""The options of `nodectl bulk`: GNU parallel's options, and options of `nodectl run` about the step.

Where both use a letter, parallel's meaning wins, but for -n, which stays the number of tasks: here the slots.
"""

import os
from typing import TYPE_CHECKING

from nodectl.bulk.halt import halt
from nodectl.bulk.sources import delimiter
from nodectl.client.command import BadOption
from nodectl.client.job_options import count, yes
from nodectl.client.option_lines import option_lines, status_lines, wrapped
from nodectl.client.run_options import (
    ARGUMENT,
    NO_ARGUMENT,
    OPTIONS,
    Option,
    RunParser,
    layout_options,
    positive,
)
from nodectl.client.srun.options import without_meaning
from nodectl.model.number import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nodectl.client.run_options import PluginOption

_MOST = 10**9
# Of the options of `run` those that say where streams go, or how tasks of one program end together.
_OF_RUN_ALONE = frozenset(
    {"error", "input", "kill-on-bad-exit", "label", "ntasks", "output", "pty", "uid", "unbuffered", "verbose"}
)
_NULL = b"\0"


def slots(text: str) -> int:
    """Return the number of commands to run at a time; 0 for the maximum.

    The text is a number, percent of the CPUs of this process, or a number above (+N) or below (-N) the CPUs.
    """
    cpus = len(os.sched_getaffinity(0))
    try:
        if text.endswith("%"):
            return max(1, positive(text[:-1]) * cpus // 100)
        if text.startswith(("+", "-")):
            return max(1, cpus + (1 if text[0] == "+" else -1) * count(text[1:]))
        return count(text)
    except ValueError:
        raise ValueError(f"Invalid value {text[:20]!r}, N, N%, +N or -N is allowed") from None


def seconds(text: str) -> float:
    """Return seconds from a number, possibly fractional, or a number followed by s, m, h, d."""
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:], 0)
    number = text[:-1] if unit else text
    left, _, right = number.partition(".")
    if not (left or right) or whole(left or "0", _MOST) is None or whole(right or "0", _MOST) is None:
        raise ValueError(f"Invalid time {text[:20]!r}")
    return float(number) * (unit or 1)


def time_limit(text: str) -> tuple[float, bool]:
    """Return the value of --timeout, seconds or percent of the median, and True for percent."""
    if text.endswith("%"):
        return float(positive(text[:-1])), True
    found = seconds(text)
    if not found:
        raise ValueError(f"Invalid time {text[:20]!r}")
    return found, False


def nobody_else(user: str) -> object:
    """Refuse --uid: root would write among this user's files, wherever the user's links lead. Raises BadOption."""
    raise BadOption(
        f"bulk has no --uid: let the whole command be the user's: runuser -u {user[:64]} -- nodectl bulk ..."
    )


def _refusal(words: str) -> "Callable[[str], object]":
    def refuse(_text: str) -> object:
        raise BadOption(words)

    return refuse


def _null(_text: str) -> bytes:
    return _NULL


def _option(  # the columns of the table
    long: str,
    short: str,
    arginfo: str,
    help: str,  # noqa: A002  # the column's name in every such table
    take: "Callable[[str], object]" = str,
    *,
    dest: str = "",
    many: bool = False,
) -> Option:
    return Option(long, short, arginfo, help, take, dest=dest, has_arg=ARGUMENT if arginfo else NO_ARGUMENT, many=many)


_COMMANDS = (
    _option("arg-file", "a", "FILE", "values from this file, '-' for stdin; once for each source", many=True),
    _option("null", "0", "", "values end with a NUL byte", _null, dest="delimiter"),
    _option("delimiter", "d", "C", "values end with this character", delimiter),
    _option("max-replace-args", "N", "N", "N values for one command: {1} to {N}", count, dest="per_command"),
    _option("link", "", "", "take the sources side by side, not every combination", yes),
    _option("colsep", "C", "REGEX", "values are columns, between which this stands: {1}, {2}", dest="columns"),
    _option("header", "", ":", "the first record has the names of the columns: {name}"),
    _option("no-run-if-empty", "r", "", "pass over empty values", yes, dest="nonempty"),
    _option("quote", "q", "", "the words of the template mean nothing to the shell", yes),
    _option("replace-str", "I", "TEXT", "what is replaced instead of {}", dest="mark"),
    _option("dry-run", "", "", "print the commands, run none", yes),
)
_RUNNING = (
    _option("ntasks", "n", "N", "slots: commands that run at a time; N% of the CPUs, +N or -N: so many more or "
            "fewer than CPUs; 0: as many as possible (default: all that you may have)", slots),
    _option("jobs", "j", "N", "the same as --ntasks", slots, dest="ntasks"),
    _option("nodes", "", "N", "in an allocation with a cluster, on so many nodes (default: all that it has)"),
    _option("retries", "", "N", "run a command that fails up to N times", positive),
    _option("timeout", "", "TIME", "end a command after so many seconds, or N% of the median", time_limit),
    _option("uid", "", "USER", "not here: root runs the whole command as USER: runuser -u USER -- nodectl bulk ...",
            nobody_else),
    _option("delay", "", "TIME", "let so many seconds pass between two beginnings", seconds),
    _option("halt", "", "WHEN", "never, or now|soon,fail|success|done=N or N%: 'soon' begins no more, 'now' ends those "
            "that run, too", halt),
    _option("joblog", "", "FILE", "a line for each command that has ended, in a regular file; +FILE adds to those "
            "that are there"),
    _option("usage-log", "", "FILE", "a line of JSON for each command that has ended: CPU time, memory, input and "
            "output; with --resume, or as +FILE, it goes on"),
    _option("resume", "", "", "pass over the commands in the joblog", yes),
    _option("resume-failed", "", "", "as --resume, and also those that failed", yes),
    _option("retry-failed", "", "", "run the failed commands of the joblog, and no others", yes),
)  # fmt: skip
_OUTPUT = (
    _option("keep-order", "k", "", "print the outputs in the order of the commands", yes),
    _option("tag", "", "", "begin each line with the command's values", yes),
    _option("tagstring", "", "TEXT", "begin each line with this, in which {} and so on are replaced"),
    _option("line-buffer", "", "", "print lines while commands run, each whole", yes, dest="by_line"),
    _option("ungroup", "u", "", "commands write to this command's own stdout and stderr, as they come", yes),
    _option("results", "", "DIR", "keep outputs in files: DIR/1/VALUE/stdout, stderr, seq, usage; in names that DIR "
            "makes where {} and so on are in it"),
    _option("files", "", "", "print the name of the file that has the output", yes),
    _option("tmpdir", "", "DIR", "where outputs are kept until they are printed (also TMPDIR); no other user may write "
            "there, unless it is sticky"),
    _option("verbose", "v", "", "print each command before its output", yes, dest="say"),
    _option("bar", "", "", "on a terminal, show how far it is", yes),
    _option("eta", "", "", "as --bar, with the time left", yes),
    _option("progress", "", "", "as --bar, with the rate", yes),
)  # fmt: skip
# Taken, so that scripts need no change.
_OTHER_NAMES = (
    _option("max-procs", "P", "N", "", slots, dest="ntasks"),
    _option("halt-on-error", "", "WHEN", "", halt, dest="halt"),
    _option("max-args", "", "N", "", count, dest="per_command"),
    _option("max-lines", "L", "N", "", count, dest="per_command"),
    _option("linebuffer", "", "", "", yes, dest="by_line"),
    _option("lb", "", "", "", yes, dest="by_line"),
    _option("xapply", "", "", "", yes, dest="link"),
    _option("dryrun", "", "", "", yes, dest="dry_run"),
    _option("tag-string", "", "TEXT", "", dest="tagstring"),
    _option("workdir", "", "DIR", "", dest="cwd"),
    _option("wd", "", "DIR", "", dest="cwd"),
    *(_option(name, "", "", "", yes, dest="nothing") for name in ("will-cite", "gnu", "no-notice", "plain", "group")),
)
# Options of parallel that bulk lacks, and what to do instead.
_NOT_HERE = (
    _option("pipe", "", "", "", _refusal("bulk has no --pipe: a line of input is a value, and commands have no input; "
            "`split` cuts a file into pieces, whose names can be the values")),
    _option("xargs", "X", "", "", _refusal("bulk has no -X: -N 100 gives each command 100 values")),
    _option("sshlogin", "", "HOST", "", _refusal("bulk has no --sshlogin: commands run on this machine, or on the "
            "nodes of a cluster (--nodes)")),
    _option("memfree", "", "SIZE", "", _refusal("bulk has no --memfree: it waits until the memory of --mem is free")),
    _option("load", "", "N", "", _refusal("bulk has no --load: the commands have the CPUs of the step for themselves")),
    _option("shuf", "", "", "", _refusal("bulk has no --shuf: shuf(1) shuffles the lines of its input")),
)  # fmt: skip
_OWN = (*_COMMANDS, *_RUNNING, *_OUTPUT)
NAMES = frozenset(option.dest for option in (*_OWN, *_OTHER_NAMES)) - {"ntasks", "cwd"}
USAGE = "nodectl bulk [OPTIONS] [COMMAND ARGS...] [::: VALUES...] [:::: FILES...]"
ABOUT = (
    "Run many short commands as tasks of one step, a few at a time.",
    "Without a COMMAND, values are commands. {} in it is a value (else one is put behind it), {.} the value without "
    "its extension, {/} without its directory, {//} its directory, {/.} both; {2} that of the second source; {#} the "
    "command's number, {%} its slot's. Values are lines of stdin, unless ::: or :::: or -a gives others; of several "
    "sources every combination, or, with :::+ or ::::+, side by side.",
)
_WIDTH = 78  # of these texts
_TABLE = tuple(option for option in OPTIONS if option.long not in _OF_RUN_ALONE)


class BulkParser(RunParser):
    """The parser of `nodectl bulk`'s options, see the module."""

    _table = _TABLE
    wants_program = False

    def __init__(self, extra: "Iterable[PluginOption]" = ()) -> None:
        super().__init__(extra, (*_OWN, *_OTHER_NAMES, *_NOT_HERE), lambda _: without_meaning())

    def help(self, columns: int = 80) -> str:
        """Return the text of --help."""
        lines = [f"Usage: {USAGE}"]
        for text in ABOUT:
            lines += ["", *wrapped(text, _WIDTH)]
        for title, options in self.groups().items():
            lines += ["", f"{title}:", *option_lines(options, columns)]
        lines += status_lines("bulk", columns)
        return "\n".join(lines)

    def groups(self) -> "dict[str, Iterable[Option]]":
        """Return the options by title."""
        groups: dict[str, Iterable[Option]] = {
            "Commands": _COMMANDS,
            "Running": _RUNNING,
            "Output": _OUTPUT,
            "Of the step, as `nodectl run` has them": self._table,
            "Layout and binding": self._layout_options(),
            "A job that may have to wait": self._job_options(),
        }
        return groups | ({"Options provided by plugins": self.extra} if self.extra else {})

    def _layout_options(self) -> tuple[Option, ...]:
        return tuple(option for option in layout_options() if option.long != "nodes")


def parser() -> BulkParser:
    """Return the parser without options of plugins, for the completion and the manual."""
    return BulkParser()
