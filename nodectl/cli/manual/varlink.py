"""A Varlink interface as sections of a page: the declarations of the file, with the comments above each declaration."""

import re
import textwrap
from collections.abc import Iterator

from nodectl.cli.manual.document import Block, Code, Heading, Paragraph

_WIDTH = 72
_DECLARED = re.compile(r"(interface|type|method|error) ([\w.]+)")
_TITLES = {"method": "Methods", "type": "Types", "error": "Errors"}


def sections(text: str) -> Iterator[Block]:
    """Yield the interface, then the methods, types and errors."""
    found: dict[str, list[tuple[str, str, str]]] = {kind: [] for kind in ("interface", *_TITLES)}
    for part in re.split(r"\n{2,}", text.strip()):
        comment, code = _parted(part.split("\n"))
        declared = _DECLARED.match(code)
        if declared:
            found[declared[1]].append((declared[2], comment, code))
        elif comment and not code:
            raise ValueError(f"a comment above nothing: {comment[:60]}")
    for name, comment, _ in found["interface"]:
        yield Heading(name)
        yield Paragraph(comment)
    for kind, title in _TITLES.items():
        if found[kind]:
            yield Heading(title, 2)
        for _, comment, code in found[kind]:
            yield Code(_folded(code))
            yield Paragraph(comment)


def _parted(lines: list[str]) -> tuple[str, str]:
    """Return the comment above a declaration, and the declaration."""
    count = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    comment = " ".join(line.lstrip("# ") for line in lines[:count])
    return " ".join(comment.split()), "\n".join(lines[count:])


def _folded(code: str) -> str:
    """Return the code with lines short enough for a terminal."""
    lines = []
    for line in code.split("\n"):
        start = line[: len(line) - len(line.lstrip())]
        further = f"{start}# " if line.lstrip().startswith("#") else f"{start}    "
        lines += textwrap.wrap(
            line, _WIDTH, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
        ) or [""]
    return "\n".join(lines)
