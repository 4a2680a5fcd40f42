"""`nodectl`: global options, then a command.

Every step pays for the command `run`: its path imports no argparse, no json, no enum. Every other command is a module
with `add_arguments(parser)` and `main(arguments) -> int`, and argparse in front.
"""

import _signal
import errno
import gc
import io
import posix as os  # the half in C: the other one is a millisecond of each step
import sys

from nodectl.client.command import Failed, GlobalOptions, Interrupted, complain, interrupted, undo_coercion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import NoReturn

    from _typeshed import ReadableBuffer

    from nodectl.model.features import Command

_WAITS = "nodectl-interrupt-waits"  # client/c/python.c holds a Ctrl-C back until this module handles it
OPTIONS = (
    ("--config FILE", "configuration (/etc/nodectl/nodectl.toml; also NODECTL_CONFIG)"),
    ("--socket PATH", "the service's socket (also NODECTL_SOCKET)"),
    ("--user", "a node of your own, without root: `nodectl --user daemon`"),
    ("--version", "print the version"),
)
GLOBAL_OPTIONS = (*(option.split()[0] for option, _ in OPTIONS), "--help")


def command(work: "Callable[[], int] | None" = None) -> "NoReturn":
    """Run `main`, or `work`, as the whole process.

    Exit without taking the interpreter apart first, which costs a millisecond. The exit status is known when the last
    byte is written.
    """
    status = 1
    sys.excepthook, sys.unraisablehook = _tell_failure, _tell_unraisable
    undo_coercion()
    output = _Output()
    try:
        if _signal.getsignal(_signal.SIGINT) == _signal.default_int_handler:
            _signal.signal(_signal.SIGINT, interrupted)
        if _WAITS in sys._xoptions:
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {_signal.SIGINT})
        try:
            status = (work or main)()
        except SystemExit as end:  # argparse's
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BrokenPipeError:
            status = 141
        except OSError:
            if not output.failed:
                raise
        status = output.end(status)
    except KeyboardInterrupt as end:
        status = ended_by(end)
    except BaseException:
        status = 1
        sys.excepthook(*sys.exc_info())
    os._exit(status)


class _Output:
    """Standard output, and the first write error: None without any."""

    failed: OSError | None = None

    def __init__(self) -> None:
        was = sys.stdout
        if was is not None:
            raw = io.BufferedWriter(_Raw(self))
            sys.stdout = io.TextIOWrapper(raw, was.encoding, was.errors, line_buffering=bool(was.line_buffering))

    def end(self, status: int) -> int:
        """Write the rest. Return the exit status: the command's, unless output is lost."""
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError as error:
            self.failed = self.failed or error
        if self.failed is None:
            return status
        if self.failed.errno == errno.EPIPE:
            return 141
        complain(f"write to standard output: {self.failed.strerror}")
        return status or 1


class _Raw(io.FileIO):
    """The raw file of standard output, which records write errors in `output`."""

    def __init__(self, output: _Output) -> None:
        super().__init__(1, "w", closefd=False)
        self._output = output

    def write(self, data: "ReadableBuffer") -> int:
        try:
            return super().write(data)
        except OSError as error:
            self._output.failed = error
            raise


def _tell_failure(kind: type[BaseException], error: BaseException, where: "TracebackType | None") -> None:
    """Print the traceback of a bug of nodectl, but not of a Ctrl-C during the command's end."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, where)


def _tell_unraisable(what: "sys.UnraisableHookArgs") -> None:
    """Print the traceback of an error in a callback, but not of a Ctrl-C.

    A Ctrl-C cannot leave a callback; the command sees it before it starts anything.
    """
    if not issubclass(what.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(what)


def ended_by(interrupt: KeyboardInterrupt) -> int:
    """End the command by the signal behind `interrupt`, as any program ends; for Ctrl-C return the exit status.

    For calls with nothing left to clean up.
    """
    number = interrupt.number if isinstance(interrupt, Interrupted) else int(_signal.SIGINT)
    if number != _signal.SIGINT:
        _signal.signal(number, _signal.SIG_DFL)
        _signal.raise_signal(number)
    return 128 + number


def main(argv: "Sequence[str] | None" = None) -> int:
    """Run the whole command. Return the exit status."""
    try:
        return _main(argv)
    except KeyboardInterrupt as end:
        return ended_by(end)


def _main(argv: "Sequence[str] | None") -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    settings = GlobalOptions()
    if (status := _take_global_options(settings, words)) is not None:
        return status
    if not words:
        print(usage(), file=sys.stderr)
        return 2
    return run_command(settings, words.pop(0), words)


def run_command(settings: GlobalOptions, command: str, words: list[str]) -> int:
    """Run a command with its words. Return the exit status."""
    if command == "run":
        return run_step(settings, words)
    if command == "daemon" and not words:
        return _serve(settings)
    from nodectl.cli import catalogue  # a step needs none of its rows

    found = catalogue.command_of(command)
    if found is None:
        return _unlisted(settings, command, words)
    if found.reads_words:
        return int(catalogue.module_of(found).main(settings, words))
    return _other(settings, found, words)


def _take_global_options(settings: GlobalOptions, words: list[str]) -> int | None:
    """Remove the global options, which come before the command, from the words.

    Returns the exit status if there is nothing more to do, else None.
    """
    given = set()
    while words and words[0].startswith("-"):
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if word in ("-h", "--help"):
            print(usage())
            return 0
        if word in ("-V", "--version"):
            from nodectl import __version__  # paid only where asked for

            print(f"nodectl {__version__}")
            return 0
        if word == "--user":
            from nodectl.model.config import own_node

            if os.geteuid() == 0:
                return wrong("--user is for everybody else: root has the service, or a private node")
            name, value = "--config", own_node.configuration()
        elif name not in ("--config", "--socket"):
            from nodectl.client.nearest import hint

            return wrong(f"unknown option {word}{hint(name, GLOBAL_OPTIONS)}")
        elif not equals:
            if not words:
                return wrong(f"{name} wants a value")
            value = words.pop(0)
        setattr(settings, name[2:], value)
        given.add(name)
    if given == {"--config"}:
        settings.socket = None  # not the socket of the job around this command
    return None


def run_step(settings: GlobalOptions, words: list[str]) -> int:
    """Run `nodectl run`. Return the exit status."""
    gc.disable()  # waiting for a step makes no reference cycles
    from nodectl.cli import run

    return run.main(settings, words)


def _serve(settings: GlobalOptions) -> int:
    """Run the service, without argparse in memory, because the service lives long."""
    from nodectl.cli import daemon

    return daemon.serve(settings)


def _unlisted(settings: GlobalOptions, command: str, words: list[str]) -> int:
    """Handle a word that is no command here: the hidden `__complete`, a missing feature's command, or a mistake."""
    if command == "__complete":  # for the scripts of `nodectl completion`
        from nodectl.cli import complete

        return complete.main(settings, words)
    from nodectl.cli import catalogue
    from nodectl.model import features

    if feature := features.of_command(command):
        complain(f"no command {command!r}: {features.is_missing(feature)}")
        return 2
    from nodectl.cli.other_words import ours
    from nodectl.client.nearest import hint

    return wrong(f"no command {command!r}{ours(command) or hint(command, catalogue.commands())}")


def _other(settings: GlobalOptions, command: "Command", words: list[str]) -> int:
    from nodectl.cli.catalogue import module_of, parser_of
    from nodectl.client.session import Session

    module, parser = module_of(command), parser_of(command)
    mixed = getattr(module, "MIXED", False)  # whether words may stand on both sides of options
    arguments = parser.parse_intermixed_args(words) if mixed else parser.parse_args(words)
    arguments.settings = settings
    Session.tells = True
    try:
        return int(module.main(arguments))
    except BrokenPipeError:
        os.dup2(os.open("/dev/null", os.O_WRONLY), 1)  # the reader has seen enough; python's own flush at exit too
        return 141
    except Failed as failed:
        from nodectl.client.advice import refuse

        refuse(failed)
        return failed.status


def usage() -> str:
    """Return the text of --help."""
    from nodectl.cli import catalogue

    groups = catalogue.groups()
    width = max(len(command.name) for _, commands in groups for command in commands)
    listed = []
    for title, commands in groups:
        listed += [f"{title}:", *(f"  {command.name:{width}}  {command.summary}" for command in commands), ""]
    lines = [
        "Usage: nodectl [--config FILE] [--socket PATH] [--user] COMMAND ...",
        "",
        "Shares a machine: programs get CPUs, memory and GPUs of their own, and wait in",
        "a queue for what is taken.",
        "",
        *listed,
        "Options:",
        *(f"  {option:13}  {text}" for option, text in OPTIONS),
        "",
        "`nodectl help COMMAND` says more. `last` is your newest job. First steps:",
        "  nodectl submit job.sh; nodectl queue; nodectl log -f last; nodectl cancel last",
        "Without a service, root's commands start a private node.",
    ]
    return "\n".join(lines)


def wrong(text: str) -> int:
    """Print the error of a wrong command line. Return 2."""
    print(f"nodectl: {text}\nTry 'nodectl --help' for more information.", file=sys.stderr)
    return 2
