"""Command lines that ask for a text alone, as --help does: no private node starts for such a command."""

import posix as os
from typing import TYPE_CHECKING

from nodectl.client.command import BadOption, environ

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodectl.client.run_options import Parsed, RunParser


class TextAlone:
    """The words of a command that asks for a text, parsed without the options of plugins."""

    __slots__ = ("_configuration", "parsed", "parser")

    def __init__(self, parser: "RunParser", parsed: "Parsed", configuration: "str | None") -> None:
        self.parser = parser
        self.parsed = parsed
        self._configuration = configuration

    def has_plugins(self) -> bool:
        """Return True if a private node may have plugins, whose options belong to the text. Raises Failed."""
        from nodectl.client.configuration import configured
        from nodectl.spank import probe_variable

        if probe_variable.NAME in environ():
            return True
        try:
            os.stat(configured(self._configuration).plugstack_config)
        except FileNotFoundError:
            return False
        except OSError:
            pass
        return True


def asked(parser: "RunParser", words: "Sequence[str]", configuration: "str | None") -> TextAlone | None:
    """Return the text that the words ask for, None if they ask for more, or have an option that may be a plugin's."""
    try:
        parsed = parser.parse(words)
    except BadOption:
        return None
    return None if parsed.wants_step else TextAlone(parser, parsed, configuration)
