"""A command's options and arguments as blocks of a page: from the table of options, or from the argparse parser."""

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping

from nodectl.cli.manual.document import Block, Heading, OptionTerm, Paragraph, Synopsis, Table, Terms
from nodectl.client.run_options import MAYBE_ARGUMENT, Option
from nodectl.model.exit_statuses import ExitStatus

_LITERAL_OR_OPTION = re.compile(r"`[^`]+`|(?<![\w-])(--[a-z][a-z-]*)")
_TITLES = {"positional arguments": "Arguments", "options": "Options"}  # argparse's own ones


def from_table(groups: Mapping[str, Iterable[Option]]) -> Iterator[Block]:
    """Yield the sections of options of a command in the style of srun."""
    yield Heading("Options")
    for title, options in groups.items():
        if title:
            yield Heading(title, 2)
        yield Terms([(_term(option), sentence(option.help)) for option in options])


def _term(option: Option) -> OptionTerm:
    argument = option.arginfo
    if argument and option.has_arg == MAYBE_ARGUMENT and not argument.startswith("["):
        argument = f"[={argument}]"
    elif argument and not argument.startswith("[="):
        argument = f"={argument}"
    return OptionTerm([*([f"-{option.short}"] if option.short else []), f"--{option.long}"], argument)


def from_parser(parser: argparse.ArgumentParser, level: int = 1) -> Iterator[Block]:
    """Yield the sections of a command with an argparse parser, and then of the subcommands."""
    formatter = argparse.HelpFormatter(parser.prog)
    others: list[tuple[str, str, argparse.ArgumentParser]] = []
    for group in parser._action_groups:  # argparse has no public access to its arguments
        rows: list[tuple[str | OptionTerm, str]] = []
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
                others += [(name, helps[name], one) for name, one in action.choices.items() if name in helps]
            elif action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
                rows.append((_action_term(formatter, action), sentence(_action_help(formatter, action))))
        if rows and level == 1:
            yield Heading(_TITLES.get(group.title or "", group.title or ""))
        if rows:
            yield Terms(rows)
    for name, text, one in others:
        yield Heading(name, 2)
        yield Synopsis(one.prog, usage_words(one))
        yield Paragraph(sentence(one.description or text))
        yield from from_parser(one, 2)
        if one.epilog:
            yield Paragraph(one.epilog)


def usage_words(parser: argparse.ArgumentParser) -> str:
    """Return the words behind the command's name in the usage, on a line."""
    usage = parser.usage or parser.format_usage().partition(": ")[2]
    return " ".join(usage.split()).removeprefix(parser.prog).replace("[-h] ", "").replace("[-h]", "").strip()


def _action_term(formatter: argparse.HelpFormatter, action: argparse.Action) -> str | OptionTerm:
    if not action.option_strings:
        return OptionTerm([], str(action.metavar or action.dest))
    shown = "" if action.nargs == 0 else formatter._format_args(action, action.dest.upper())
    return OptionTerm(sorted(action.option_strings, key=len), f" {shown}" if shown else "")


def _action_help(formatter: argparse.HelpFormatter, action: argparse.Action) -> str:
    return formatter._expand_help(action) if action.help else ""


def sentence(text: str) -> str:
    """Return a help text as a sentence: with a capital in front, unless a name comes first, and a full stop."""
    text = _LITERAL_OR_OPTION.sub(lambda found: f"`{found[1]}`" if found[1] else found[0], text.strip())
    if not text:
        return ""
    first = text.split()[0]
    if first.isalpha() and first.islower():
        text = text[0].upper() + text[1:]
    return text if text[-1] in ".!?" else f"{text}."


def statuses(rows: Iterable[ExitStatus]) -> Table:
    """Return a table of a command's exit statuses."""
    return Table(("Status", "Meaning"), [(row.status, sentence(row.meaning)) for row in rows])
