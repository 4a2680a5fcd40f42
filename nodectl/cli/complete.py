"""`nodectl __complete SHELL ...`: print candidates for the word at the cursor, for the scripts of `nodectl completion`.

Starts no private node, asks the service for names only, and dies of a timer's signal when it takes too long. The
options of plugins, which have to be loaded for that, come last.
"""

import os
import signal
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from nodectl.cli import catalogue, run
from nodectl.client.command import Failed, GlobalOptions
from nodectl.client.completion import service, typed, values
from nodectl.client.completion.grammar import Grammar, Item, Place, locate, of_options, of_parser
from nodectl.client.run_options import ARGUMENT
from nodectl.client.session import REEXECUTED, Session
from nodectl.model import features
from nodectl.model.config import own_node
from nodectl.model.features import Command
from nodectl.model.words import printable
from nodectl.spank.plugin_file import is_native

_SECONDS = 2.0
_GLOBAL = Grammar(
    (
        Item(("--config",), "FILE", ARGUMENT, "the node's configuration"),
        Item(("--socket",), "FILE", ARGUMENT, "the service's socket"),
        Item(("--user",), "", 0, "a node of your own, without root"),
        Item(("--version", "-V"), "", 0, "print the version"),
        Item(("--help", "-h"), "", 0, "print a help"),
    )
)
_WITH_PLUGINS = ("run", "submit", "alloc")  # the commands of the core to which plugins add options
Candidate = values.Candidate


def main(settings: GlobalOptions, words: Sequence[str]) -> int:
    """Run the whole command. Return 0, since shells ignore the status."""
    signal.setitimer(signal.ITIMER_REAL, _SECONDS)  # ends this process, whatever it does
    again = REEXECUTED in os.environ
    run.from_first_execution()
    shell, *rest = words
    breaks = ""
    if shell == "bash":
        breaks, line = rest
        rest = typed.split(line)[1:] or [""]
    elif shell == "fish":
        del rest[-2]  # the -- before the cursor's word: fish needs it for an empty word
    completion = Completion(settings, shell, breaks, rest)
    if not again:
        completion.tell()
    completion.tell_of_plugins()
    return 0


class Completion:
    """A command line, up to the cursor."""

    def __init__(self, settings: GlobalOptions, shell: str, breaks: str, words: Sequence[str]) -> None:
        self._shell = shell
        self._breaks = breaks
        self._settings = settings
        *before, self._current = words
        self._command, self._words = self._without_global(before)
        self._found = catalogue.command_of(self._command)

    def _without_global(self, words: Sequence[str]) -> tuple[str, list[str]]:
        """Return the command, "" if not typed yet, and the words behind the command."""
        rest = list(words)
        while rest and rest[0].startswith("-"):
            name, equals, value = rest.pop(0).partition("=")
            if name == "--user" and os.geteuid() != 0:
                self._settings.config, self._settings.socket = own_node.configuration(), None
            if name in ("--config", "--socket"):
                if not equals and not rest:
                    return "", [name]  # the user is typing its value
                setattr(self._settings, name[2:], value if equals else rest.pop(0))
                if name == "--config":
                    self._settings.socket = None
        return (rest[0], rest[1:]) if rest else ("", [])

    def tell(self) -> None:
        """Print the answer."""
        if not self._command:
            known = {name: (command.summary, Grammar(())) for name, command in catalogue.commands().items()}
            self._tell(locate(_GLOBAL._replace(commands=known), self._words, self._current))
        elif self._found:
            self._tell(locate(grammar_of(self._found), self._words, self._current))

    def _tell(self, place: Place) -> None:
        cut = typed.broken_off(self._current, self._breaks)
        kind = values.FILES if place.in_program else values.kind_of(place.item) if place.item else values.WORDS
        print(kind, self._current[cut:] if self._shell == "bash" else place.partial, sep="\n")
        if kind != values.WORDS:
            return
        found = self._values(place.item) if place.item else self._options(place)
        listed = place.item is not None and not values.LISTS.isdisjoint(place.item.names)
        self._print(typed.fitting(found, place.partial, listed=listed), place.before, cut)

    def _print(self, found: Iterable[Candidate], before: str, cut: int) -> None:
        for word, meaning in found:
            if typed.is_harmless(word):
                whole = f"{before}{word}"[cut:]
                print(whole if self._shell == "bash" or not meaning else f"{whole}\t{printable(meaning)}")
        sys.stdout.flush()

    def _values(self, item: Item) -> list[Candidate]:
        return values.known(self._command, item) or service.candidates(self._settings, self._command, item)

    def _options(self, place: Place) -> list[Candidate]:
        if not place.partial.startswith("-") and place.grammar.commands:
            return [(name, text) for name, (text, _) in place.grammar.commands.items()]
        return [_written(item) for item in place.grammar.options if item.help]

    def tell_of_plugins(self) -> None:
        """Print the options added by SPANK plugins.

        The plugins name their options themselves: their code runs here, as with --help. For compiled plugins this
        process executes itself a second time.
        """
        if self._found is None or not (self._found.parser or self._command in _WITH_PLUGINS):
            return
        if not self._current.startswith("--") or "=" in self._current:
            return
        place = locate(grammar_of(self._found), self._words, self._current)
        if place.item is not None or place.in_program:
            return
        try:
            session = Session(self._settings, start_private=False)
            hello: Any = session.call("Hello")
            if any(is_native(row["path"]) and not row["missing"] for row in hello["stack"]):
                from nodectl.client import reexec

                reexec.with_native_host(None)
            with _Silent():
                local = run.local_stack(session, hello, [])
                offered = local.options() if local else []
        except (Failed, OSError):
            return
        found = [_written(Item((f"--{one.long}",), one.arginfo, one.has_arg, one.help)) for one in offered]
        self._print(
            typed.fitting(found, place.partial, listed=False), "", typed.broken_off(self._current, self._breaks)
        )


class _Silent:
    """A context without standard output, because output of plugins would become a candidate."""

    def __enter__(self) -> None:
        self._out = os.dup(1)
        null = os.open("/dev/null", os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()
        os.dup2(self._out, 1)
        os.close(self._out)


def _written(item: Item) -> Candidate:
    """Return an option as typed: the long name, with the = before a required argument."""
    name = next((name for name in item.names if name.startswith("--")), item.names[0])
    return f"{name}=" if item.has_arg == ARGUMENT and name.startswith("--") else name, item.help


def grammar_of(command: Command) -> Grammar:
    """Return the grammar of a command of nodectl."""
    if command.parser:
        return of_options(features.module(command.parser).parser().all_options(), runs=True)
    make = _GRAMMARS.get(command.name)
    return make() if make else of_parser(catalogue.parser_of(command))


def _run() -> Grammar:
    from nodectl.client.srun.options import parser

    return of_options(parser().all_options(), runs=True)


def _bind() -> Grammar:
    from nodectl.cli.bind import options

    return of_options(options(), runs=True)


def _submit() -> Grammar:
    from nodectl.client.job_parser import JobParser

    return of_options(JobParser("submit").all_options(), [Item((), "SCRIPT", ARGUMENT, "")])


def _alloc() -> Grammar:
    from nodectl.client.job_parser import JobParser

    return of_options(JobParser("alloc").all_options(), runs=True)


def _resubmit() -> Grammar:
    from nodectl.client.job_parser import JobParser

    return of_options(JobParser("resubmit").all_options(), [Item((), "JOB", ARGUMENT, "")])


def _help() -> Grammar:
    return Grammar((), (Item((), "NAME", ARGUMENT, "", tuple(catalogue.commands())),))


_GRAMMARS = {"help": _help, "resubmit": _resubmit, "run": _run, "bind": _bind, "submit": _submit, "alloc": _alloc}
