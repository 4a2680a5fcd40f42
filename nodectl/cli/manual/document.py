"""A page of the manual as values, for the writers of roff and Markdown.

In every text `backquotes` enclose words to be typed literally.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Heading:
    """The begin of a section; with level 2 of a subsection."""

    text: str
    level: int = 1


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of sentences."""

    text: str


@dataclass(frozen=True, slots=True)
class Synopsis:
    """The usage of a command. Words in capitals are placeholders."""

    command: str
    words: str


@dataclass(frozen=True, slots=True)
class OptionTerm:
    """The names of an option, and the argument with the joining characters: `=N`, ` FILE`, `[=N]`."""

    names: Sequence[str]
    argument: str = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """A list of terms, each with a text."""

    rows: Sequence[tuple[str | OptionTerm, str]]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below a header. The first column names the row.

    `sentence` is a format for the other columns, each by its number, where a table has no room.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    sentence: str = "{1}"


@dataclass(frozen=True, slots=True)
class Code:
    """Literal lines."""

    text: str


Block = Heading | Paragraph | Synopsis | Terms | Table | Code


@dataclass(frozen=True, slots=True)
class Page:
    """A page. `summary` is a line for lists of pages; `see` names further pages, as `nodectl-run(1)`."""

    name: str
    section: int
    summary: str
    blocks: Sequence[Block]
    see: Sequence[str] = field(default_factory=tuple)

    @property
    def title(self) -> str:
        """The page's name for references: `nodectl-run(1)`."""
        return f"{self.name}({self.section})"
