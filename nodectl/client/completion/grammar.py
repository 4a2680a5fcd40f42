"""The grammar of a command's words, from the parser's tables; and the place of the cursor. Pure."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from nodectl.client.command_parser import subcommands
from nodectl.client.run_options import ARGUMENT, MAYBE_ARGUMENT, NO_ARGUMENT, Option


class Item(NamedTuple):
    """An option, or, without names, a word which is no option. `metavar` is the argument's name."""

    names: tuple[str, ...]
    metavar: str
    has_arg: int
    help: str
    choices: tuple[str, ...] = ()


class Grammar(NamedTuple):
    """A command's grammar.

    `words` stand in this order; the last may be repeated. With `runs` the first word begins a command line of its own.
    """

    options: tuple[Item, ...]
    words: tuple[Item, ...] = ()
    commands: "Mapping[str, tuple[str, Grammar]]" = MappingProxyType({})
    runs: bool = False

    def option(self, name: str) -> Item | None:
        """Return the option of this name."""
        return next((item for item in self.options if name in item.names), None)


class Place(NamedTuple):
    """The place of the cursor: `partial` is typed there, after `before`, which remains.

    `item` describes the expected text; None for an option, or a command of the grammar.
    """

    grammar: Grammar
    item: Item | None
    before: str
    partial: str
    in_program: bool = False


def of_options(options: Iterable[Option], words: Sequence[Item] = (), *, runs: bool = False) -> Grammar:
    """Return the grammar of a command which parses like `nodectl run`."""
    items = [
        Item(
            tuple(filter(None, (f"--{option.long}", f"-{option.short}" if option.short else ""))),
            option.arginfo, option.has_arg, option.help,
        )
        for option in options
    ]  # fmt: skip
    return Grammar(tuple(items), tuple(words), runs=runs)


def of_parser(parser: argparse.ArgumentParser) -> Grammar:
    """Return the grammar of a command parsed by argparse."""
    options, words = [], []
    runs = False
    described = _described(parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        has_arg = NO_ARGUMENT if action.nargs == 0 else MAYBE_ARGUMENT if action.nargs == "?" else ARGUMENT
        metavar = action.metavar if isinstance(action.metavar, str) else action.dest
        help_text = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
        item = Item(tuple(action.option_strings), metavar, has_arg, help_text, tuple(map(str, action.choices or ())))
        if action.option_strings:
            options.append(item)
        elif action.nargs == argparse.REMAINDER:
            runs = True
        else:
            words.append(item)
    commands = {name: (described.get(name, ""), of_parser(one)) for name, one in subcommands(parser).items()}
    return Grammar(tuple(options), tuple(words), commands, runs=runs)


def _described(parser: argparse.ArgumentParser) -> dict[str, str]:
    return {
        choice.dest: str(choice.help or "")
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for choice in action._choices_actions
    }


def locate(grammar: Grammar, words: Sequence[str], current: str) -> Place:
    """Return the place of `current`, after the words of a command."""
    wanted: Item | None = None
    only_words, taken = False, 0
    for index, word in enumerate(words):
        if wanted is not None:
            wanted = None
        elif word == "--" and not only_words:
            only_words = True
        elif word.startswith("-") and word != "-" and not only_words:
            name, equals, _ = word.partition("=")
            option = grammar.option(name)
            wanted = option if option is not None and option.has_arg == ARGUMENT and not equals else None
        elif not taken and word in grammar.commands:
            return locate(grammar.commands[word][1], words[index + 1 :], current)
        else:
            taken += 1
            if grammar.runs and taken > len(grammar.words):
                return Place(grammar, None, "", current, in_program=True)
    if wanted is not None:
        return Place(grammar, wanted, "", current)
    if current.startswith("-") and not only_words:
        name, equals, value = current.partition("=")
        option = grammar.option(name) if equals else None
        return Place(grammar, option, f"{name}=" if option else "", value if option else current)
    if grammar.runs and taken >= len(grammar.words):
        return Place(grammar, Item((), "COMMAND", ARGUMENT, ""), "", current)
    return Place(grammar, grammar.words[min(taken, len(grammar.words) - 1)] if grammar.words else None, "", current)
