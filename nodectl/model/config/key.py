"""A key of the configuration, a section of keys, and the notation of values in the file."""

from __future__ import annotations

from nodectl.model.config.values import Parser

TYPE_CHECKING = False  # typing's own constant costs the import of typing
if TYPE_CHECKING:
    from collections.abc import Mapping


class Key:
    """A row of the table. `section` is the name of the row's chapter.

    `default` is a value, or a function that makes it from the values of the keys above; `shown` is then the manual's
    text about it.
    """

    __slots__ = ("default", "help", "name", "parser", "section", "shown")

    def __init__(
        self,
        name: str,
        parser: Parser,
        default: object,
        help: str,  # noqa: A002 - the column's name in every such table
        *,
        shown: str = "",
    ) -> None:
        self.name = name
        self.section = ""
        self.parser = parser
        self.default = default
        self.help = help
        self.shown = shown

    def make_default(self, values: Mapping[str, object]) -> object:
        """Return the default, given the values of the keys above."""
        return self.default(values) if callable(self.default) else self.default

    def default_text(self) -> str:
        """Return the default in the words of the manual."""
        return self.shown or toml(self.default)


def section(name: str, *keys: Key) -> tuple[Key, ...]:
    """Return the rows of a chapter of the manual. Two subjects may share a chapter, in consecutive rows."""
    for key in keys:
        key.section = name
    return keys


def toml(value: object) -> str:
    """Return a value in the file's notation; None is the empty string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, int | float):
        return str(value)
    text = str(value or "").replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text) + '"'
