"""Blocks of plain text in the form of docstrings: paragraphs with empty lines between, code indented."""

import inspect
import textwrap
from collections.abc import Iterator

from nodectl.cli.manual.document import Block, Code, Paragraph

_INDENT = "    "


def blocks(text: str) -> Iterator[Block]:
    """Yield the paragraphs and code blocks of the text."""
    code: list[str] = []
    for part in inspect.cleandoc(text).split("\n\n"):
        if part.startswith(_INDENT):
            code.append(textwrap.dedent(part) if not code else part)
            continue
        if code:
            yield _code(code)
            code = []
        yield Paragraph(" ".join(part.split()))
    if code:
        yield _code(code)


def _code(parts: list[str]) -> Code:
    first, *others = parts
    return Code("\n\n".join([first, *(part.removeprefix(_INDENT).replace(f"\n{_INDENT}", "\n") for part in others)]))


def first_words(text: str | None) -> str:
    """Return the first paragraph of a docstring on a line."""
    return " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())
