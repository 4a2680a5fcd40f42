"""The pages of section 1: nodectl(1), and a page for each command."""

from collections.abc import Iterator

from nodectl.cli import bind
from nodectl.cli.catalogue import parser_of
from nodectl.cli.main import COMMANDS, OPTIONS, RUNS_MANNERS
from nodectl.cli.manual import about
from nodectl.cli.manual.document import Block, Code, Heading, OptionTerm, Page, Paragraph, Synopsis, Terms
from nodectl.cli.manual.options import from_parser, from_table, statuses, usage_words
from nodectl.client.bulk import options as bulk
from nodectl.client.command_parser import status_lines
from nodectl.client.job_parser import JobParser
from nodectl.client.srun import help as run
from nodectl.client.srun.names import ALIASES, IGNORED, rows
from nodectl.model.exit_statuses import GENERAL, of_command


def pages() -> Iterator[Page]:
    """Yield all pages of commands."""
    yield _whole()
    for name, summary in COMMANDS:
        blocks = [*_blocks(name), *_end(name)]
        yield Page(f"nodectl-{name}", 1, summary, blocks, ("nodectl(1)", *about.SEE.get(name, ())))


def _whole() -> Page:
    blocks: list[Block] = [
        Heading("Synopsis"),
        Synopsis("nodectl", "[OPTIONS] COMMAND ..."),
        Heading("Description"),
        *map(Paragraph, about.NODECTL),
        Heading("Options"),
        Terms([(_global(option), f"{text[0].upper()}{text[1:]}.") for option, text in OPTIONS]),
        Heading("Commands"),
        Terms([(f"`nodectl-{name}`(1)", f"{text[0].upper()}{text[1:]}.") for name, text in COMMANDS]),
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


def _blocks(name: str) -> Iterator[Block]:
    yield Heading("Synopsis")
    if name not in RUNS_MANNERS:
        parser = parser_of(name, dict(COMMANDS)[name])
        of_ends = status_lines(of_command(name))  # which have a section of their own
        yield Synopsis(f"nodectl {name}", usage_words(parser))
        yield from _description(name, (parser.epilog or "").removesuffix(of_ends).rstrip())
        yield from from_parser(parser)
    elif name == "run":
        yield Synopsis("nodectl run", "[OPTIONS] PROGRAM [ARGS...]")
        yield from _description(name, "")
        yield from from_table(run.groups())
        yield from _of_clusters()
    elif name == "bulk":
        yield Synopsis("nodectl bulk", bulk.USAGE.removeprefix("nodectl bulk "))
        yield from _description(name, *bulk.ABOUT)
        yield from from_table(bulk.BulkParser().groups())
    elif name == "bind":
        yield Synopsis("nodectl bind", bind.USAGE.removeprefix("nodectl bind "))
        yield from _description(name, bind.ABOUT)
        yield from from_table(bind.groups())
    else:
        jobs = JobParser(name)
        yield Synopsis(f"nodectl {name}", jobs.usage().removeprefix(f"nodectl {name} "))
        yield from _description(name, jobs.about())
        yield from from_table(jobs.groups())


def _of_clusters() -> Iterator[Block]:
    """Yield the end of `nodectl run --help`: ignored options and aliases."""
    yield Heading("Without effect on one machine", 2)
    yield Paragraph("These are taken, since scripts have them; `-v` tells.")
    names = sorted(f"`--{long}`" + (f" (`-{letter}`)" if letter else "") for long, letter, _ in rows(IGNORED))
    yield Paragraph(", ".join(names) + ".")
    yield Heading("Other names", 2)
    yield Paragraph(", ".join(f"`--{old}` is `--{new}`" for old, new in ALIASES.items()) + ".")


def _description(name: str, *own: str) -> Iterator[Block]:
    yield Heading("Description")
    summary = dict(COMMANDS)[name]
    texts = about.DESCRIPTIONS.get(name) or ([] if name in RUNS_MANNERS else [f"{summary[0].upper()}{summary[1:]}."])
    for text in (*texts, *own):
        if text:
            yield Paragraph(text)


def _end(name: str) -> Iterator[Block]:
    yield Heading("Exit status")
    yield statuses(of_command(name))
    yield from _examples(name)


def _examples(name: str) -> Iterator[Block]:
    if name in about.EXAMPLES:
        yield Heading("Examples")
    for text, code in about.EXAMPLES.get(name, ()):
        yield Paragraph(text)
        yield Code(code)
