"""Pages in Markdown for the site, with definition lists in Python-Markdown's notation."""

import re
from collections.abc import Iterator

from nodectl.cli.manual.document import Block, Code, Heading, OptionTerm, Page, Paragraph, Synopsis, Table, Terms

_LITERAL = re.compile(r"(`[^`]+`)")
_MARKUP = {character: f"\\{character}" for character in "\\*_[]{}>#"} | {"<": "&lt;", "&": "&amp;", "|": "&#124;"}


def written(page: Page, names: frozenset[str]) -> str:
    """Return the page as a file; `names` are the files of all pages, for links."""
    lines = [f"# {page.name}", "", _inline(page.summary[:1].upper() + page.summary[1:]) + ".", ""]
    for block in page.blocks:
        lines += [*_block(block), ""]
    if page.see:
        lines += ["## See also", "", ", ".join(_link(title, names) for title in page.see), ""]
    return "\n".join(lines)


def file_name(title: str) -> str:
    """Return the file name of a page: nodectl-run.1.md for nodectl-run(1)."""
    name, _, section = title.rstrip(")").partition("(")
    return f"{name}.{section}.md"


def _link(title: str, names: frozenset[str]) -> str:
    return f"[{title}]({file_name(title)})" if file_name(title) in names else title


def _block(block: Block) -> Iterator[str]:
    match block:
        case Heading():
            yield f"{'#' * (block.level + 1)} {_inline(block.text)}"
        case Paragraph():
            yield _inline(block.text)
        case Synopsis():
            yield from ("```", f"{block.command} {block.words}", "```")
        case Terms():
            for term, text in block.rows:
                yield _option(term) if isinstance(term, OptionTerm) else _inline(term)
                yield f":   {_inline(text) or '&nbsp;'}"
                yield ""
        case Table():
            yield f"| {' | '.join(block.header)} |"
            yield "|---" * len(block.header) + "|"
            for row in block.rows:
                yield f"| {' | '.join(_inline(cell) for cell in row)} |"
        case Code():
            yield from ("```", block.text, "```")


def _option(term: OptionTerm) -> str:
    *others, last = term.names or ("",)
    return ", ".join(f"`{name}`" for name in (*others, last + term.argument))


def _inline(text: str) -> str:
    parts = _LITERAL.split(text)
    return "".join(part if number % 2 else _escaped(part) for number, part in enumerate(parts))


def _escaped(text: str) -> str:
    return "".join(_MARKUP.get(character, character) for character in text)
