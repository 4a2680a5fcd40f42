"""A page of the manual as values, for a writer of roff and one of Markdown.

In every text `backquotes` stand around what is typed as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Heading:
    """Begins a section; with level 2 a part of one."""

    text: str
    level: int = 1


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Some sentences."""

    text: str


@dataclass(frozen=True, slots=True)
class Synopsis:
    """How a command is called. Words in capitals stand for others."""

    command: str
    words: str


@dataclass(frozen=True, slots=True)
class OptionTerm:
    """The names of an option, and its argument with what joins the two: `=N`, ` FILE`, `[=N]`."""

    names: Sequence[str]
    argument: str = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """Words, each with what is said of it."""

    rows: Sequence[tuple[str | OptionTerm, str]]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below a header. The first column names the row; `sentence` says the others where a table has no room,
    each by its number.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    sentence: str = "{1}"


@dataclass(frozen=True, slots=True)
class Code:
    """Lines as they are."""

    text: str


Block = Heading | Paragraph | Synopsis | Terms | Table | Code


@dataclass(frozen=True, slots=True)
class Page:
    """`summary` is its one line in lists; `see` the names of others, as `nodectl-run(1)`."""

    name: str
    section: int
    summary: str
    blocks: Sequence[Block]
    see: Sequence[str] = field(default_factory=tuple)

    @property
    def title(self) -> str:
        """Its name as others write it."""
        return f"{self.name}({self.section})"
