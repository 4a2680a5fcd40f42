"""One row of the configuration's table, rows that belong together, and how values are written in the file.

Imported where `nodectl.config` is.
"""

from __future__ import annotations

from nodectl.config.values import Parser

TYPE_CHECKING = False  # typing's own constant costs the import of typing
if TYPE_CHECKING:
    from collections.abc import Mapping


class Key:
    """One row of the table. `group` is its section's.

    `default` is our value, or makes one from the values of the keys above it; `shown` is then what
    the manual says about it.
    """

    __slots__ = ("default", "group", "help", "name", "parser", "shown")

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
        self.group = ""
        self.parser = parser
        self.default = default
        self.help = help
        self.shown = shown

    def make_default(self, values: Mapping[str, object]) -> object:
        """The default, given the values of the keys above this one."""
        return self.default(values) if callable(self.default) else self.default

    def default_text(self) -> str:
        """The default in the words of the manual."""
        return self.shown or toml(self.default)


def section(group: str, *keys: Key) -> tuple[Key, ...]:
    """The rows of one chapter of the manual."""
    for key in keys:
        key.group = group
    return keys


def toml(value: object) -> str:
    """A value as it is written in the file; none is the empty string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, int):
        return str(value)
    text = str(value or "").replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text) + '"'
