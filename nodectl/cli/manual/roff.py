r"""Pages in roff, with the macros of man(7).

What both groff and mandoc take without a warning. Text is ASCII: every other character is written \[uXXXX].
"""

import re
import textwrap
from collections.abc import Iterator, Sequence

from nodectl import __version__
from nodectl.cli.manual.document import Block, Code, Heading, OptionTerm, Page, Paragraph, Synopsis, Table, Terms

_WIDTH = 78
_CODE_INDENT = 4
_LITERAL = re.compile(r"`([^`]+)`")
_LONG_WORD = re.compile(r"\S{24,}")
# `-` would become a hyphen, which is useless after copy and paste; the other characters have curved forms.
_SPECIAL = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}
_PLACEHOLDER = re.compile(r"(--?[a-z0-9][\w-]*)|\b([A-Z][A-Z_]+\b|N\b)")


def written(page: Page, date: str) -> str:
    """Return the page as a file."""
    head = f'.TH {_escaped(page.name.upper())} {page.section} {date} "nodectl {__version__}" "nodectl"'
    # Left-adjusted and without hyphens: options and file names are neither stretched nor broken.
    lines = [head, ".nh", ".ad l", ".SH NAME", f"{_escaped(page.name)} \\- {_inline(page.summary)}"]
    for block in page.blocks:
        made = list(_block(block))
        if made[0] == ".PP" and lines[-1].startswith((".SH ", ".SS ")):
            del made[0]  # a section begins with a paragraph anyway
        lines += made
    if page.see:
        lines += [".SH SEE ALSO", *_see(page.see)]
    return "\n".join(lines) + "\n"


def _see(titles: Sequence[str]) -> Iterator[str]:
    for number, title in enumerate(titles, 1):
        name, _, section = title.rstrip(")").partition("(")
        yield f".BR {_escaped(name)} ({section}){',' if number < len(titles) else ''}"


def _block(block: Block) -> Iterator[str]:
    match block:
        case Heading():
            yield f'.SH "{_escaped(block.text.upper())}"' if block.level == 1 else f'.SS "{_escaped(block.text)}"'
        case Paragraph():
            yield ".PP"
            yield from _filled(block.text)
        case Synopsis():
            yield f".B {_escaped(block.command)}"
            yield from _wrapped(_synopsis(block.words))
        case Terms():
            for term, text in block.rows:
                yield ".TP"
                yield _safe(_option(term) if isinstance(term, OptionTerm) else _inline(term))
                yield from _filled(text)
        case Table():
            for row in block.rows:  # a terminal of 80 columns has no room for more than a list
                yield from (".TP", _safe(_inline(row[0])), *_filled(block.sentence.format(*row)))
        case Code():
            yield from (".PP", f".RS {_CODE_INDENT}", ".nf")
            for line in block.text.split("\n"):
                yield _safe(_escaped(line)) or ".sp"
            yield from (".fi", ".RE")


def _option(term: OptionTerm) -> str:
    names = ", ".join(f"\\fB{_escaped(name)}\\fR" for name in term.names)
    return names + re.sub(r"[A-Z][\w+-]*", lambda word: f"\\fI{word[0]}\\fR", _escaped(term.argument))


def _synopsis(words: str) -> str:
    found = []
    end = 0
    for match in _PLACEHOLDER.finditer(words):
        font = "B" if match[1] else "I"
        found += [_escaped(words[end : match.start()]), f"\\f{font}{_escaped(match[0])}\\fR"]
        end = match.end()
    return "".join([*found, _escaped(words[end:])])


def _filled(text: str) -> list[str]:
    return _wrapped(_inline(text))


def _wrapped(line: str) -> list[str]:
    lines = textwrap.wrap(line, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return [_safe(line) for line in lines] or [r"\&"]


def _inline(text: str) -> str:
    parts = _LITERAL.split(text)
    return "".join(f"\\fB{_broken(part)}\\fR" if number % 2 else _broken(part) for number, part in enumerate(parts))


def _broken(text: str) -> str:
    """Return the escaped text; a long word may break at bars, commas and slashes."""
    words = _LONG_WORD.sub(lambda word: re.sub(r"([|,/;])(?=\S)", "\\1\0", word[0]), text)
    return _escaped(words).replace("\0", r"\:")


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(c, c if c.isascii() else f"\\[u{ord(c):04X}]") for c in text)


def _safe(line: str) -> str:
    """Return the line, protected from being read as a request."""
    return rf"\&{line}" if line[:1] in (".", "'") else line
