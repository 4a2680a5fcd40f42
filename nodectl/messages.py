"""Messages of nodectl and plugins to the user of a step.

Every process sets the destination of its lines (`listen`): the client prints them, the stepd sends them to the client,
a task hands them to its stepd. The daemon and container requests have no such user: their lines go to the log (`log`),
with the plugin's name and the job; the user of a launch hears the lines about it too (`heard`). Nothing here writes
into a descriptor of the user's on root's behalf. Levels and names are Slurm's.
"""

import posix as os  # the half in C: the other one is a millisecond of each step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from nodectl.kernel.log.journal import Journal

PLAIN, ERROR, INFO, VERBOSE, DEBUG, DEBUG2, DEBUG3 = range(7)
WARNING = "nodectl: warning: "
_WORDS = {ERROR: "error: ", INFO: "", VERBOSE: "", DEBUG: "debug: ", DEBUG2: "debug2: ", DEBUG3: "debug3: "}


_LOG = 2  # stderr, which is the daemon's
_LONGEST = 1000  # characters of a line in the log
_MOST_HEARD = 100


class _Outlet:
    write: "Callable[[str], None] | None" = None
    level = ERROR
    process = ""  # the name of the logging process
    plugin = ""
    about = ""
    log = _LOG
    journal: "Journal | None" = None
    facts: "dict[str, object]" = {}  # noqa: RUF012  # never changed, but replaced
    keep: "Callable[[str], None] | None" = None
    speaks: "Callable[[], str] | None" = None
    heard: "list[str] | None" = None
    heard_level = ERROR


_outlet = _Outlet()


def listen(write: "Callable[[str], None]", *, level: int = ERROR) -> None:
    """Send this process's lines up to `level` to `write` from now on: a call for each line, without line end."""
    _outlet.write = write
    _outlet.level = level
    _outlet.process = ""


def keep(write: "Callable[[str], None]", speaks: "Callable[[], str]") -> None:
    """Also send plugins' messages up to INFO to `write` from now on, for an administrator, at any verbosity.

    `speaks` returns the plugin and the step of the current call, "" for nodectl's own messages.
    """
    _outlet.keep = write
    _outlet.speaks = speaks


def keep_through(write: "Callable[[str], None]") -> None:
    """Send kept messages to `write` from now on, in a fork where stderr will not be the log."""
    if _outlet.keep is not None:
        _outlet.keep = write


def log_is(fd: int) -> None:
    """Set the descriptor of the log in place of stderr."""
    _outlet.log = fd


def to_log(line: str, name: str = "runner-said", **facts: object) -> None:
    """Write a line to the daemon's log. `name`: the line's name in `nodectl/kernel/log/table.py`.

    `facts`: job, step and uid of the line, where they differ from those of this process.
    """
    line = printable(line)  # quoted words of a user must not forge further lines
    if _outlet.journal is not None and _outlet.log >= 0:
        _outlet.journal.write(line, name, {**_outlet.facts, **facts}, _outlet.log)
        return
    try:
        os.write(_outlet.log, line.encode("utf-8", "replace") + b"\n")
    except OSError:
        pass  # the log has no reader


def log(process: str) -> None:
    """Send this process's lines up to INFO to the log: `nodectl daemon: plugin task/x: job 7: error: ...`."""
    _outlet.write = None
    _outlet.process = process
    if b"JOURNAL_STREAM" in os.environ and _outlet.journal is None:
        from nodectl.kernel.log import journal  # where systemd keeps the log

        if journal.is_kept(os.environ, _LOG):
            _outlet.journal = journal.Journal()


def tell(name: str, text: str, **facts: object) -> None:
    """Write this process's own line to the log, as `to_log` does."""
    to_log(f"nodectl {_outlet.process or 'daemon'}: {text}", name, **facts)


def plugin_to_log(line: str) -> None:
    """Write a plugin's message to the log."""
    to_log(line, "plugin-said")


def speaker(plugin: str) -> None:
    """Set the plugin of the next lines in the log, before a call of the plugin."""
    _outlet.plugin = plugin


def concerns(job: int) -> None:
    """Set the job of the next lines in the log; 0 for no job."""
    _outlet.about = f"job {job}: " if job else ""
    _outlet.facts = {"job": job} if job else {}


def serves(job: int, step: str, uid: int) -> None:
    """Set the step of this process, as 7.0, with job and user."""
    _outlet.facts = {"job": job, "step": step, "uid": uid}


class heard:  # noqa: N801  # a context manager, read as a verb
    """`with heard(level) as lines:` keeps, beside the log, the lines up to `level` for an absent user."""

    __slots__ = ("_level",)

    def __init__(self, level: int) -> None:
        self._level = level

    def __enter__(self) -> "list[str]":
        lines: list[str] = []
        _outlet.heard, _outlet.heard_level = lines, self._level
        return lines

    def __exit__(self, *_: object) -> None:
        _outlet.heard = None


def hears(level: int) -> bool:
    """Return True if a message of this level has a listener."""
    return _outlet.write is not None and level <= _outlet.level


def say(level: int, text: str) -> None:
    """Send a message. PLAIN always passes and has no prefix; further levels have prefixes like `nodectl: error: `."""
    if _outlet.process:
        _log(level, text)
    if _outlet.keep is not None and _outlet.speaks is not None and level <= INFO and (who := _outlet.speaks()):
        for line in text.splitlines():
            _outlet.keep(f"nodectl stepd: {who}: {_WORDS.get(level, '')}{printable(line[:_LONGEST])}")
    if _outlet.write is None or not hears(level):
        return
    for line in text.splitlines() or [""]:
        _outlet.write(line if level == PLAIN else f"nodectl: {_WORDS[level]}{line}")


def _log(level: int, text: str) -> None:
    for line in text.splitlines() or [""]:
        if level <= INFO:
            head = f"nodectl {_outlet.process}: plugin {_outlet.plugin}: {_outlet.about}{_WORDS.get(level, '')}"
            plugin_to_log(f"{head}{printable(line[:_LONGEST])}")
        if _outlet.heard is not None and level <= _outlet.heard_level and len(_outlet.heard) < _MOST_HEARD:
            head = "" if level == PLAIN else f"nodectl: {_WORDS[level]}"
            _outlet.heard.append(head + line[:_LONGEST])


def printable(line: str) -> str:
    """Return the line with unprintable characters escaped.

    A user's words may be in it: a terminal must not take them for a command, nor the log for another line.
    """
    if line.isprintable():
        return line
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line)


def warning(text: str) -> None:
    """Report a failure without consequences: shown at any verbosity, as an error is."""
    for line in text.splitlines():
        say(PLAIN, WARNING + line)


def is_news(line: str, told: set[str]) -> bool:
    """Return False for a warning among the `told` ones, else add the warning to `told`.

    A plugin that fails in every task, or both in the command and in the step, is reported once.
    """
    if not line.startswith(WARNING):
        return True
    before = len(told)
    told.add(line)
    return len(told) > before


def error(text: str) -> None:
    """Something failed: what was tried, on what, for whom."""
    say(ERROR, text)


def info(text: str) -> None:
    """Worth knowing. The command says it, a step's processes with -v."""
    say(INFO, text)


def verbose(text: str) -> None:
    """Worth knowing for who asked: the command with -v, a step's processes with -vv."""
    say(VERBOSE, text)


def debug(text: str) -> None:
    """For who looks for a fault: with -vv, in a step's processes -vvv."""
    say(DEBUG, text)


def debug2(text: str) -> None:
    """More of it: with -vvv, in a step's processes -vvvv."""
    say(DEBUG2, text)


def debug3(text: str) -> None:
    """All of it: with -vvvv, in a step's processes -vvvvv."""
    say(DEBUG3, text)
