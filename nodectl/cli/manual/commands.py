"""The pages of section 1: nodectl(1), and a page for each command."""

from collections.abc import Iterator, Mapping
from typing import Any

from nodectl.cli import bind
from nodectl.cli.catalogue import commands, parser_of
from nodectl.cli.main import OPTIONS
from nodectl.cli.manual import about
from nodectl.cli.manual.document import Block, Code, Heading, OptionTerm, Page, Paragraph, Synopsis, Terms
from nodectl.cli.manual.options import from_parser, from_table, statuses, usage_words
from nodectl.client.command_parser import status_lines
from nodectl.client.job_parser import JobParser
from nodectl.client.srun import help as run
from nodectl.client.srun.names import ALIASES, IGNORED, rows
from nodectl.model import features
from nodectl.model.exit_statuses import GENERAL, of_command
from nodectl.model.features import Command


def pages() -> Iterator[Page]:
    """Yield all pages of commands."""
    yield _whole()
    see = texts("SEE")
    for name, command in commands().items():
        blocks = [*_blocks(command), *_end(name)]
        yield Page(f"nodectl-{name}", 1, command.summary, blocks, ("nodectl(1)", *see.get(name, ())))


def texts(kind: str) -> Mapping[str, Any]:
    """Return the DESCRIPTIONS, EXAMPLES or SEE of all commands, those of the features included."""
    modules = (about, *(features.module(feature.manual) for feature in features.installed()))
    return {name: text for module in modules for name, text in getattr(module, kind, {}).items()}


def _whole() -> Page:
    blocks: list[Block] = [
        Heading("Synopsis"),
        Synopsis("nodectl", "[OPTIONS] COMMAND ..."),
        Heading("Description"),
        *map(Paragraph, about.NODECTL),
        Heading("Options"),
        Terms([(_global(option), _sentence(text)) for option, text in OPTIONS]),
        Heading("Commands"),
        Terms([(f"`nodectl-{name}`(1)", _sentence(command.summary)) for name, command in commands().items()]),
        Heading("Exit status"),
        Paragraph("`run`, `bulk` and others have statuses of their own, which their pages tell. Most end with:"),
        statuses(GENERAL),
        Heading("Environment"),
        Terms(about.ENVIRONMENT),
        Heading("Files"),
        Terms(about.FILES),
        *_examples("nodectl"),
    ]
    return Page("nodectl", 1, about.SUMMARY, blocks, about.SEE["nodectl"])


def _global(option: str) -> OptionTerm:
    name, _, argument = option.partition(" ")
    return OptionTerm([name], f" {argument}" if argument else "")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _blocks(command: Command) -> Iterator[Block]:
    name = command.name
    yield Heading("Synopsis")
    if not command.reads_words:
        parser = parser_of(command)
        of_ends = status_lines(of_command(name))  # which have a section of their own
        yield Synopsis(f"nodectl {name}", usage_words(parser))
        yield from _description(command, (parser.epilog or "").removesuffix(of_ends).rstrip())
        yield from from_parser(parser)
    elif name == "run":
        yield Synopsis("nodectl run", "[OPTIONS] PROGRAM [ARGS...]")
        yield from _description(command, "")
        yield from from_table(run.groups())
        yield from _of_clusters()
    elif command.parser:
        of_feature = features.module(command.parser)
        yield Synopsis(f"nodectl {name}", of_feature.USAGE.removeprefix(f"nodectl {name} "))
        yield from _description(command, *of_feature.ABOUT)
        yield from from_table(of_feature.parser().groups())
    elif name == "bind":
        yield Synopsis("nodectl bind", bind.USAGE.removeprefix("nodectl bind "))
        yield from _description(command, bind.ABOUT)
        yield from from_table(bind.groups())
    else:
        jobs = JobParser(name)
        yield Synopsis(f"nodectl {name}", jobs.usage().removeprefix(f"nodectl {name} "))
        yield from _description(command, jobs.about())
        yield from from_table(jobs.groups())


def _of_clusters() -> Iterator[Block]:
    """Yield the end of `nodectl run --help`: ignored options and aliases."""
    yield Heading("Without effect on one machine", 2)
    yield Paragraph("These are taken, since scripts have them; `-v` tells.")
    names = sorted(f"`--{long}`" + (f" (`-{letter}`)" if letter else "") for long, letter, _ in rows(IGNORED))
    yield Paragraph(", ".join(names) + ".")
    yield Heading("Other names", 2)
    yield Paragraph(", ".join(f"`--{old}` is `--{new}`" for old, new in ALIASES.items()) + ".")


def _description(command: Command, *own: str) -> Iterator[Block]:
    yield Heading("Description")
    told = texts("DESCRIPTIONS").get(command.name) or ([] if command.reads_words else [_sentence(command.summary)])
    for text in (*told, *own):
        if text:
            yield Paragraph(text)


def _end(name: str) -> Iterator[Block]:
    yield Heading("Exit status")
    yield statuses(of_command(name))
    yield from _examples(name)


def _examples(name: str) -> Iterator[Block]:
    examples = texts("EXAMPLES").get(name, ())
    if examples:
        yield Heading("Examples")
    for text, code in examples:
        yield Paragraph(text)
        yield Code(code)
